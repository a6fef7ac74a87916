/**
 * The prune step, the leader's: lets go what retention allows, a bounded piece at a time so that it
 * never holds up a launch. Walks all jobs in rounds; what a crash interrupts the next round finds
 * again.
 */
import type {Clock} from '../ports/clock.ts'
import type {Events} from '../ports/events.ts'
import type {LeaderStore, PruneRequest} from '../ports/leader-store.ts'
import {TermOver} from '../ports/store-failure.ts'
import {Loop} from '../std/loop.ts'
import type {Service} from '../std/service.ts'

export interface PruneOptions {
  readonly store: Pick<LeaderStore, 'prune'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly events: Events
  readonly keep: Pick<
    PruneRequest,
    'keepLaunches' | 'keepUnlaunched' | 'keepMs' | 'keepOutputBytes'
  >
}

/** One piece: small enough to be one short transaction. */
const JOBS_PER_PIECE = 200
const ROWS_PER_PIECE = 2_000
/** Between pieces of a round, so that other writes go first. */
const PIECE_PAUSE_MS = 50
/** Between rounds: history may exceed its limits by what runs in this time. */
const ROUND_PAUSE_MS = 10_000

export class PruneService implements Service {
  readonly #options: PruneOptions
  readonly #loop: Loop
  #afterJobId = 0

  constructor(options: PruneOptions) {
    this.#options = options
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#piece(),
      failed: (error) => {
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'prune', message: String(error)})
      },
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #piece(): Promise<number> {
    const {store, term, keep} = this.#options
    const {nextJobId, more} = await store.prune({
      ...keep,
      term,
      afterJobId: this.#afterJobId,
      jobLimit: JOBS_PER_PIECE,
      rowLimit: ROWS_PER_PIECE,
    })
    if (more) return PIECE_PAUSE_MS
    this.#afterJobId = nextJobId
    return nextJobId === 0 ? ROUND_PAUSE_MS : PIECE_PAUSE_MS
  }
}
