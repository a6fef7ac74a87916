/**
 * How many executions a node claims at once, and the pauses between its claims. Each claim costs a commit, so
 * under load a claim waits until it is worth one. While the leader records a burst, claims are few and small.
 */
import type {Limits} from '../config/limits.ts'
import type {Clock, Wakeup} from '../ports/runtime.ts'
import {Bursts} from './bursts.ts'

export interface ClaimPaceOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly wakeup: Pick<Wakeup, 'subscribe'>
  readonly slots: number
  readonly limits: Pick<Limits, 'claimBatchMax' | 'claimPauseMs' | 'burstClaimMax' | 'burstPauseMs'>
}

export class ClaimPace {
  readonly #options: ClaimPaceOptions
  readonly #bursts: Bursts
  /** Monotonic. */
  #claimedAt = -Infinity
  /** The last claim left due work behind: more than fitted. */
  #isMoreDue = false

  constructor(options: ClaimPaceOptions) {
    this.#options = options
    this.#bursts = new Bursts(options)
  }

  start(): void {
    this.#bursts.start()
  }

  stop(): void {
    this.#bursts.stop()
  }

  /** Executions to claim now, of `room` that there is room for. */
  countOf(room: number): number {
    const {claimBatchMax, burstClaimMax} = this.#options.limits
    return Math.min(room, this.#isBurst ? burstClaimMax : claimBatchMax)
  }

  /** Pause before the next claim; 0 = none. */
  pauseMs(room: number): number {
    const {clock, slots, limits} = this.#options
    const sinceMs = clock.monotonicMs() - this.#claimedAt
    if (this.#isBurst) return Math.max(0, limits.burstPauseMs - sinceMs)
    const isWorthACommit = room >= Math.min(Math.ceil(slots / 4), limits.claimBatchMax / 4)
    // More work is due than fits, or nothing fits.
    if (isWorthACommit || (room > 0 && !this.#isMoreDue)) return 0
    return Math.max(0, limits.claimPauseMs - sinceMs)
  }

  /** A claim is sent now. */
  sent(): void {
    this.#claimedAt = this.#options.clock.monotonicMs()
  }

  replied(isMoreDue: boolean): void {
    this.#isMoreDue = isMoreDue
  }

  get #isBurst(): boolean {
    return this.#bursts.leftMs > 0
  }
}
