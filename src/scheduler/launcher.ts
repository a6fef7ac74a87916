/**
 * Launch step, leader only. Loads every due job and every waiting request, lets `core/launch` decide each,
 * and writes the decisions in one transaction a batch.
 *
 * Crash points: before the apply nothing has happened and the next pass finds the same work; after it the
 * rows are durable and the pending executions wait for their nodes. Notifications after the commit may be
 * lost: polling finds the work. Events are emitted at most once: never if the commit's reply is lost.
 */
import type {DueDecision, RequestDecision} from '../core/launch-record.ts'
import {decideDue, decideRequest, type PassContext} from '../core/launch.ts'
import type {DefaultTarget} from '../core/target.ts'
import type {Loop, Service} from '../lib/loop.ts'
import type {DecidedLaunch, DuePosition, LeaderStore} from '../ports/leader-store.ts'
import type {Random, Wakeup} from '../ports/runtime.ts'
import {leaderLoop, type TermOptions} from './leader-loop.ts'

export interface LauncherOptions extends TermOptions {
  readonly store: Pick<LeaderStore, 'loadDue' | 'loadRequests' | 'candidates' | 'applyLaunches'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly defaultZone: string
  readonly defaultTarget: DefaultTarget
  readonly lateAfterMs: number
  readonly targetWaitMs: number
  readonly catchUpMax: number
  /** Jobs or requests decided in one transaction. */
  readonly batchMax: number
  /** Longest wait between passes without a notification. */
  readonly pollMs: number
}

/** Shortest time between two passes over the requests that wait: keeps notifications cheap. */
const REVISIT_MS = 250
/** Pause after a conflict: immediate to a person, yet no busy loop if the conflict persists. */
const CONFLICT_PAUSE_MS = 20
/** Pause after a second conflict in a row: a bulk import locks its jobs for seconds. */
const CONFLICT_REPEATED_PAUSE_MS = 100

export class Launcher implements Service {
  readonly #options: LauncherOptions
  readonly #loop: Loop
  #unsubscribe: () => void = () => {}
  /**
   * Launch group up to which earlier passes have loaded all requests. Exception: a request committed after
   * one with a larger number. Only a revisit, which begins at 0, finds it.
   */
  #seenGroup = 0
  /** Monotonic start of the next revisit: a round over all requests that wait. */
  #revisitAt = -Infinity
  /** Launch group after which the next page of the revisit begins; `null` = no revisit. */
  #revisiting: number | null = null
  #hasConflict = false
  /**
   * Due jobs up to here were loaded in this round; `null` = the next page is the first. Jobs that an import
   * keeps locked stay at the front: the jobs behind them must not wait.
   */
  #dueAfter: DuePosition | null = null
  /** The previous pass had a conflict. */
  #hadConflict = false

