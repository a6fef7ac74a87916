/**
 * Keeps a server from starting on another store than the one it had, because `--store` is missing or new: it
 * would begin without jobs, and no error would say so. The file `belfry.store` in the data directory of a
 * server on PostgreSQL names its store. `--new-store` starts in any case.
 *
 * Crash points: the file is written after the store was opened. A start that finds no file is judged by the
 * other signs, as the first one was.
 */
import {existsSync, readFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config/server.ts'
import {replaceFile} from '../platform/durable-file.ts'
import type {Store} from '../ports/store.ts'
import {migratedTo, storeFiles} from '../store/sqlite/files.ts'
import {SettingRefused} from './start-refused.ts'

type StartParts = Pick<Config, 'dataDirectory' | 'newStore'>

function markerOf(dataDirectory: string): string {
  return join(dataDirectory, 'belfry.store')
}

/** Called before a store on SQLite is opened. Throws `SettingRefused`. */
export function checkSqliteChoice({dataDirectory, newStore}: StartParts): void {
  const marker = markerOf(dataDirectory)
  // A store that was migrated is refused with its own sentence.
  if (!existsSync(marker) || migratedTo(dataDirectory) !== null) return
  if (newStore) return rmSync(marker)
  const where = readFileSync(marker, 'utf8').trim()
  throw new SettingRefused(
    `The data directory ${dataDirectory} belongs to a server on ${where}: start with --store and its URL. ` +
      'To use a store in this directory instead, add --new-store.',
  )
}

/**
 * Called when a store on PostgreSQL is open. `where` names the database, without secrets. Throws
 * `SettingRefused`.
 */
export async function checkPostgresChoice(
  {dataDirectory, newStore}: StartParts,
  store: Pick<Store, 'members'>,
  nodeId: string,
  where: string,
): Promise<void> {
  const marker = markerOf(dataDirectory)
  const isKnown = newStore || existsSync(marker) || migratedTo(dataDirectory) !== null
  // A server of an earlier release wrote no marker: it is a member.
  const isMember = async () => (await store.members()).some(({id}) => id === nodeId)
  if (!isKnown && (await hasJobs(dataDirectory)) && !(await isMember()))
    throw new SettingRefused(
      `The data directory ${dataDirectory} has a store on SQLite with jobs, which would not run. ` +
        'Move it with belfry migrate, or add --new-store to start without these jobs.',
    )
  await replaceFile(marker, `${where}\n`)
}

/** True if the store on SQLite in the directory has jobs, or cannot be read and may have some. */
async function hasJobs(dataDirectory: string): Promise<boolean> {
  const {database} = storeFiles(dataDirectory)
  if (!existsSync(database)) return false
  const {Connection} = await import('../store/sqlite/connection.ts')
  try {
    const connection = new Connection(database, {readOnly: true})
    try {
      return (
        connection.database.prepare('SELECT 1 FROM jobs WHERE deleted_at IS NULL').get() !==
        undefined
      )
    } finally {
      connection.close()
    }
  } catch {
    return true
  }
}
