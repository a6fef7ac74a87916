/**
 * Limit on lists without a limit: a list of all jobs holds them in memory until its client has read them.
 * Only a few are read or sent at the same time; further requests wait for a moment, then they are refused.
 */
import {DomainError} from '../../core/errors.ts'
import type {Clock} from '../../ports/runtime.ts'
import {LONG_LIST_WAIT_MS, LONG_LISTS_WAITING_MAX} from '../options.ts'

const RETRY_AFTER_SECONDS = 5

export class LongLists {
  readonly #clock: Clock
  readonly #placesMax: number
  #taken = 0
  /** Requests that wait for a place, in the order they came. */
  readonly #waiting = new Set<() => void>()

  constructor(clock: Clock, placesMax: number) {
    this.#clock = clock
    this.#placesMax = placesMax
  }

  /**
   * Takes a place. The result releases it; idempotent. Call it when the rows are no longer in memory. Throws
   * `too_many_lists`.
   */
  async enter(): Promise<() => void> {
    if (this.#taken < this.#placesMax) this.#taken += 1
    else await this.#wait()
    let isReleased = false
    return () => {
      if (isReleased) return
      isReleased = true
      this.#release()
    }
  }

  #wait(): Promise<void> {
    if (this.#waiting.size >= LONG_LISTS_WAITING_MAX) throw this.#tooMany()
    return new Promise((resolve, reject) => {
      const enter = () => {
        timer.cancel()
        resolve()
      }
      const timer = this.#clock.after(LONG_LIST_WAIT_MS, () => {
        this.#waiting.delete(enter)
        reject(this.#tooMany())
      })
      this.#waiting.add(enter)
    })
  }

  /** Passes the place on to the request that waits longest. */
  #release(): void {
    const [next] = this.#waiting
    if (next === undefined) {
      this.#taken -= 1
      return
    }
    this.#waiting.delete(next)
    next()
  }

  #tooMany(): DomainError {
    return new DomainError(
      'too_many_lists',
      `The list cannot be sent: ${this.#placesMax} lists without _end are in progress. ` +
        'Retry later, or request pages with _start and _end.',
      {retryAfterSeconds: RETRY_AFTER_SECONDS},
    )
  }
}
