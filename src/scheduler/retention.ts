/**
 * The prune step, the leader's: lets go what retention allows, a bounded piece at a time so that it
 * never holds up a launch. Goes in rounds over the jobs that were launched since the last one, because
 * most jobs are idle most of the time; seldom over all jobs, for what only time makes too old, and for
 * what closed after its round. What a crash interrupts the first round of the next term finds: over all.
 */
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {LeaderStore, PruneRequest} from '../ports/leader-store.ts'
import type {MemberStore} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

export interface HistoryRetentionOptions {
  readonly store: Pick<LeaderStore, 'prune'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly events: Events
  readonly keep: Pick<
    PruneRequest,
    'keepLaunches' | 'keepUnlaunched' | 'keepMs' | 'keepOutputBytes'
  >
  /** From the beginning of one round over all jobs to the next. */
  readonly allEveryMs: number
}

/** One piece: small enough to be one short transaction. */
const JOBS_PER_PIECE = 200
const ROWS_PER_PIECE = 2_000
/** Between pieces of a round, so that other writes go first. */
const PIECE_PAUSE_MS = 50
/** Between rounds: history of jobs that go on exceeds its limits by what runs in this time. */
const ROUND_PAUSE_MS = 10_000

export class HistoryRetention implements Service {
  readonly #options: HistoryRetentionOptions
  readonly #loop: Loop
  /** The round under way, and where it goes on. */
  #round: PruneRequest['round'] = 'all'
  #after = 0
  /** When the last round over all jobs began, by the monotonic clock. */
  #allBeganAt = -Infinity
  /** Where the rounds after it begin; `null` before its first piece. */
  #launchedAfter: number | null = null

  constructor(options: HistoryRetentionOptions) {
    this.#options = options
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#piece(),
      failed: (error) => {
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'history_retention', message: String(error)})
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
    const {store, term, keep, clock} = this.#options
    if (this.#launchedAfter === null) this.#allBeganAt = clock.monotonicMs()
    const {next, isRoundOver, newestGroup, more} = await store.prune({
      ...keep,
      term,
      round: this.#round,
      after: this.#after,
      jobLimit: JOBS_PER_PIECE,
      rowLimit: ROWS_PER_PIECE,
    })
    this.#launchedAfter ??= newestGroup
    if (more) return PIECE_PAUSE_MS
    this.#after = next
    if (!isRoundOver) return PIECE_PAUSE_MS
    this.#beginRound(this.#launchedAfter)
    return ROUND_PAUSE_MS
  }

  #beginRound(launchedAfter: number): void {
    const {clock, allEveryMs} = this.#options
    if (clock.monotonicMs() - this.#allBeganAt >= allEveryMs) {
      this.#round = 'all'
      this.#after = 0
      this.#launchedAfter = null
    } else if (this.#round === 'all') {
      this.#round = 'launched'
      this.#after = launchedAfter
    }
  }
}

/*
 * The forget step, the leader's: members that left or failed long ago are no longer listed. One that still
 * has something to run stays until the rescue step has dealt with that; one that is back after all joins
 * again.
 */

export interface MemberRetentionOptions {
  readonly store: Pick<MemberStore, 'pruneMembers'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly events: Events
  readonly leftAfterMs: number
  readonly failedAfterMs: number
  readonly lookEveryMs: number
}

/** Members forgotten in one transaction: short, also where thousands of agents come and go. */
const BATCH_MAX = 100

export class MemberRetention implements Service {
  readonly #options: MemberRetentionOptions
  readonly #loop: Loop

  constructor(options: MemberRetentionOptions) {
    this.#options = options
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#look(),
      failed: (error) => {
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'member_retention', message: String(error)})
      },
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #look(): Promise<number> {
    const {store, term, events, leftAfterMs, failedAfterMs, lookEveryMs} = this.#options
    const request = {term, leftAfterMs, failedAfterMs, limit: BATCH_MAX}
    const forgotten = await store.pruneMembers(request)
    for (const {name} of forgotten) events.emit('member_changed', {node: name, status: 'forgotten'})
    return forgotten.length === BATCH_MAX ? 0 : lookEveryMs
  }
}
