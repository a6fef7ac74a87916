/**
 * Retention, leader only. `HistoryRetention` deletes launches, executions and output beyond the limits;
 * `MemberRetention` removes members that left or failed long ago. Both work in short transactions, so that
 * neither delays a launch.
 */
import type {Loop, Service} from '../lib/loop.ts'
import type {LeaderStore, PruneRequest} from '../ports/leader-store.ts'
import type {MemberStore} from '../ports/node-store.ts'
import {leaderLoop, type TermOptions} from './leader-loop.ts'

export interface HistoryRetentionOptions extends TermOptions {
  readonly store: Pick<LeaderStore, 'prune'>
  readonly keep: Pick<
    PruneRequest,
    'keepLaunches' | 'keepUnlaunched' | 'keepMs' | 'keepOutputBytes'
  >
  /** From the start of one round over all jobs to the start of the next. */
  readonly allEveryMs: number
}

/** One batch: small enough for one short transaction. */
const JOBS_PER_BATCH = 200
const ROWS_PER_BATCH = 2_000
/** Pause between batches of a round: other writes go first. */
const BATCH_PAUSE_MS = 50
/** Pause between rounds. History of active jobs exceeds its limits by the launches of this time. */
const ROUND_PAUSE_MS = 10_000

/**
 * Works in rounds over the jobs launched since the last round, because most jobs are idle most of the time.
 * A rare round over all jobs finds rows that only became too old, and launches that closed after their round.
 * A crash leaves a round unfinished: the first round of the next term is over all jobs.
 */
export class HistoryRetention implements Service {
  readonly #options: HistoryRetentionOptions
  readonly #loop: Loop
  #round: PruneRequest['round'] = 'all'
  /** Position within the round. */
  #after = 0
  /** Monotonic start of the last round over all jobs. */
  #allBeganAt = -Infinity
  /** Newest launch group when that round began: the next rounds begin after it. `null` = no batch yet. */
  #launchedAfter: number | null = null

  constructor(options: HistoryRetentionOptions) {
    this.#options = options
    this.#loop = leaderLoop('history_retention', options, {step: () => this.#pruneBatch()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #pruneBatch(): Promise<number> {
    const {store, term, keep, clock} = this.#options
    if (this.#launchedAfter === null) this.#allBeganAt = clock.monotonicMs()
    const {next, isRoundOver, newestGroup, more} = await store.prune({
      ...keep,
      term,
      round: this.#round,
      after: this.#after,
      jobLimit: JOBS_PER_BATCH,
      rowLimit: ROWS_PER_BATCH,
    })
    this.#launchedAfter ??= newestGroup
    if (more) return BATCH_PAUSE_MS
    this.#after = next
    if (!isRoundOver) return BATCH_PAUSE_MS
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

export interface MemberRetentionOptions extends TermOptions {
  readonly store: Pick<MemberStore, 'pruneMembers'>
  readonly leftAfterMs: number
  readonly failedAfterMs: number
  readonly intervalMs: number
}

/** Members removed in one transaction: short even where thousands of agents come and go. */
const MEMBERS_PER_BATCH = 100

/**
 * Removes members that left or failed long ago. The store keeps a member with pending or running executions
 * until they are reassigned or ended. A removed node that comes back joins again.
 */
export class MemberRetention implements Service {
  readonly #options: MemberRetentionOptions
  readonly #loop: Loop

  constructor(options: MemberRetentionOptions) {
    this.#options = options
    this.#loop = leaderLoop('member_retention', options, {step: () => this.#pruneBatch()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #pruneBatch(): Promise<number> {
    const {store, term, events, leftAfterMs, failedAfterMs, intervalMs} = this.#options
    const request = {term, leftAfterMs, failedAfterMs, limit: MEMBERS_PER_BATCH}
    const removed = await store.pruneMembers(request)
    for (const {name} of removed) events.emit('member_changed', {node: name, status: 'forgotten'})
    return removed.length === MEMBERS_PER_BATCH ? 0 : intervalMs
  }
}
