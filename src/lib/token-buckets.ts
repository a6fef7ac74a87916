/**
 * Rate limits, one for each key: a token bucket that refills evenly. A full one holds what refills in the
 * time of a burst, and at least one. A bucket that was dropped to bound the memory is full again.
 */

const MINUTE_MS = 60_000
/** Bounds the memory. The bucket that was used least recently is dropped first. */
const BUCKETS_MAX = 10_000

interface Bucket {
  /** Tokens left at `at`. */
  readonly left: number
  readonly at: number
}

export class TokenBuckets {
  readonly #now: () => number
  readonly #perMinute: number
  /** Tokens in a full bucket. */
  readonly #most: number
  /** The least recently used first. */
  readonly #buckets = new Map<string, Bucket>()

  /**
   * `now`: monotonic, in ms. `burstMs`: a key that was not used for long may take as many at once as refill
   * in this time. So in any minute it takes at most `perMinute`, and those of one burst.
   */
  constructor(now: () => number, perMinute: number, burstMs = MINUTE_MS) {
    this.#now = now
    this.#perMinute = perMinute
    this.#most = Math.max(1, Math.floor((perMinute * burstMs) / MINUTE_MS))
  }

  /** Takes one. Returns 0; or takes none, and returns the seconds until there is one. */
  take(key: string): number {
    const now = this.#now()
    const everyMs = MINUTE_MS / this.#perMinute
    const bucket = this.#buckets.get(key) ?? {left: this.#most, at: now}
    const left = Math.min(this.#most, bucket.left + (now - bucket.at) / everyMs)
    if (left < 1) return ((1 - left) * everyMs) / 1000
    this.#buckets.delete(key)
    if (this.#buckets.size >= BUCKETS_MAX) {
      const [oldest] = this.#buckets.keys()
      this.#buckets.delete(oldest!)
    }
    this.#buckets.set(key, {left: left - 1, at: now})
    return 0
  }
}
