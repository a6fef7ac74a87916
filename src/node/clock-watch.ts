/**
 * Notices when the wall clock was set: it is compared with the monotonic one, which never jumps. Only
 * tells; what is due is decided by the store's clock, a step forward is an outage, and after a step
 * back `next` is already the first undecided time.
 */
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'

export interface ClockWatchOptions {
  readonly clock: Clock
  readonly events: Events
  /** A difference up to this is the ordinary work of a time service. */
  readonly stepMinMs: number
  readonly lookEveryMs: number
}

export class ClockWatch implements Service {
  readonly #options: ClockWatchOptions
  readonly #loop: Loop
  #offsetMs: number

  constructor(options: ClockWatchOptions) {
    this.#options = options
    this.#offsetMs = this.#offset()
    const failed = (error: unknown) =>
      options.events.emit('step_failed', {step: 'clock_watch', message: String(error)})
    this.#loop = new Loop({clock: options.clock, step: () => this.#look(), failed})
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

  async #look(): Promise<number> {
    const {events, stepMinMs, lookEveryMs} = this.#options
    const offsetMs = this.#offset()
    const byMs = Math.round(offsetMs - this.#offsetMs)
    if (Math.abs(byMs) > stepMinMs) events.emit('clock_stepped', {by_ms: byMs})
    this.#offsetMs = offsetMs
    return lookEveryMs
  }
}
