/**
 * Time, as everything above `system/` sees it: nothing else may read a clock or set a timer, so the
 * simulator can turn time itself. A `…At` by `now()` is wall time and decides nothing on a cluster;
 * lengths are measured by `monotonicMs()`.
 */

export interface Timer {
  /** Idempotent; after it returns the callback will not run. */
  cancel(): void
}

export interface Clock {
  /** Wall clock, integer ms since the epoch. May jump. */
  now(): number
  /** Never goes back; fractional ms since some arbitrary start. */
  monotonicMs(): number
  /**
   * Calls `callback` once, no earlier than `delayMs` from now. Any length: adapters clamp and re-arm
   * beyond 2^31 ms.
   */
  after(delayMs: number, callback: () => void): Timer
}
