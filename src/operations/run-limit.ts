/**
 * Rate limit of run requests, by the holder of a token and job. It bounds what a loop out of control starts,
 * and never delays a caller that waits for its runs. Each server counts for itself.
 */
import {DomainError} from '../core/errors.ts'
import {TokenBuckets} from '../lib/token-buckets.ts'
import type {Clock} from '../ports/runtime.ts'

/** A script that starts many runs at once is not delayed; a loop out of control starts few before it is. */
const BURST_MS = 10_000

export class RunLimit {
  readonly #perMinute: number
  readonly #buckets: TokenBuckets

  constructor(clock: Clock, perMinute: number) {
    this.#perMinute = perMinute
    this.#buckets = new TokenBuckets(() => clock.monotonicMs(), perMinute, BURST_MS)
  }

  /** Counts one request that is about to be stored. Throws `too_many_runs`. */
  take(holder: string, job: string): void {
    const retryAfterSeconds = this.#buckets.take(`${holder}\n${job}`)
    if (retryAfterSeconds > 0) throw tooManyRuns(job, this.#perMinute, retryAfterSeconds)
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