  constructor(options: LauncherOptions) {
    this.#options = options
    this.#loop = leaderLoop('launch', options, {
      step: () => this.#pass(),
      // Jobs that fell due while the store was unavailable are late already.
      backoffMaxMs: options.pollMs,
    })
  }

  start(): void {
    this.#unsubscribe = this.#options.wakeup.subscribe('launch', () => this.#loop.wake())
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#unsubscribe()
    await this.#loop.stop()
  }

  async #pass(): Promise<number> {
    const {clock, events, pollMs} = this.#options
    const beganAt = clock.monotonicMs()
    this.#hadConflict = this.#hasConflict
    this.#hasConflict = false
    // Due jobs first: requests may wait for targets, and there may be very many.
    const due = await this.#decideDue()
    const nextDueAt = clock.monotonicMs() + due.nextInMs
    const requests = await this.#decideRequests()
    const endedAt = clock.monotonicMs()
    const durationMs = endedAt - beganAt
    events.emit('launch_pass_done', {
      due: due.count,
      requests: requests.count,
      duration_ms: durationMs,
    })
    // A round over pages with conflicts is finished first.
    if (this.#hasConflict && this.#dueAfter === null) {
      const pauseMs = this.#hadConflict ? CONFLICT_REPEATED_PAUSE_MS : CONFLICT_PAUSE_MS
      return Math.max(CONFLICT_PAUSE_MS, Math.min(pauseMs, due.nextInMs))
    }
    return Math.min(pollMs, Math.max(0, nextDueAt - endedAt), requests.nextInMs)
  }

  /** Decides one page of a revisit and one page of new requests: due jobs are decided between pages. */
  async #decideRequests(): Promise<{count: number; nextInMs: number}> {
    const {clock, pollMs} = this.#options
    const beganAt = clock.monotonicMs()
    if (this.#revisiting === null && beganAt >= this.#revisitAt) {
      this.#revisiting = 0
      this.#revisitAt = beganAt + REVISIT_MS
    }
    let revisited = 0
    if (this.#revisiting !== null) {
      const page = await this.#decidePage(this.#revisiting)
      this.#revisiting = page.next
      revisited = page.count
      // A conflict in an earlier page resets `#revisitAt`: revisit at once.
      if (page.next === null)
        return {count: revisited, nextInMs: this.#revisitAt === -Infinity ? 0 : pollMs}
      if (page.next >= this.#seenGroup) return {count: revisited, nextInMs: 0}
    }
    const fresh = await this.#decidePage(this.#seenGroup)
    const count = revisited + fresh.count
    if (this.#revisiting !== null || fresh.next !== null) return {count, nextInMs: 0}
    // Too soon for a revisit: requests that wait, and those committed out of order, are due at `#revisitAt`.
    return {count, nextInMs: this.#revisitAt - beganAt}
  }

  /** `next`: the group after which the next page begins; `null` = this was the last page. */
  async #decidePage(afterGroup: number): Promise<{count: number; next: number | null}> {
    const {store, batchMax} = this.#options
    const {now, requests} = await store.loadRequests({afterGroup, limit: batchMax})
    if (requests.length === 0) return {count: 0, next: null}
    const last = requests.at(-1)!.launch.group
    this.#seenGroup = Math.max(this.#seenGroup, last)
    const context = await this.#context(now)
    const decisions: RequestDecision[] = []
    for (const {launch, job, openGroup} of requests) {
      const decision = decideRequest(launch, job, openGroup, context)
      if (decision.kind !== 'stay' || decision.reason !== launch.reason) decisions.push(decision)
    }
    if (decisions.length > 0) await this.#apply([], decisions)
    return {count: decisions.length, next: requests.length < batchMax ? null : last}
  }

  async #decideDue(): Promise<{count: number; nextInMs: number}> {
    const {store, clock, batchMax, pollMs} = this.#options
    const loadedAt = clock.monotonicMs()
    const after = this.#dueAfter
    const {now, jobs, nextDueAt} = await store.loadDue({limit: batchMax, after})
    this.#dueAfter = null
    // The jobs before this page may be locked still: they are decided after a pause.
    if (after !== null) this.#hasConflict = true
    if (jobs.length > 0) {
      const context = await this.#context(now)
      const decisions = jobs.map(({job, openGroup}) => decideDue(job, openGroup, context))
      const isConflicted = await this.#apply(decisions, [])
      const {id, nextAt} = jobs.at(-1)!.job
      if (jobs.length === batchMax && (isConflicted || after !== null))
        this.#dueAfter = {nextAt: nextAt!, id}
      const more =
        jobs.length === batchMax || decisions.some(({nextAt}) => (nextAt ?? now + 1) <= now)
      if (more || after !== null) return {count: jobs.length, nextInMs: 0}
      // The pass took time: the times it stored as `next` may be due already, and `nextDueAt` is older.
      const soonest = Math.min(
        nextDueAt ?? Infinity,
        ...decisions.map(({nextAt}) => nextAt ?? Infinity),
      )
      const passMs = clock.monotonicMs() - loadedAt
      return {count: jobs.length, nextInMs: Math.max(0, soonest - now - passMs)}
    }
    if (after !== null) return {count: 0, nextInMs: 0}
    return {count: 0, nextInMs: nextDueAt === null ? pollMs : Math.max(1, nextDueAt - now)}
  }

  async #context(now: number): Promise<PassContext> {
    const {store, random, defaultZone, defaultTarget, lateAfterMs, targetWaitMs, catchUpMax} =
      this.#options
    return {
      now,
      defaultZone,
      defaultTarget,
      lateAfterMs,
      targetWaitMs,
      catchUpMax,
      candidates: await store.candidates(),
      loads: new Map(),
      opened: new Map(),
      random: () => random.fraction(),
    }
  }

  /** Returns whether there was a conflict. */
  async #apply(
    dues: readonly DueDecision[],
    requests: readonly RequestDecision[],
  ): Promise<boolean> {
    const {store, term, wakeup} = this.#options
    const applied = await store.applyLaunches({term, dues, requests})
    // A conflict is a job that was edited or launched by hand since it was loaded: the next pass decides it
    // again. Or it is this decision, stored by an attempt whose reply was lost: so nodes are notified, once.
    const conflicted = applied.dues.includes('conflict') || applied.requests.includes('conflict')
    if (conflicted) {
      this.#hasConflict = true
      this.#revisitAt = -Infinity
    }
    const launched = applied.decided.some(({launch}) => launch.decision === 'launched')
    if (launched || (conflicted && !this.#hadConflict)) wakeup.notify('run')
    for (const decided of applied.decided) this.#announce(decided)
    return conflicted
  }

  #announce({launch}: DecidedLaunch): void {
    this.#options.events.emit('launch_decided', {
      job: launch.jobName,
      group: launch.group,
      cause: launch.cause,
      decision: launch.decision,
      reason: launch.reason,
      scheduled_at: launch.scheduledAt,
      decided_at: launch.decidedAt ?? launch.storedAt,
      count: launch.count,
    })
  }
}
