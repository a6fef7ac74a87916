/** Repeated requests of a command that waits: the restart of a server only delays it. */
import {CallFailed} from './errors.ts'

/** Failures in a row; several times as long as the restart of a server takes. */
export const FAILURES_MAX = 30
/** Interval between two requests. */
export const RETRY_MS = 1_000

/**
 * Calls `look` until it returns a value. `wait` gets the number of failures in a row. Throws an error that a
 * repetition cannot cure, or that stays.
 */
export async function poll<Value>(
  look: () => Promise<Value | null>,
  wait: (failures: number) => Promise<void>,
): Promise<Value> {
  for (let failures = 0; ; await wait(failures)) {
    try {
      const value = await look()
      if (value !== null) return value
      failures = 0
    } catch (error) {
      failures += 1
      if (!mayPass(error) || failures > FAILURES_MAX) throw error
    }
  }
}

function mayPass(error: unknown): boolean {
  if (!(error instanceof CallFailed)) return false
  return error.status === null || error.status >= 500 || error.status === 429
}
