/**
 * Detects steps of the wall clock by comparing it with the monotonic clock, which never jumps, and a wrong
 * clock by comparing it with the store's. It only reports them: the store's clock decides which jobs are due.
 * A step forward works like an outage, and after a step back `next` is still the first undecided time.
 */
import type {Limits} from '../config/limits.ts'
import type {Loop, Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import {stepLoop} from './step-loop.ts'

export interface ClockWatchOptions {
  readonly clock: Clock
  readonly events: Events
  readonly limits: Pick<Limits, 'clockStepMs' | 'clockLookMs'>
  /** Clock of the store minus monotonic clock; `null` = not seen yet. */
  readonly storeOffsetMs: () => number | null
}

export class ClockWatch implements Service {
  readonly #options: ClockWatchOptions
  readonly #loop: Loop
  #offsetMs: number
  /** How often in a row the clocks differed. A process that stood still compares an old time once. */
  #differences = 0

  constructor(options: ClockWatchOptions) {
    this.#options = options
    this.#offsetMs = this.#offset()
    const {clock, events} = options
    this.#loop = stepLoop('clock_watch', {clock, events, step: () => this.#compare()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  #offset(): number {
    const {clock} = this.#options
    return clock.now() - clock.monotonicMs()
  }

  async #compare(): Promise<number> {
    const {events, limits} = this.#options
    const offsetMs = this.#offset()
    const byMs = Math.round(offsetMs - this.#offsetMs)
    if (Math.abs(byMs) > limits.clockStepMs) events.emit('clock_stepped', {by_ms: byMs})
    this.#offsetMs = offsetMs
    this.#compareWithStore(offsetMs)
    return limits.clockLookMs
  }

  #compareWithStore(offsetMs: number): void {
    const {events, limits, storeOffsetMs} = this.#options
    const byMs = Math.round(offsetMs - (storeOffsetMs() ?? offsetMs))
    this.#differences = Math.abs(byMs) > limits.clockStepMs ? this.#differences + 1 : 0
    if (this.#differences === 2) events.emit('clock_differs', {by_ms: byMs})
  }
}
