/**
 * Retention, leader only. `HistoryRetention` deletes launches, executions and output beyond the limits;
 * `MemberRetention` removes members that left or failed long ago; `AuditRetention` deletes old entries of the
 * audit log. All work in short transactions, so that none delays a launch.
 */
import type {Limits} from '../config/limits.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {Bursts} from '../node/bursts.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {AuditStore} from '../ports/audit-store.ts'
import type {LeaderStore, PruneRequest, PruneResult} from '../ports/leader-store.ts'
import type {MemberStore} from '../ports/node-store.ts'
import type {Wakeup} from '../ports/runtime.ts'
import type {TermOptions} from './leadership.ts'

export interface HistoryRetentionOptions extends TermOptions {
  readonly store: Pick<LeaderStore, 'prune'>
  readonly wakeup: Pick<Wakeup, 'subscribe'>
  readonly keep: Pick<
    PruneRequest,
    'keepLaunches' | 'keepExecutions' | 'keepMs' | 'keepOutputBytes'
  >
  /** `pruneAllMs`: from the start of one round over all jobs to the start of the next. */
  readonly limits: Pick<Limits, 'unlaunchedRowsKept' | 'pruneAllMs'>
}

/** Batches: each small enough for one short transaction. A launch costs less to visit than a job. */
const JOBS_PER_BATCH = 500
const LAUNCHES_PER_BATCH = 1_000
const ROWS_PER_BATCH = 2_000
/** Longest pause between batches of a round. */
const BATCH_PAUSE_MAX_MS = 1_000
/** Pause between batches while the leader is behind with planned times. */
const BURST_PAUSE_MS = 5_000
/** Pause between rounds. History of active jobs exceeds its limits by the launches of this time. */
const ROUND_PAUSE_MS = 10_000

/**
 * Works in rounds over the jobs launched since the last round, because most jobs are idle most of the time. A
 * rare round over all jobs finds rows that only became too old, and launches that closed after their round.
 * Deleted jobs, output and other rows have rounds of their own. The three kinds run beside each other, so
 * that a long round never keeps another kind from its work. A crash leaves a round unfinished: the next term
 * begins with all jobs.
 */
export class HistoryRetention implements Service {
  readonly #options: HistoryRetentionOptions
  readonly #loops: readonly Loop[]
  readonly #bursts: Bursts
  /**
   * Position within the round over all jobs, and its monotonic start; `null` = it begins with the next batch.
   */
  #allAfter = 0
  #allBeganAt: number | null = null
  /** The rounds over launches continue after this number; `null` = no batch over all jobs yet. */
  #launchedAfter: number | null = null

