/**
 * Files of the store in a data directory. The directory lock admits one owner at a time; the open marker
 * tells a clean stop from any other, and the death of a process from that of the machine; the damage marker
 * keeps a damaged store from running; the migrated marker says that the store has moved to PostgreSQL.
 */
import {existsSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {messageOf} from '../../lib/error.ts'
import {bootId} from '../../platform/boot-id.ts'
import {type HeldLock, LOCK_FILE, lockDirectory} from '../../platform/directory-lock.ts'
import {readIfExistsSync, replaceFile} from '../../platform/durable-file.ts'

/** Readable by the user of the process only. */
const OWNER_ONLY = 0o600

export interface StoreFiles {
  readonly database: string
  /** See `LOCK_FILE`: for SQLite only. */
  readonly lock: string
  /** Open marker: present while the store is open, and after an unclean stop. */
  readonly marker: string
  /** See `StoreMark`. */
  readonly mark: string
  readonly count: string
  /** Present after SQLite reported damage, until a complete check has found none. */
  readonly damaged: string
}

export function storeFiles(dataDir: string): StoreFiles {
  return {
    database: join(dataDir, 'belfry.sqlite'),
    lock: join(dataDir, LOCK_FILE),
    marker: join(dataDir, 'belfry.open'),
    mark: join(dataDir, 'belfry.mark'),
    count: join(dataDir, 'belfry.count'),
    damaged: join(dataDir, 'belfry.damaged'),
  }
}

export type StoreLockResult =
  | {readonly ok: true; readonly lock: StoreLock}
  /** `problem` is a text for people. */
  | {readonly ok: false; readonly problem: string}

/** Content of the open marker: the next start checks the store. Earlier releases write nothing else. */
const CHECK = ''

/**
 * The directory lock together with the open marker. While the store is open and sound, the marker contains
 * the id of the boot. If only the process dies, the kernel keeps every write, and SQLite recovers from its
 * log: the next start needs no check. After a crash of the machine the boot differs, and the store is
 * checked, as it is where the system has no boot id.
 *
 * Crash points: until `opened`, the marker asks for the check that has not passed yet.
 */
export class StoreLock {
  /** The last owner did not release it cleanly. */
  readonly uncleanStop: boolean
  /** The store may have lost writes: it needs a check. */
  readonly needsCheck: boolean
  /** An earlier owner found damage: the store needs a complete check. */
  readonly wasDamaged: boolean
  readonly #lock: HeldLock
  readonly #files: StoreFiles

  private constructor(lock: HeldLock, files: StoreFiles) {
    this.#lock = lock
    this.#files = files
    this.uncleanStop = existsSync(files.marker)
    const boot = this.uncleanStop ? readFileSync(files.marker, 'utf8') : CHECK
    this.needsCheck = this.uncleanStop && (boot === CHECK || boot !== bootId())
    this.wasDamaged = existsSync(files.damaged)
    this.#mark(CHECK)
  }

  /** `held`: the caller has locked the directory; the lock is released here, also on failure. */
  static acquire(dataDir: string, held?: HeldLock): StoreLockResult {
    const lock = held ?? lockDirectory(dataDir)
    if (!lock.ok) return lock
    try {
      return {ok: true, lock: new StoreLock(lock, storeFiles(dataDir))}
    } catch (error) {
      lock.release()
      return {
        ok: false,
        problem: `The data directory ${dataDir} cannot be used: ${messageOf(error)}.`,
      }
    }
  }

  /** The store is sound: it has passed its check, or needed none. */
  opened(): void {
    this.#mark(bootId())
  }

  /** `finding` is what SQLite reported. */
  markDamaged(finding: string): void {
    writeFileSync(this.#files.damaged, `${finding}\n`, {mode: OWNER_ONLY})
  }

  /** A complete check has found no damage. */
  unmarkDamaged(): void {
    rmSync(this.#files.damaged, {force: true})
  }

  /** `clean`: the store was closed in order. Otherwise the next start checks it. */
  release({clean}: {readonly clean: boolean}): void {
    if (clean) rmSync(this.#files.marker, {force: true})
    else this.#mark(CHECK)
    this.#lock.release()
  }

  #mark(content: string): void {
    writeFileSync(this.#files.marker, content, {mode: OWNER_ONLY})
  }
}

/** Advice for the operator of a damaged store. */
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

/** Place to which the store has moved, or `null`. Throws when the marker cannot be read. */
export function migratedTo(dataDir: string): string | null {
  return readIfExistsSync(migratedMarker(dataDir))?.split('\n')[0] ?? null
}

/** Durable when it resolves. `where` is one line without secrets. */
export async function writeMigratedMarker(dataDir: string, where: string): Promise<void> {
  await replaceFile(migratedMarker(dataDir), `${where}\n`, READABLE_MODE)
}

export function removeMigratedMarker(dataDir: string): void {
  rmSync(migratedMarker(dataDir), {force: true})
}

/** Problem for the operator who starts a server on the old store. */
export function migratedProblem(dataDir: string, where: string): string {
  return (
    `The store in ${dataDir} has moved to ${where}; start with --store and its URL, ` +
    `or remove ${migratedMarker(dataDir)} to continue on the old store.`
  )
}
