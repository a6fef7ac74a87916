/**
 * Rate limit of run requests, by caller and job: a token bucket that holds the requests of one minute. It
 * bounds what a loop out of control starts, and never delays a caller that waits for its runs. Each server
 * counts for itself.
 */
import {DomainError} from '../core/errors.ts'
import type {Clock} from '../ports/runtime.ts'

const MINUTE_MS = 60_000
/** Bounds the memory. The bucket that was used least recently is dropped first. */
const BUCKETS_MAX = 10_000

interface Bucket {
  /** Requests that it had left at `at`. */
  readonly left: number
  readonly at: number
}

export class RunLimit {
  readonly #clock: Clock
  readonly #perMinute: number
  /** By caller and job, the least recently used first. */
  readonly #buckets = new Map<string, Bucket>()

  constructor(clock: Clock, perMinute: number) {
    this.#clock = clock
    this.#perMinute = perMinute
  }

  /** Counts one request that is about to be stored. Throws `too_many_runs`. */
  take(accessor: string, job: string): void {
    const key = `${accessor}\n${job}`
    const now = this.#clock.monotonicMs()
    const everyMs = MINUTE_MS / this.#perMinute
    const bucket = this.#buckets.get(key) ?? {left: this.#perMinute, at: now}
    const left = Math.min(this.#perMinute, bucket.left + (now - bucket.at) / everyMs)
    if (left < 1) throw tooManyRuns(job, this.#perMinute, ((1 - left) * everyMs) / 1000)
    this.#buckets.delete(key)
    if (this.#buckets.size >= BUCKETS_MAX) {
      const [oldest] = this.#buckets.keys()
      this.#buckets.delete(oldest!)
    }
    this.#buckets.set(key, {left: left - 1, at: now})
  }
}

function tooManyRuns(job: string, perMinute: number, retryAfterSeconds: number): DomainError {
  return new DomainError(
    'too_many_runs',
    `The job cannot run now: this token requested more than ${perMinute} runs of "${job}" in a minute. ` +
      'Retry later, or raise --run-rate.',
    {retryAfterSeconds},
  )
}