  constructor(options: HistoryRetentionOptions) {
    this.#options = options
    this.#bursts = new Bursts(options)
    const loop = (step: () => Promise<number>) => stepLoop('history_retention', {...options, step})
    this.#loops = [
      loop(() => this.#pruneAll()),
      loop(() => this.#pruneLaunched()),
      loop(() => this.#pruneOther()),
    ]
  }

  start(): void {
    this.#bursts.start()
    for (const loop of this.#loops) loop.start()
  }

  async stop(): Promise<void> {
    this.#bursts.stop()
    await Promise.all(this.#loops.map((loop) => loop.stop()))
  }

  async #pruneAll(): Promise<number> {
    const {clock, limits} = this.#options
    this.#allBeganAt ??= clock.monotonicMs()
    const {result, pauseMs} = await this.#prune('all', this.#allAfter, JOBS_PER_BATCH)
    // Later launches are those of the rounds over launches.
    this.#launchedAfter ??= result.newestGroup
    if (result.more) return pauseMs
    this.#allAfter = result.next
    if (!result.isRoundOver) return pauseMs
    const nextMs = this.#allBeganAt + limits.pruneAllMs - clock.monotonicMs()
    this.#allAfter = 0
    this.#allBeganAt = null
    return Math.max(pauseMs, nextMs)
  }

  async #pruneLaunched(): Promise<number> {
    if (this.#launchedAfter === null) return ROUND_PAUSE_MS
    const round = this.#prune('launched', this.#launchedAfter, LAUNCHES_PER_BATCH)
    const {result, pauseMs} = await round
    if (result.more) return pauseMs
    this.#launchedAfter = result.next
    return result.isRoundOver ? ROUND_PAUSE_MS : pauseMs
  }

  async #pruneOther(): Promise<number> {
    const {result, pauseMs} = await this.#prune('other', 0, 0)
    return result.more ? pauseMs : ROUND_PAUSE_MS
  }

  /**
   * Removes a batch. The pause after it is as long as the batch took, which includes its wait for other
   * writes: in an idle store retention works without a limit, in a busy one at most half of the time.
   */
  async #prune(
    round: PruneRequest['round'],
    after: number,
    jobLimit: number,
  ): Promise<{readonly result: PruneResult; readonly pauseMs: number}> {
    const {store, term, keep, limits, clock} = this.#options
    const startedAt = clock.monotonicMs()
    const batch = {round, after, jobLimit, rowLimit: ROWS_PER_BATCH}
    const keepUnlaunched = limits.unlaunchedRowsKept
    const result = await store.prune({...keep, keepUnlaunched, term, ...batch})
    const tookMs = clock.monotonicMs() - startedAt
    const isBurst = this.#bursts.leftMs > 0
    return {result, pauseMs: isBurst ? BURST_PAUSE_MS : Math.min(tookMs, BATCH_PAUSE_MAX_MS)}
  }
}

export interface MemberRetentionOptions extends TermOptions {
  readonly store: Pick<MemberStore, 'pruneMembers'>
  readonly leftAfterMs: number
  readonly failedAfterMs: number
  readonly limits: Pick<Limits, 'memberRetentionIntervalMs'>
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
    this.#loop = stepLoop('member_retention', {...options, step: () => this.#pruneBatch()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #pruneBatch(): Promise<number> {
    const {store, term, events, leftAfterMs, failedAfterMs, limits} = this.#options
    const request = {term, leftAfterMs, failedAfterMs, limit: MEMBERS_PER_BATCH}
    const removed = await store.pruneMembers(request)
    for (const {name} of removed) events.emit('member_changed', {node: name, status: 'forgotten'})
    return removed.length === MEMBERS_PER_BATCH ? 0 : limits.memberRetentionIntervalMs
  }
}

export interface AuditRetentionOptions extends TermOptions {
  readonly store: Pick<AuditStore, 'pruneAudit'>
  readonly keepMs: number
  readonly keepEntries: number
  readonly keepBytes: number
}

const ENTRIES_PER_BATCH = 1_000
/** The log exceeds its limits by the entries of this time. */
const AUDIT_PAUSE_MS = 60_000
/** A flood of refused accesses must not delete the entries of changes. Some days of normal refusals. */
const REFUSED_KEPT = 10_000
/** Revisions to go back to before a bad week, at some kilobytes for each job. */
const REVISIONS_KEPT = 10

/** A crash leaves a round unfinished: the next term begins a new one. */
export class AuditRetention implements Service {
  readonly #options: AuditRetentionOptions
  readonly #loop: Loop
  #after = 0

  constructor(options: AuditRetentionOptions) {
    this.#options = options
    this.#loop = stepLoop('audit_retention', {...options, step: () => this.#pruneBatch()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  /** The pause after a batch is as long as the batch took, as for the history. */
  async #pruneBatch(): Promise<number> {
    const {store, term, keepMs, keepEntries, keepBytes, clock} = this.#options
    const startedAt = clock.monotonicMs()
    const fixed = {keepRefused: REFUSED_KEPT, keepRevisions: REVISIONS_KEPT}
    const limits = {keepMs, keepEntries, keepBytes, ...fixed}
    const batch = {after: this.#after, limit: ENTRIES_PER_BATCH}
    const {next, isRoundOver} = await store.pruneAudit({term, ...limits, ...batch})
    this.#after = isRoundOver ? 0 : next
    if (isRoundOver) return AUDIT_PAUSE_MS
    return Math.min(clock.monotonicMs() - startedAt, BATCH_PAUSE_MAX_MS)
  }
}
