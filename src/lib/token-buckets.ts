/**
 * Rate limits, one for each key: a token bucket that holds as many as are allowed in a minute. After a
 * minute without use it is full, and so is one that was dropped to bound the memory.
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
  /** The least recently used first. */
  readonly #buckets = new Map<string, Bucket>()

  /** `now`: monotonic, in ms. */
  constructor(now: () => number, perMinute: number) {
    this.#now = now
    this.#perMinute = perMinute
  }

  /** Takes one. Returns 0; or takes none, and returns the seconds until there is one. */
  take(key: string): number {
    const now = this.#now()
    const everyMs = MINUTE_MS / this.#perMinute
    const bucket = this.#buckets.get(key) ?? {left: this.#perMinute, at: now}
    const left = Math.min(this.#perMinute, bucket.left + (now - bucket.at) / everyMs)
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
