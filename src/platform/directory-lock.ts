/**
 * Holds a data directory for one process: an agent has no store whose lock would do it. The lock is a
 * transaction held open on a small database, the same file that a server locks, so that neither can start
 * where the other runs; the kernel gives it back however the process ends.
 */
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'

const LOCK_FILE = 'belfry.lock'
const SQLITE_BUSY = 5

export type DirectoryLock =
  | {readonly ok: true; release(): void}
  /** `problem` is one sentence. `isHeld`: a process has it now. */
  | {readonly ok: false; readonly isHeld: boolean; readonly problem: string}

/** `directory` is there and may be written. */
export function lockDirectory(directory: string): DirectoryLock {
  try {
    const lock = new DatabaseSync(join(directory, LOCK_FILE), {timeout: 0})
    try {
      lock.exec('BEGIN EXCLUSIVE')
      return {ok: true, release: () => lock.close()}
    } catch (error) {
      lock.close()
      throw error
    }
  } catch (error) {
    const isHeld = isBusy(error)
    const why = isHeld
      ? 'is held by another Belfry process; stop that one or choose another with --data'
      : `cannot be used: ${error instanceof Error ? error.message : String(error)}`
    return {ok: false, isHeld, problem: `The data directory ${directory} ${why}.`}
  }
}

function isBusy(error: unknown): boolean {
  return (
    error instanceof Error && 'errcode' in error && (Number(error.errcode) & 0xff) === SQLITE_BUSY
  )
}
