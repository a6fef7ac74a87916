/**
 * Bursts: the leader is behind with recording planned times and notifies all servers while it catches up.
 * Other work then takes little of the processors and of the database. A burst ends soon after its last
 * notification, also if the leader dies.
 */
import type {Clock, Wakeup} from '../ports/runtime.ts'

/** A burst ends this long after its last notification: longer than the leader takes for a page. */
const BURST_MS = 500

export interface BurstsOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly wakeup: Pick<Wakeup, 'subscribe'>
}

export class Bursts {
  readonly #options: BurstsOptions
  #unsubscribe: () => void = () => {}
  #until = -Infinity

  constructor(options: BurstsOptions) {
    this.#options = options
  }

  start(): void {
    const {clock, wakeup} = this.#options
    this.#unsubscribe = wakeup.subscribe('burst', () => {
      this.#until = clock.monotonicMs() + BURST_MS
    })
  }

  stop(): void {
    this.#unsubscribe()
  }

  /** Time until the burst ends, as far as this server knows; 0 = there is none. */
  get leftMs(): number {
    return Math.max(0, this.#until - this.#options.clock.monotonicMs())
  }
}
