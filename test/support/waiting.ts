/**
 * Bounded waits for other processes: poll until a condition holds, and name it on timeout. For real processes
 * only; tests with a virtual clock advance it instead.
 */
import {setTimeout as pause} from 'node:timers/promises'

const LOOK_EVERY_MS = 25
/** Default limit: generous, for a busy machine. */
export const SOON_MS = 20_000

/** Polls `probe` until it returns something other than `undefined` or `false`. */
export async function until<Value>(
  what: string,
  probe: () => Value | undefined | false | Promise<Value | undefined | false>,
  withinMs = SOON_MS,
): Promise<Value> {
  const deadline = performance.now() + withinMs
  for (;;) {
    const value = await probe()
    if (value !== undefined && value !== false) return value
    if (performance.now() > deadline) throw new Error(`not within ${withinMs} ms: ${what}`)
    await pause(LOOK_EVERY_MS)
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
