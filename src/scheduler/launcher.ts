/**
 * Launch step, leader only. Loads every due job and every waiting request, lets `core/launch` decide each,
 * and writes the decisions in one transaction a batch.
 *
 * With many due jobs, the next page is loaded and decided while the database writes the one before.
 *
 * Crash points: before the apply nothing has happened and the next pass finds the same work; after it the
 * rows are durable and the pending executions wait for their nodes. Notifications after the commit may be
 * lost: polling finds the work. Events are emitted at most once: never if the commit's reply is lost.
 */
import type {Limits} from '../config/limits.ts'
import type {ClockGuard} from '../core/clock-guard.ts'
import type {LaunchSettings} from '../core/firing.ts'
import type {DueDecision, RequestDecision} from '../core/launch-record.ts'
import {decideDue, decideRequest, type PassContext, type PendingWork} from '../core/launch.ts'
import {splitCordoned} from '../core/node.ts'
import type {DefaultTarget} from '../core/target.ts'
import type {Loop, Service} from '../lib/loop.ts'
import type {
  DecidedLaunch,
  DueJob,
  DuePosition,
  DueWork,
  LeaderStore,
} from '../ports/leader-store.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {Random, Wakeup} from '../ports/runtime.ts'
import {isolatedJob, isolatedRequest, JobFaults} from './job-faults.ts'
import type {TermOptions} from './leadership.ts'
import {type RequestPage, RequestRounds} from './request-rounds.ts'
import {SettingsUpkeep} from './settings-upkeep.ts'

export interface LauncherOptions extends TermOptions {
  readonly store: Pick<
    LeaderStore,
    | 'loadDue'
    | 'loadRequests'
    | 'noteClockHeld'
    | 'candidates'
    | 'applyLaunches'
    | 'replan'
    | 'planZone'
    | 'endFutureWaits'
    | 'removeEndedPauses'
  >
  readonly random: Random
  readonly wakeup: Wakeup
  /** Shared by all terms of this process. */
  readonly clockGuard: ClockGuard
  /** Version of this process's time zone data. */
  readonly zoneData: string
  readonly defaultTarget: DefaultTarget
  readonly lateAfterMs: number
  readonly targetWaitMs: number
  /** More due jobs than `burstMin` are a burst: to record them has precedence over starting commands. */
  readonly hasBursts: boolean
  /**
   * `clockStepMs`: a step back of the store's clock by this much may have left waits in the future.
   * `queuedPerJobMax`: a job with so many launches that have not started gets no further ones.
   */
  readonly limits: Pick<
    Limits,
    | 'clockConfirmMs'
    | 'clockStepMs'
    | 'catchUpMax'
    | 'queuedPerJobMax'
    | 'launchBatchMax'
    | 'launchFirstMax'
    | 'burstMin'
    | 'pollMs'
  >
}

/** Pause after a conflict: immediate to a person, yet no busy loop if the conflict persists. */
const CONFLICT_PAUSE_MS = 20
/** Pause after a second conflict in a row: a bulk import locks its jobs for seconds. */
const CONFLICT_REPEATED_PAUSE_MS = 100

/** A page of due jobs. */
interface LoadingPage {
  readonly page: Promise<DueWork>
  /** Monotonic. */
  readonly loadedAt: number
}

/** A page loaded ahead is used until then. */
const AHEAD_MAX_MS = 1_000

