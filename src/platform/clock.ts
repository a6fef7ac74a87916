/**
 * System clock behind the Clock port. One of the few places that may read a clock or set a timer: the code
 * above takes a `Clock`, so that a simulation can replace it. It never decides anything.
 */
import type {Clock, Timer} from '../ports/runtime.ts'

/** The platform keeps a timer's delay in a signed 32-bit number; a longer delay would fire at once. */
const TIMER_MAX_MS = 2 ** 31 - 1

/** Wall clock, monotonic clock and timers of this process. Timers keep the process alive until cancelled. */
export function systemClock(): Clock {
  return {
    now: () => Date.now(),
    monotonicMs: () => performance.now(),
    after: (delayMs, callback) => startTimer(delayMs, callback),
  }
}

/**
 * Re-arms until the monotonic clock reaches the deadline: the platform limits a timer to 2^31 ms, and may
 * fire a fraction of a millisecond early, which the port forbids.
 */
function startTimer(delayMs: number, callback: () => void): Timer {
  if (delayMs <= 0) {
    // The shortest timer of the platform is 1 ms; work that continues at once need not wait for it.
    const immediate = setImmediate(callback)
    return {cancel: () => clearImmediate(immediate)}
  }
  const deadline = performance.now() + delayMs
  let timeout: NodeJS.Timeout
  const arm = () => {
    const leftMs = Math.ceil(deadline - performance.now())
    timeout = setTimeout(fire, Math.min(Math.max(leftMs, 0), TIMER_MAX_MS))
  }
  const fire = () => {
    if (performance.now() >= deadline) callback()
    else arm()
  }
  arm()
  return {cancel: () => clearTimeout(timeout)}
}
