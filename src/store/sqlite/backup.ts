/**
 * Backups of a store: one plain SQLite file with everything in the store. Secrets are encrypted in it and
 * tokens are digests; definitions and output are as they are. Writes one from a running store, and makes a
 * store from one, which never runs the past again.
 */
import {
  closeSync,
  copyFileSync,
  existsSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
} from 'node:fs'
import {once} from 'node:events'
import {basename, join} from 'node:path'
import {backup} from 'node:sqlite'
import {Worker} from 'node:worker_threads'
import {createForOwner} from '../../platform/data-directory.ts'
import {syncDirectorySync} from '../../platform/durable-file.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {DEFAULT_LIMITS} from '../sql/query.ts'
import {forgetPlace, startNewIncarnation} from '../sql/cluster/restore-backup.ts'
import {BACKUP_MARK, MARK, putMeta} from '../sql/cluster/settings.ts'
import {Connection, sqliteDialect} from './connection.ts'
import {errorOf, failureOf, isDamaged} from './errors.ts'
import {StoreLock, storeFiles} from './files.ts'
import {atomically, damage, foreign, prepareSchema, versionOf} from './schema.ts'

/** First bytes of a database of SQLite. */
const MAGIC = Buffer.from('SQLite format 3\0')

/** All pages in one step: one snapshot, which concurrent writes do not restart. */
const PAGES_PER_STEP = 2 ** 31 - 1

/** Writes a backup of the database of `source` to `target`, which must not exist. Off the calling thread. */
export async function writeBackup(source: Connection, target: string): Promise<void> {
  if (existsSync(target)) throw new StoreUnavailable(`${target} exists already`)
  try {
    createForOwner(target)
    await backup(source.database, target, {rate: PAGES_PER_STEP})
    const copy = new Connection(target, {readOnly: false})
    try {
      copy.run(putMeta(MARK, BACKUP_MARK))
      // The copy is one file: it gets no write-ahead log.
      copy.execute('PRAGMA journal_mode = DELETE')
    } finally {
      copy.close()
    }
  } catch (error) {
    rmSync(target, {force: true})
    if (isDamaged(error)) throw errorOf(failureOf(error))
    throw new StoreUnavailable(`the backup was not written: ${failureOf(error).message}`, {
      cause: error,
    })
  }
}

/** Worker beside this file, with the same extension: from source or compiled. */
const CHECK_ENTRY = new URL(
  `./check-worker${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`,
  import.meta.url,
)

/** Reads a backup in a thread. Resolves with its problem, as `backupProblem`. */
export async function checkBackup(file: string): Promise<string | null> {
  const worker = new Worker(CHECK_ENTRY, {workerData: file})
  let problem: string | null = 'cannot be read: the thread of its check ended'
  worker.once('message', (message: string | null) => (problem = message))
  await once(worker, 'exit')
  return problem
}

/** Why no store can be restored from the file, as a sentence without its subject; `null` = one can. */
export function backupProblem(file: string): string | null {
  try {
    const connection = new Connection(file, {readOnly: true})
    try {
      return problemOf(connection)
    } finally {
      connection.close()
    }
  } catch (error) {
    return `cannot be read: ${failureOf(error).message}`
  }
}

function problemOf(connection: Connection): string | null {
  const wrong = versionOf(connection) === 0 ? 'is not a store of Belfry' : foreign(connection)
  return wrong ?? damage(connection)
}

export interface RestoreOptions {
  readonly clock: Pick<Clock, 'now'>
  readonly random: Pick<Random, 'id'>
}

export type RestoredStore = {readonly ok: true} | {readonly ok: false; readonly problem: string}

/**
 * Makes the store of `dataDir`, an existing empty directory, from a backup. The store gets a new incarnation:
 * planned times before now are not run, and executions that were running or pending have ended.
 */
export function restoreStore(
  backupFile: string,
  dataDir: string,
  {clock, random}: RestoreOptions,
): RestoredStore {
  if (!existsSync(backupFile)) return {ok: false, problem: `There is no backup ${backupFile}.`}
  const {lock} = storeFiles(dataDir)
  // A refused restore leaves only its lock file behind.
  if (readdirSync(dataDir).some((name) => name !== basename(lock)))
    return {
      ok: false,
      problem: `The data directory ${dataDir} is not empty; restore into a new one.`,
    }
  const locked = StoreLock.acquire(dataDir)
  if (!locked.ok) return locked
  // A crash before the rename leaves a directory without a store, which is refused as not empty.
  const draft = join(dataDir, 'belfry.restoring')
  try {
    if (!isDatabase(backupFile)) {
      const fix = 'To restore a file of jobs, use belfry restore'
      return {ok: false, problem: `${backupFile} cannot be restored: it is no backup. ${fix}.`}
    }
    copyFileSync(backupFile, draft)
    const problem = reviveDraft(draft, clock.now(), random.id())
    if (problem !== null) return {ok: false, problem: `The backup ${backupFile} ${problem}.`}
    renameSync(draft, storeFiles(dataDir).database)
    // A power cut could otherwise take the new name away, and a server would start on a new store.
    syncDirectorySync(dataDir)
    return {ok: true}
  } finally {
    for (const ending of ['', '-wal', '-shm']) rmSync(`${draft}${ending}`, {force: true})
    locked.lock.release({clean: true})
  }
}

function isDatabase(path: string): boolean {
  const start = Buffer.alloc(MAGIC.length)
  const file = openSync(path, 'r')
  try {
    return readSync(file, start) === start.length && start.equals(MAGIC)
  } finally {
    closeSync(file)
  }
}

/** Changes the copy into a store of its own; returns the problem of the copy, or `null`. */
function reviveDraft(draft: string, now: number, incarnation: string): string | null {
  let connection: Connection | null = null
  try {
    connection = new Connection(draft, {readOnly: false})
    const problem = problemOf(connection)
    if (problem !== null) return problem
    const fresh = {clusterId: incarnation, incarnation}
    const prepared = prepareSchema(connection, {fresh, check: false, now})
    if (!prepared.ok) return prepared.problem
    const tx = {now, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
    const opened = connection
    atomically(opened, () => {
      opened.run(startNewIncarnation(tx, incarnation, 'restored'))
      opened.run(forgetPlace())
    })
    return null
  } catch (error) {
    return `cannot be restored: ${failureOf(error).message}`
  } finally {
    connection?.close()
  }
}
