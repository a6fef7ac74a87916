/**
 * The launch step, the leader's: takes every job that is due and every waiting request, asks the core
 * what becomes of each, and writes the decisions in one transaction a batch. Lives as long as a term.
 *
 * Crash points: before the apply nothing has happened and the next pass finds the same work; after it
 * the rows are durable and the pending executions wait for their nodes. Bells after the commit may be
 * lost, polls find the work; events are told once or, when nobody heard what a commit did, never.
 */
import type {DueDecision, RequestDecision} from '../core/launch-record.ts'
import {decideDue, decideRequest, type PassContext} from '../core/launch.ts'
import type {DefaultTarget} from '../core/target.ts'
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {DecidedLaunch, LeaderStore} from '../ports/leader-store.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

export interface LauncherOptions {
  readonly store: Pick<LeaderStore, 'loadDue' | 'loadRequests' | 'candidates' | 'applyLaunches'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  readonly defaultZone: string
  readonly defaultTarget: DefaultTarget
  readonly lateAfterMs: number
  readonly targetWaitMs: number
  readonly catchUpMax: number
  /** Jobs or requests decided in one transaction. */
  readonly batchMax: number
  /** Longest time without a look when nobody rings. */
  readonly pollMs: number
}

/** Requests that wait for something are looked at again no more often than this, so that bells stay cheap. */
const REVISIT_MS = 250
/** After a conflict: at once for people, and yet no busy loop should one ever stay. */
const CONFLICT_PAUSE_MS = 20
/** After one that stays: whoever imports many jobs holds them for seconds. */
const CONFLICT_STAYS_PAUSE_MS = 100

export class Launcher implements Service {
  readonly #options: LauncherOptions
  readonly #loop: Loop
  #deaf: () => void = () => {}
  /**
   * Requests up to this number were decided or found waiting by an earlier pass, but for those that were
   * committed after a larger number: only a revisit, which begins at 0, sees them.
   */
  #seenGroup = 0
  #revisitAt = -Infinity
  /** While a revisit is under way: the number its next page begins after. */
  #revisiting: number | null = null
  #conflicted = false
  /** So had the pass before this one. */
  #conflictedBefore = false

  constructor(options: LauncherOptions) {
    this.#options = options
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#pass(),
      failed: (error) => {
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'launch', message: String(error)})
      },
      // What fell due while the store was away is late enough.
      backoffMaxMs: options.pollMs,
    })
  }

  start(): void {
    this.#deaf = this.#options.wakeup.subscribe('launch', () => this.#loop.wake())
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#deaf()
    await this.#loop.stop()
  }

  async #pass(): Promise<number> {
    const {clock, events, pollMs} = this.#options
    const beganAt = clock.monotonicMs()
    this.#conflictedBefore = this.#conflicted
    this.#conflicted = false
    // What is due waits for nobody; requests wait for targets, and there may be very many.
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
    if (this.#conflicted) {
      const pauseMs = this.#conflictedBefore ? CONFLICT_STAYS_PAUSE_MS : CONFLICT_PAUSE_MS
      return Math.max(CONFLICT_PAUSE_MS, Math.min(pauseMs, due.nextInMs))
    }
    return Math.min(pollMs, Math.max(0, nextDueAt - endedAt), requests.nextInMs)
  }

  /** A page of what waits and, when that is far behind, one of what is new: due jobs come between. */
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
      // A conflict of an earlier page of this round is looked at again at once.
      if (page.next === null)
        return {count: revisited, nextInMs: this.#revisitAt === -Infinity ? 0 : pollMs}
      if (page.next >= this.#seenGroup) return {count: revisited, nextInMs: 0}
    }
    const fresh = await this.#decidePage(this.#seenGroup)
    const count = revisited + fresh.count
    if (this.#revisiting !== null || fresh.next !== null) return {count, nextInMs: 0}
    // Rung too soon after the last revisit: what waits is looked at when its time has come. So is what this
    // pass cannot see, a smaller number committed after a larger one.
    return {count, nextInMs: this.#revisitAt - beganAt}
  }

  /** `next`: where the page after it begins; `null` when there is none. */
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
    const askedAt = clock.monotonicMs()
    const {now, jobs, nextDueAt} = await store.loadDue({limit: batchMax})
    if (jobs.length > 0) {
      const context = await this.#context(now)
      const decisions = jobs.map(({job, openGroup}) => decideDue(job, openGroup, context))
      await this.#apply(decisions, [])
      const more =
        jobs.length === batchMax || decisions.some(({nextAt}) => (nextAt ?? now + 1) <= now)
      if (more) return {count: jobs.length, nextInMs: 0}
      // The pass took time: what it moved `next` to may be due already, and `nextDueAt` is from before it.
      const soonest = Math.min(
        nextDueAt ?? Infinity,
        ...decisions.map(({nextAt}) => nextAt ?? Infinity),
      )
      const passMs = clock.monotonicMs() - askedAt
      return {count: jobs.length, nextInMs: Math.max(0, soonest - now - passMs)}
    }
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

  async #apply(dues: readonly DueDecision[], requests: readonly RequestDecision[]): Promise<void> {
    const {store, term, wakeup} = this.#options
    const applied = await store.applyLaunches({term, dues, requests})
    // A conflict is a job that was edited, or launched by hand, since it was loaded: the next pass
    // decides it anew. Or it is this very decision, stored by a try whose answer was lost: so nodes look,
    // once.
    const conflicted = applied.dues.includes('conflict') || applied.requests.includes('conflict')
    if (conflicted) {
      this.#conflicted = true
      this.#revisitAt = -Infinity
    }
    const launched = applied.decided.some(({launch}) => launch.decision === 'launched')
    if (launched || (conflicted && !this.#conflictedBefore)) wakeup.notify('run')
    for (const decided of applied.decided) this.#announce(decided)
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
