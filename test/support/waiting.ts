/**
 * Bounded waits for other processes: poll until a condition holds, and name it on timeout. For real processes
 * only; tests with a virtual clock advance it instead.
 */
import {setTimeout as pause} from 'node:timers/promises'

/** Each look may ask a server or read the process table: a long wait looks less often. */
const LOOK_EVERY_MIN_MS = 25
const LOOK_EVERY_MAX_MS = 100
/** The pause is this share of the time waited so far. */
const LOOK_SHARE = 1 / 20
/** Default limit: generous, for a busy machine. */
export const SOON_MS = 20_000

/** Polls `probe` until it returns something other than `undefined` or `false`. */
export async function until<Value>(
  what: string,
  probe: () => Value | undefined | false | Promise<Value | undefined | false>,
  withinMs = SOON_MS,
): Promise<Value> {
  const startedAt = performance.now()
  for (;;) {
    const value = await probe()
    if (value !== undefined && value !== false) return value
    const waitedMs = performance.now() - startedAt
    if (waitedMs > withinMs) throw new Error(`not within ${withinMs} ms: ${what}`)
    const pauseMs = waitedMs * LOOK_SHARE
    await pause(Math.min(LOOK_EVERY_MAX_MS, Math.max(LOOK_EVERY_MIN_MS, pauseMs)))
  }
}

export async function within<Value>(
  promise: Promise<Value>,
  what: string,
  withinMs: number,
): Promise<Value> {
  const timer = new AbortController()
  const late = pause(withinMs, undefined, {signal: timer.signal}).then(() => {
    throw new Error(`not within ${withinMs} ms: ${what}`)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    timer.abort()
    late.catch(() => undefined)
  }
}
