/**
 * An image of the store as a file to be sent and then removed. One at a time: each costs as much disk as the
 * store. A process that dies while sending leaves its file; the next backup removes it.
 */
import {readdir, rm} from 'node:fs/promises'
import {join} from 'node:path'
import {DomainError} from '../core/errors.ts'
import type {OperationsDependencies} from './context.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

const PREFIX = 'backup-'
const SUFFIX = '.partial'

export interface BackupFile {
  /** Absolute path of a complete image. */
  readonly file: string
  /** Removes the file and lets the next backup begin. To be called however the sending ended; repeatable. */
  readonly release: () => Promise<void>
}

export function createBackup(
  {random, settings}: Pick<OperationsDependencies, 'random' | 'settings'>,
  store: StoreWithDeadlines,
) {
  let running = false

  /** Throws `backup_running`. */
  async function backup(): Promise<BackupFile> {
    if (running)
      throw new DomainError('backup_running', 'A backup is already being made; wait for its end.')
    running = true
    const file = join(settings.dataDirectory, `${PREFIX}${random.id()}${SUFFIX}`)
    let released: Promise<void> | null = null
    const remove = async () => {
      await rm(file, {force: true})
      running = false
    }
    const release = () => (released ??= remove())
    try {
      await removeLeftovers(settings.dataDirectory)
      await store.backup(file)
    } catch (error) {
      await release()
      throw error
    }
    return {file, release}
  }

  return {backup}
}

async function removeLeftovers(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (name.startsWith(PREFIX) && name.endsWith(SUFFIX)) await rm(join(directory, name))
  }
}
