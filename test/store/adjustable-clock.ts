/**
 * A clock that only a test advances. Pauses of zero length still end, after other work has run.
 */
import type {Clock, Random, Timer} from '../../src/ports/runtime.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)

export class TurnedClock implements Clock {
  #now = STARTED_AT

  now(): number {
    return this.#now
  }

  monotonicMs(): number {
    return this.#now
  }

  after(delayMs: number, callback: () => void): Timer {
    if (delayMs > 0) throw new Error('the store waits for nothing')
    const immediate = setImmediate(callback)
    return {cancel: () => clearImmediate(immediate)}
  }

  advance(ms: number): void {
    this.#now += ms
  }

  /** Returns to the time at which every clock starts. */
  restart(): void {
    this.#now = STARTED_AT
  }
}

/** Different ids, the same in every run. */
export function countingIds(): Pick<Random, 'id'> {
  let count = 0
  return {id: () => `id-${(count += 1)}`}
}
