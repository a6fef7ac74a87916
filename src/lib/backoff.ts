/**
 * Exponential backoff: how long to wait before the next try of something that failed. The delay
 * doubles with each failure up to a cap, and jitter spreads many clients over time. Pure: the random
 * value is an argument, and the caller owns the timer.
 */
import {assert} from './assert.ts'

export interface BackoffOptions {
  /** Delay after the first failure, before jitter. */
  readonly firstMs: number
  /** Largest delay, before jitter. */
  readonly maxMs: number
  /**
   * Each delay is multiplied by a random factor from `min` (inclusive) to `max` (exclusive):
   * `{min: 0.8, max: 1.2}` is ±20 %. Absent: no jitter.
   */
  readonly jitter?: {readonly min: number; readonly max: number}
}

/**
 * Delay in ms after `failures` (≥ 1) failures in a row. `random` in [0, 1) places the delay within
 * the jitter; without jitter it has no effect. Not rounded.
 */
export function backoffMs(options: BackoffOptions, failures: number, random = 0): number {
  const {firstMs, maxMs, jitter = NO_JITTER} = options
  assert(firstMs > 0 && failures >= 1, 'a backoff needs a positive delay and a failure')
  const delayMs = Math.min(maxMs, firstMs * 2 ** (failures - 1))
  return delayMs * (jitter.min + (jitter.max - jitter.min) * random)
}

const NO_JITTER = {min: 1, max: 1}

/** Counts consecutive failures of one activity. */
export class Backoff {
  readonly #options: BackoffOptions
  #failures = 0

  constructor(options: BackoffOptions) {
    this.#options = options
  }

  /** Failures since the last `reset`. */
  get failures(): number {
    return this.#failures
  }

  /** Records a failure and returns the delay before the next try, see `backoffMs`. */
  failedMs(random = 0): number {
    this.#failures += 1
    return backoffMs(this.#options, this.#failures, random)
  }

  /** Records a success: the next failure waits `firstMs` again. */
  reset(): void {
    this.#failures = 0
  }
}
