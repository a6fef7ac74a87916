/**
 * The exclusive lock of a data directory: one Belfry process at a time, server or agent. The lock is a
 * transaction held open on a small database of its own, so the kernel releases it however the process ends.
 */
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {messageOf} from '../lib/error.ts'
import {restrictToOwner} from './data-directory.ts'

/** Empty. Opened by SQLite only: closing it through any other descriptor would drop the lock. */
export const LOCK_FILE = 'belfry.lock'

const SQLITE_BUSY = 5

export type HeldLock = Extract<DirectoryLock, {readonly ok: true}>

export type DirectoryLock =
  /** `release` is idempotent. */
  | {readonly ok: true; release(): void}
  /** `isHeld`: another process has it now. */
  | {readonly ok: false; readonly isHeld: boolean; readonly problem: string}

/** `directory` must exist. Does not wait. */
export function lockDirectory(directory: string): DirectoryLock {
  try {
    const file = join(directory, LOCK_FILE)
    const lock = new DatabaseSync(file, {timeout: 0})
    try {
      restrictToOwner(file)
      lock.exec('BEGIN EXCLUSIVE')
      return {ok: true, release: () => void (lock.isOpen && lock.close())}
    } catch (error) {
      lock.close()
      throw error
    }
  } catch (error) {
    const isHeld = isBusy(error)
    const why = isHeld
      ? 'is held by another Belfry process. Stop that process or choose another directory with --data'
      : `cannot be used: ${messageOf(error)}`
    return {ok: false, isHeld, problem: `The data directory ${directory} ${why}.`}
  }
}

function isBusy(error: unknown): boolean {
  return (
    error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_BUSY
  )
}
