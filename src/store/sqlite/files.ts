/**
 * Files of the store in a data directory. The directory lock admits one owner at a time; the open marker
 * tells a clean stop from any other; the damage marker keeps a damaged store from running; the migrated
 * marker says that the store has moved to PostgreSQL.
 */
import {existsSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {type DirectoryLock, LOCK_FILE, lockDirectory} from '../../platform/directory-lock.ts'
import {replaceFile} from '../../platform/durable-file.ts'

/** Readable by the user of the process only. */
const OWNER_ONLY = 0o600

export interface StoreFiles {
  readonly database: string
  /** See `LOCK_FILE`: for SQLite only. */
  readonly lock: string
  /** Present while the store is open, and after an unclean stop. */
  readonly marker: string
  /** Present after SQLite reported damage, until a complete check has found none. */
  readonly damaged: string
}

export function storeFiles(dataDir: string): StoreFiles {
  return {
    database: join(dataDir, 'belfry.sqlite'),
    lock: join(dataDir, LOCK_FILE),
    marker: join(dataDir, 'belfry.open'),
    damaged: join(dataDir, 'belfry.damaged'),
  }
}

export type StoreLockResult =
  | {readonly ok: true; readonly lock: StoreLock}
  /** `problem` is a text for people. */
  | {readonly ok: false; readonly problem: string}

/** The directory lock together with the open marker. */
export class StoreLock {
  /** The last owner did not release it cleanly: the store needs a check. */
  readonly uncleanStop: boolean
  /** An earlier owner found damage: the store needs a complete check. */
  readonly wasDamaged: boolean
  readonly #lock: Extract<DirectoryLock, {ok: true}>
  readonly #files: StoreFiles

  private constructor(lock: Extract<DirectoryLock, {ok: true}>, files: StoreFiles) {
    this.#lock = lock
    this.#files = files
    this.uncleanStop = existsSync(files.marker)
    this.wasDamaged = existsSync(files.damaged)
    writeFileSync(files.marker, '', {mode: OWNER_ONLY})
  }

  static acquire(dataDir: string): StoreLockResult {
    const lock = lockDirectory(dataDir)
    if (!lock.ok) return lock
    try {
      return {ok: true, lock: new StoreLock(lock, storeFiles(dataDir))}
    } catch (error) {
      lock.release()
      const why = error instanceof Error ? error.message : String(error)
      return {ok: false, problem: `The data directory ${dataDir} cannot be used: ${why}.`}
    }
  }

  /** `finding` is what SQLite reported. */
  markDamaged(finding: string): void {
    writeFileSync(this.#files.damaged, `${finding}\n`, {mode: OWNER_ONLY})
  }

  /** A complete check has found no damage. */
  unmarkDamaged(): void {
    rmSync(this.#files.damaged, {force: true})
  }

  /** `clean`: the store was closed in order and needs no check at the next start. */
  release({clean}: {readonly clean: boolean}): void {
    if (clean) rmSync(this.#files.marker, {force: true})
    this.#lock.release()
  }
}

/** For the operator: what to do about a damaged store. */
export function damageAdvice(dataDir: string): string {
  const {database} = storeFiles(dataDir)
  return (
    `Check it with: sqlite3 ${database} "PRAGMA integrity_check". Restore the newest backup into a new ` +
    'directory with: belfry restore-store <backup> --data <directory>'
  )
}

/*
 * Migrated marker: two stores of one cluster must not both launch. It is written just before the import is
 * committed, so that a crash never leaves two stores that start. A server refuses to start on the old store
 * until an operator removes the file.
 */

/** The server that must read it may run as another user; the directory itself is closed to others. */
const READABLE_MODE = 0o644

export function migratedMarker(dataDir: string): string {
  return join(dataDir, 'belfry.moved')
}

/** Where the store has moved to, or `null`. Throws when the marker cannot be read. */
export function migratedTo(dataDir: string): string | null {
  try {
    return readFileSync(migratedMarker(dataDir), 'utf8').split('\n')[0] ?? ''
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
    throw error
  }
}

/** Durable when it resolves. `where` is one line without secrets. */
export async function writeMigratedMarker(dataDir: string, where: string): Promise<void> {
  await replaceFile(migratedMarker(dataDir), `${where}\n`, READABLE_MODE)
}

export function removeMigratedMarker(dataDir: string): void {
  rmSync(migratedMarker(dataDir), {force: true})
}

/** For the operator who starts a server on the old store. */
export function migratedProblem(dataDir: string, where: string): string {
  return (
    `The store in ${dataDir} has moved to ${where}; start with --store and its URL, ` +
    `or remove ${migratedMarker(dataDir)} to continue on the old store.`
  )
}
