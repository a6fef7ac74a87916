/**
 * Holds planned times back when the store's clock is suddenly far ahead. A wrong clock would decide every
 * planned time up to its date, and nothing would run until then. The monotonic clock tells a step from time
 * that passed: until the step has stood for a while, time continues from before it. A step back is believed
 * at once.
 */
export interface ClockGuardLimits {
  /** A shorter step ahead is believed: it is like an outage of that length. */
  readonly clockFarMs: number
  /** A step that stands for this long is believed. */
  readonly clockConfirmMs: number
}

/**
 * The guard lives as long as the process, because a step often comes with a new leader: the lease expires by
 * the same clock.
 */
export class ClockGuard {
  readonly #limits: ClockGuardLimits
  /** Store's clock minus monotonic clock, as believed. `null` = not observed yet. */
  #offsetMs: number | null = null
  #newestOffsetMs: number | null = null
  /** The offset after a step ahead, and the monotonic instant it was first seen. */
  #step: {readonly offsetMs: number; readonly since: number} | null = null

  constructor(limits: ClockGuardLimits) {
    this.#limits = limits
  }

  /** How far the store's clock is ahead of the believed one; 0 = it is believed. */
  get heldMs(): number {
    return this.#step === null ? 0 : this.#step.offsetMs - this.#offsetMs!
  }

  /** Store's clock minus monotonic clock, as last seen, believed or not; `null` = not seen yet. */
  get storeOffsetMs(): number | null {
    return this.#newestOffsetMs
  }

  /** The believed time, given the store's clock and the monotonic clock of this process. */
  trustedNow(now: number, monotonicMs: number): number {
    const {clockFarMs, clockConfirmMs} = this.#limits
    const offsetMs = now - monotonicMs
    this.#newestOffsetMs = offsetMs
    if (this.#offsetMs === null || offsetMs - this.#offsetMs <= clockFarMs) {
      this.#step = null
      this.#offsetMs = offsetMs
      return now
    }
    // Another far step: the wait for this one begins.
    if (this.#step === null || Math.abs(offsetMs - this.#step.offsetMs) > clockFarMs)
      this.#step = {offsetMs, since: monotonicMs}
    if (monotonicMs - this.#step.since >= clockConfirmMs) {
      this.#step = null
      this.#offsetMs = offsetMs
      return now
    }
    return Math.floor(monotonicMs + this.#offsetMs)
  }
}
