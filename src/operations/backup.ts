/**
 * Backup of the store as a file that is sent and then removed. Only one at a time: each needs as much disk
 * space as the store. A process that dies while it sends leaves its file; the next backup removes it.
 */
import {readdir, rm} from 'node:fs/promises'
import {join} from 'node:path'
import {DomainError} from '../core/errors.ts'
import type {OperationsContext} from './context.ts'

const PREFIX = 'backup-'
const SUFFIX = '.partial'

export interface BackupFile {
  /** Absolute path of a complete backup. */
  readonly file: string
  /** Removes the file and allows the next backup. Call it after success and failure; idempotent. */
  readonly release: () => Promise<void>
}

export function createBackup({
  random,
  settings,
  store,
}: Pick<OperationsContext, 'random' | 'settings' | 'store'>) {
  let isRunning = false

  /** Throws `backup_running`. */
  async function backup(): Promise<BackupFile> {
    if (isRunning)
      throw new DomainError(
        'backup_running',
        'A backup cannot start: another one is in progress. Retry after its end.',
      )
    isRunning = true
    const file = join(settings.dataDirectory, `${PREFIX}${random.id()}${SUFFIX}`)
    let released: Promise<void> | null = null
    const remove = async () => {
      await rm(file, {force: true})
      isRunning = false
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