export class Launcher implements Service {
  readonly #options: LauncherOptions
  readonly #loop: Loop
  readonly #faults: JobFaults
  readonly #rounds: RequestRounds
  readonly #upkeep: SettingsUpkeep
  #unsubscribe: () => void = () => {}
  /** Cursor of planning again with this process's time zone data; `null` = done. */
  #replanAfter: number | null = 0
  /** Waits in the future are ended at the start of a term, and after a step back of the clock. */
  #mayHaveFutureWaits = true
  /** The store's clock at the last look. */
  #lookedAt = -Infinity
  #isHeld = false
  /** Work waited for a slot at the last pass: the launches of each job that wait are counted. */
  #isSaturated = false
  /**
   * Start of the next page of due jobs; `null` = the earliest. Jobs that an import keeps locked stay at the
   * front: the jobs behind them must not wait.
   */
  #dueAfter: DuePosition | null = null
  /** The page that begins at `#dueAfter`, loaded while the decisions about the page before are written. */
  #ahead: LoadingPage | null = null
  /** Writes of the decisions about a page, while the next page is decided. Its errors end the next pass. */
  #writing: Promise<void> = Promise.resolve()
  /** Executions of `#writing` by node: the nodes' loads do not include them yet. */
  #placed: ReadonlyMap<string, number> = new Map()
  #isBurst = false
  #hasConflict = false
  /** The previous pass had a conflict. */
  #hadConflict = false

  constructor(options: LauncherOptions) {
    this.#options = options
    this.#faults = new JobFaults(options)
    this.#upkeep = new SettingsUpkeep(options)
    this.#rounds = new RequestRounds({
      clock: options.clock,
      limits: options.limits,
      decidePage: (afterGroup) => this.#decidePage(afterGroup),
      candidates: () => options.store.candidates(),
    })
    this.#loop = stepLoop('launch', {
      ...options,
      step: () => this.#pass(),
      // Jobs that fell due while the store was unavailable are late already.
      backoffMaxMs: options.limits.pollMs,
    })
  }

  start(): void {
    this.#unsubscribe = this.#options.wakeup.subscribe('launch', () => this.#loop.wake())
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#unsubscribe()
    await this.#loop.stop()
    await Promise.allSettled([this.#writing])
  }

  async #pass(): Promise<number> {
    if (!(await this.#prepare())) return 0
    const {clock, events, limits} = this.#options
    const beganAt = clock.monotonicMs()
    this.#hadConflict = this.#hasConflict
    this.#hasConflict = false
    // Due jobs first: requests may wait for targets, and there may be very many.
    const due = await this.#decideDue()
    const nextDueAt = clock.monotonicMs() + due.nextInMs
    const requests = await this.#rounds.decide()
    await this.#recordFaults()
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
    return Math.min(limits.pollMs, Math.max(0, nextDueAt - endedAt), requests.nextInMs)
  }

  /** Nothing is decided before all jobs are planned with the same time zone data. False = not done yet. */
  async #prepare(): Promise<boolean> {
    const {store, term, zoneData, limits, events} = this.#options
    if (this.#replanAfter !== null) {
      const after = this.#replanAfter
      this.#replanAfter = await store.replan({
        term,
        zoneData,
        after,
        limit: limits.launchBatchMax,
      })
      if (this.#replanAfter !== null) return false
    }
    if (this.#mayHaveFutureWaits) {
      const {aheadJobs: jobs, aheadUntil} = await store.endFutureWaits({term})
      if (aheadUntil !== null) events.emit('clock_was_wrong', {jobs, until: aheadUntil})
      this.#mayHaveFutureWaits = false
    }
    return true
  }

  async #decidePage(afterGroup: number): Promise<RequestPage> {
    const {store, clock, clockGuard, lateAfterMs} = this.#options
    const {launchBatchMax: limit, catchUpMax} = this.#options.limits
    const request = {afterGroup, limit, catchUp: {lateAfterMs, catchUpMax}}
    const {now, settings, requests} = await store.loadRequests(request)
    if (requests.length === 0) return {rows: 0, count: 0, last: afterGroup, next: null}
    const last = requests.at(-1)!.launch.group
    const context = await this.#context(clockGuard.trustedNow(now, clock.monotonicMs()), settings)
    const isolated = new Map(requests.map((each) => [each.launch.group, isolatedRequest(each)]))
    const decisions = this.#faults
      .decideEach(requests, isolatedRequest, (each) => {
        const decision = decideRequest(each, context)
        return {decision, isChange: isChange(decision, each)}
      })
      .flatMap(({decision, isChange}) => (isChange ? [decision] : []))
    if (decisions.length > 0)
      await this.#faults.applyEach(
        decisions,
        ({group}) => isolated.get(group)!,
        (some) => this.#apply([], some, settings),
      )
    const next = requests.length < limit ? null : last
    return {rows: requests.length, count: decisions.length, last, next}
  }

  async #decideDue(): Promise<{count: number; nextInMs: number}> {
    const {store, term, clock, clockGuard, limits} = this.#options
    const {page, loadedAt} = this.#takeAhead() ?? this.#load()
    const loaded = await page
    if (!loaded.settings.isPlanned) {
      this.#dueAfter = null
      await this.#upkeep.planZone(this.#faults)
      return {count: 0, nextInMs: 0}
    }
    const {nextDueAt} = loaded
    const wasHeld = this.#isHeld
    const now = this.#trustedNow(loaded.now)
    if (this.#isHeld !== wasHeld)
      await store.noteClockHeld({term, heldMs: this.#isHeld ? clockGuard.heldMs : null})
    for (const {id, name, problem} of loaded.damaged)
      this.#faults.add({jobId: id, job: name, revision: 0, group: null}, problem)
    // Held back: sorted by `next`, so no later page has a time to decide.
    const jobs = loaded.jobs.filter(({job}) => job.nextAt! <= now)
    this.#dueAfter = jobs.length < loaded.jobs.length ? null : loaded.next
    const held = loaded.jobs[jobs.length]?.job.nextAt ?? Infinity
    if (this.#dueAfter !== null) this.#ahead = this.#load()
    // A burst lasts until all of its pages are recorded.
    this.#isBurst = loaded.isBurst || (this.#isBurst && this.#dueAfter !== null)
    const decisions = await this.#decideJobs(jobs, now, loaded.settings)
    const more = this.#dueAfter !== null || decisions.some(({nextAt}) => (nextAt ?? now + 1) <= now)
    if (more) return {count: jobs.length, nextInMs: 0}
    await this.#upkeep.removeEndedPauses(loaded)
    // The pass took time: the times it stored as `next` may be due already, and `nextDueAt` is older.
    const soonest = Math.min(
      held,
      nextDueAt ?? Infinity,
      ...decisions.map(({nextAt}) => nextAt ?? Infinity),
    )
    const passMs = jobs.length === 0 ? 0 : clock.monotonicMs() - loadedAt
    const leastMs = jobs.length === 0 ? 1 : 0
    return {
      count: jobs.length,
      nextInMs: Math.min(limits.pollMs, Math.max(leastMs, soonest - now - passMs)),
    }
  }

  /** Loads the page of due jobs that begins at `#dueAfter`. */
  #load(): LoadingPage {
    const {store, clock, hasBursts, limits} = this.#options
    const loadedAt = clock.monotonicMs()
    const after = this.#dueAfter
    const limit = after === null ? limits.launchFirstMax : limits.launchBatchMax
    const counting = this.#isSaturated ? {queuedMax: limits.queuedPerJobMax} : {}
    const burstMin = hasBursts ? limits.burstMin : null
    const page = store.loadDue({limit, after, burstMin, ...counting})
    // The pass that takes it gets its error.
    void Promise.allSettled([page])
    return {page, loadedAt}
  }

  /** The page loaded ahead; `null` = none, or it is too old: then decisions would refer to the past. */
  #takeAhead(): LoadingPage | null {
    const ahead = this.#ahead
    this.#ahead = null
    const ageMs = ahead === null ? Infinity : this.#options.clock.monotonicMs() - ahead.loadedAt
    return ageMs > AHEAD_MAX_MS ? null : ahead
  }

  /** Decides the jobs of a page, and begins to write the decisions. Waits for the last page of a round. */
  async #decideJobs(
    jobs: readonly DueJob[],
    now: number,
    settings: LaunchSettings,
  ): Promise<readonly DueDecision[]> {
    const context = jobs.length === 0 ? null : await this.#context(now, settings)
    const decisions =
      context === null
        ? []
        : this.#faults.decideEach(jobs, isolatedJob, ({job, openGroup, queued}) =>
            decideDue(job, openGroup, context, queued),
          )
    await this.#written()
    if (context !== null && decisions.length > 0) this.#write(jobs, decisions, context, settings)
    if (this.#dueAfter === null) await this.#written()
    return decisions
  }

  /** Waits for the writes under way. Throws their error, once. */
  async #written(): Promise<void> {
    const writing = this.#writing
    this.#writing = Promise.resolve()
    await writing
  }

  #write(
    jobs: readonly DueJob[],
    decisions: readonly DueDecision[],
    {candidates, loads}: PassContext,
    settings: LaunchSettings,
  ): void {
    const isolated = new Map(jobs.map((due) => [due.job.id, isolatedJob(due)]))
    const loadBefore = new Map(candidates.map(({id, load}) => [id, load]))
    this.#placed = new Map([...loads].map(([id, load]) => [id, load - (loadBefore.get(id) ?? 0)]))
    this.#writing = this.#faults
      .applyEach(
        decisions,
        ({jobId}) => isolated.get(jobId)!,
        (some) => this.#apply(some, [], settings),
      )
      .finally(() => (this.#placed = new Map()))
    void Promise.allSettled([this.#writing])
  }

  /** The store's time, or the time before a step ahead that has not stood for long. */
  #trustedNow(now: number): number {
    const {clock, clockGuard, limits, events} = this.#options
    if (now < this.#lookedAt - limits.clockStepMs) this.#mayHaveFutureWaits = true
    this.#lookedAt = now
    const trustedNow = clockGuard.trustedNow(now, clock.monotonicMs())
    const {heldMs} = clockGuard
    if (heldMs > 0 && !this.#isHeld)
      events.emit('clock_held', {by_ms: Math.round(heldMs), for_ms: limits.clockConfirmMs})
    this.#isHeld = heldMs > 0
    return trustedNow
  }

  async #context(now: number, {defaultZone, pauses}: LaunchSettings): Promise<PassContext> {
    const {store, random, defaultTarget} = this.#options
    const {lateAfterMs, targetWaitMs, limits} = this.#options
    const placed = this.#placed
    const {candidates: free, cordoned} = splitCordoned(await store.candidates())
    const nodes = free.map((node) => ({...node, load: node.load + (placed.get(node.id) ?? 0)}))
    this.#isSaturated = nodes.some(({load, slots}) => load >= slots)
    return {
      now,
      defaultZone,
      pauses,
      defaultTarget,
      lateAfterMs,
      targetWaitMs,
      catchUpMax: limits.catchUpMax,
      queuedMax: limits.queuedPerJobMax,
      candidates: nodes,
      cordoned,
      loads: new Map(),
      opened: new Map(),
      random: () => random.fraction(),
    }
  }

  async #apply(
    dues: readonly DueDecision[],
    requests: readonly RequestDecision[],
    {revision}: LaunchSettings,
  ): Promise<void> {
    const {store, term, wakeup} = this.#options
    const applied = await store.applyLaunches({term, dues, requests, settings: revision})
    // A conflict is a job that was edited, launched or paused since it was loaded: the next pass decides it
    // again. Or it is this decision, stored by an attempt whose reply was lost: so nodes are notified, once.
    const conflicted = applied.dues.includes('conflict') || applied.requests.includes('conflict')
    if (conflicted) {
      this.#hasConflict = true
      this.#rounds.repeat()
    }
    const launched = applied.decided.some(({launch}) => launch.decision === 'launched')
    if (launched && this.#isBurst) wakeup.notify('burst')
    if (launched || (conflicted && !this.#hadConflict)) wakeup.notify('run')
    for (const decided of applied.decided) this.#announce(decided)
  }

  /** Runs in a transaction of its own: the note about a faulty job must not delay the others. */
  async #recordFaults(): Promise<void> {
    const faults = this.#faults.takeUnrecorded()
    const {store, term} = this.#options
    if (faults.length > 0) await store.applyLaunches({term, dues: [], requests: [], faults})
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

function isChange(decision: RequestDecision, {launch}: PendingWork): boolean {
  return decision.kind !== 'stay' || decision.reason !== launch.reason
}
