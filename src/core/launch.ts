/**
 * Launch decisions: turn every due planned time of a job and every pending row into a launch, a skip or
 * a wait. Each planned time is covered by exactly one row. A long outage costs arithmetic, not one row or
 * step per missed second.
 */
import {assert} from '../lib/assert.ts'
import {type FiringPause, isInForce, latestPause, pausedReason, splitPaused} from './firing.ts'
import {type JobRecord, type JobSpec, maxLatenessMs, type PlannedJob} from './job.ts'
import {
  type DueDecision,
  type LaunchRecord,
  type StoredLaunch,
  type RequestDecision,
  type Target,
} from './launch-record.ts'
import {type Reason, reasonText} from './launch-reasons.ts'
import {dueUntil, nextPlanned, scheduleOf, undecidedTimes} from './next-time.ts'
import type {Candidate} from './node.ts'
import type {Schedule} from './schedule/parse.ts'
import {cordonedSentence, type DefaultTarget, matchTargets, selectTargets} from './target.ts'

/** Launches decided per job and pass. The rest stays due for the next pass. Bounds one transaction. */
const LAUNCHES_PER_JOB_MAX = 1_000

/**
 * The stored schedule of a job cannot be read by this version or its time zone data. Its due times stay
 * undecided, for a leader that can read it.
 */
export class UnreadableSchedule extends Error {
  override readonly name = 'UnreadableSchedule'
}

/**
 * Decides every planned time of a due job from its `next` up to now. `queued`: launches of the job that have
 * not started. Throws `UnreadableSchedule`. The caller isolates a job whose decision throws.
 */
export function decideDue(
  job: PlannedJob,
  openGroup: number | null,
  context: PassContext,
  queued = 0,
): DueDecision {
  const {spec, nextAt: from} = job
  assert(from !== null && from <= context.now, `${spec.name} must be due`)
  const schedule = scheduleOf(spec, job.anchorAt, context.defaultZone)
  const forbid = spec.concurrency === 'forbid'
  const common = {jobId: job.id, revision: job.revision, expectedNextAt: from, forbid}
  if (schedule === null) {
    const zone = spec.timezone === '' ? context.defaultZone : spec.timezone
    throw new UnreadableSchedule(
      `the schedule ${JSON.stringify(spec.schedule)} in the zone ${JSON.stringify(zone)} cannot be read`,
    )
  }

  if (job.decidedUntil !== null && from <= job.decidedUntil) {
    // Put back by hand: these times have their rows.
    const nextAt = nextPlanned(spec, job.anchorAt, job.decidedUntil, context.defaultZone)
    return {...common, nextAt, rows: []}
  }
  const afterDue = () =>
    nextPlanned(spec, job.anchorAt, Math.max(context.now, from), context.defaultZone)
  const {paused, firesFrom} = splitPaused(schedule, spec, from, context)
  if (firesFrom === null) return {...common, nextAt: afterDue(), rows: paused}
  const {missed, catchUp, late, undecidedAt} = sortDueTimes(schedule, spec, firesFrom, context)
  const nextAt = undecidedAt ?? afterDue()
  const rows: StoredLaunch[] = [...paused, ...missed]
  if (queued >= context.queuedMax) {
    const behind = behindRow([...catchUp, ...late])
    return {...common, nextAt, rows: behind === null ? rows : [...rows, behind]}
  }
  for (const scheduledAt of catchUp)
    rows.push(launchRow(spec, scheduledAt, openGroup, true, context))
  // Late times after an outage did not overlap when they were planned: under `forbid` each waits for the
  // previous launch. A launch that was already open, or waits for a node, did overlap then: it causes skips.
  let isBacklog = openGroup === null && rows.some(({decision}) => decision === 'launched')
  for (const scheduledAt of late) {
    const row = launchRow(spec, scheduledAt, openGroup, isBacklog, context)
    rows.push(row)
    isBacklog ||= row.decision === 'launched'
  }
  return {...common, nextAt, rows}
}

/** A single row for planned times that are skipped because the nodes are behind; `null` = none is due. */
function behindRow(times: readonly number[]): StoredLaunch | null {
  const [scheduledAt] = times
  if (scheduledAt === undefined) return null
  const scheduledUntil = times.at(-1)!
  const count = times.length
  return {scheduledAt, scheduledUntil, count, decision: 'skipped', reason: 'behind', targets: []}
}

interface SortedTimes {
  /** Rows for times that do not run, oldest first. */
  readonly missed: StoredLaunch[]
  /** Missed times that catch-up launches, oldest first. */
  readonly catchUp: number[]
  /** Times that are late but not missed, launched under every `catch_up`, oldest first. */
  readonly late: number[]
  /** First time left for the next pass; `null` = none is left. */
  readonly undecidedAt: number | null
}

function sortDueTimes(
  schedule: Schedule,
  spec: JobSpec,
  from: number,
  context: PassContext,
): SortedTimes {
  const until = dueUntil(spec, from, context.now)
  // Fast path for the common case: one planned time that is just due.
  const second = schedule.next(from)
  // Instants are whole ms; the length may not be.
  const lateFrom = Math.ceil(context.now - context.lateAfterMs)
  const oldestRun = context.now - maxLatenessMs(spec)
  if (from >= lateFrom && from >= oldestRun && (second === null || second >= until)) {
    return {missed: [], catchUp: [], late: [from], undecidedAt: null}
  }
  const times = undecidedTimes(schedule, from)
  const missed: StoredLaunch[] = []
  pushMissed(missed, times, from, Math.min(oldestRun, until), 'max_lateness')
  const caught = catchUpTimes(
    times,
    spec,
    Math.max(from, oldestRun),
    Math.min(lateFrom, until),
    context,
  )
  missed.push(...caught.missed)
  const late: number[] = []
  let undecidedAt: number | null = null
  for (
    let time = times.next(Math.max(from, oldestRun, lateFrom) - 1);
    time !== null && time < until;
    time = times.next(time)
  ) {
    if (late.length === LAUNCHES_PER_JOB_MAX) {
      undecidedAt = time
      break
    }
    late.push(time)
  }
  return {missed, catchUp: caught.launched, late, undecidedAt}
}

/** Reasons of missed times that do not run, by `catch_up`. */
const CATCH_UP_REASONS = {
  skip: 'catch_up_skip',
  latest: 'catch_up_latest',
  all: 'catch_up_cap',
} as const

/** How many missed times run. */
function catchUpLaunches(
  {catchUp}: JobSpec,
  {catchUpMax}: Pick<PassContext, 'catchUpMax'>,
): number {
  return {skip: 0, latest: 1, all: catchUpMax}[catchUp]
}

/** Splits the missed times in [from, until) into launches and rows for the rest. */
function catchUpTimes(
  schedule: Schedule,
  spec: JobSpec,
  from: number,
  until: number,
  context: PassContext,
): {missed: StoredLaunch[]; launched: number[]} {
  const missed: StoredLaunch[] = []
  const newest: number[] = []
  const launchesMax = catchUpLaunches(spec, context)
  let end = until
  while (newest.length < launchesMax) {
    const time = schedule.previous(end)
    if (time === null || time < from) break
    newest.push(time)
    end = time
  }
  pushMissed(missed, schedule, from, end, CATCH_UP_REASONS[spec.catchUp])
  return {missed, launched: newest.toReversed()}
}

/** A single row for all planned times in [from, until), if there are any. */
function pushMissed(
  rows: StoredLaunch[],
  schedule: Schedule,
  from: number,
  until: number,
  reason: Reason,
): void {
  if (from >= until) return
  const scheduledAt = schedule.next(from - 1)
  if (scheduledAt === null || scheduledAt >= until) return
  const scheduledUntil = schedule.previous(until) ?? scheduledAt
  const count = schedule.count(scheduledAt, until)
  rows.push({scheduledAt, scheduledUntil, count, decision: 'missed', reason, targets: []})
}

function launchRow(
  spec: JobSpec,
  scheduledAt: number,
  openGroup: number | null,
  waits: boolean,
  context: PassContext,
): StoredLaunch {
  const single = {scheduledAt, scheduledUntil: scheduledAt, count: 1, targets: []}
  const label = `the launch planned at ${new Date(scheduledAt).toISOString()}`
  const admission = admit(spec, openGroup, false, label, context)
  switch (admission.kind) {
    case 'go':
      return {...single, decision: 'launched', reason: '', targets: admission.targets}
    case 'no_node':
      // A waiting planned time blocks the later ones. A waiting request blocks none.
      context.opened.set(spec.name, label)
      return {...single, decision: 'pending', reason: 'waits_for_node'}
    case 'overlap':
      return waits
        ? {...single, decision: 'pending', reason: 'waits_for_open'}
        : {
            ...single,
            decision: 'skipped',
            reason: reasonText('forbid', `${admission.by} is still open`),
          }
  }
}

/** Decides one pending row: launch it, skip it with a reason, or keep it waiting. */
export function decideRequest(
  {launch, job, openGroup, newerMissed}: PendingWork,
  context: PassContext,
): RequestDecision {
  const {group} = launch
  const {spec, revision} = job
  const common = {group, revision}
  const skip =
    skipReason(launch, spec, context) ?? supersededReason(launch, spec, newerMissed, context)
  if (skip !== null) return {...common, kind: 'skip', ...skip}
  const admission = admit(spec, openGroup, launch.forced, `launch ${group}`, context)
  switch (admission.kind) {
    case 'go':
      return {
        ...common,
        kind: 'launch',
        targets: admission.targets,
        forbid: spec.concurrency === 'forbid' && !launch.forced,
      }
    case 'overlap':
      return launch.cause === 'schedule'
        ? {...common, kind: 'stay', reason: 'waits_for_open'}
        : {
            ...common,
            kind: 'skip',
            decision: 'skipped',
            reason: reasonText('forbid', `${admission.by} is still open`),
          }
    case 'no_node':
      return context.now - launch.storedAt < context.targetWaitMs
        ? {...common, kind: 'stay', reason: 'waits_for_node'}
        : {...common, kind: 'skip', decision: 'skipped', reason: noTargetReason(spec, context)}
  }
}

function noTargetReason(spec: JobSpec, {cordoned = [], defaultTarget}: PassContext): string {
  return reasonText('no_target', cordonedSentence(spec.tags, cordoned, defaultTarget))
}

interface SkipReason {
  readonly decision: 'skipped' | 'missed'
  readonly reason: string
}

/**
 * A planned time that waited for a node until it was missed follows `catch_up` when a node appears, as
 * after an outage of the leader; `null` = it may run.
 */
function supersededReason(
  launch: LaunchRecord,
  spec: JobSpec,
  newerMissed: number,
  {now, lateAfterMs, catchUpMax, candidates, defaultTarget}: PassContext,
): SkipReason | null {
  if (launch.cause !== 'schedule' || launch.reason !== 'waits_for_node') return null
  if (now - launch.scheduledAt <= lateAfterMs) return null
  const launchesMax = catchUpLaunches(spec, {catchUpMax})
  if (newerMissed < launchesMax) return null
  // A request without a node continues to wait, and may end as `no_target`.
  if (matchTargets(spec.tags, candidates, defaultTarget).nodes.length === 0) return null
  return {decision: 'missed', reason: CATCH_UP_REASONS[spec.catchUp]}
}

/** The reason why a pending row can no longer run on any node; `null` when it can. */
function skipReason(
  launch: LaunchRecord,
  spec: JobSpec,
  {now, pauses}: PassContext,
): SkipReason | null {
  const follows = launch.cause === 'schedule' || launch.cause === 'parent'
  const pause = follows && !spec.disabled ? latestPause(pauses, spec.name) : null
  if (pause !== null && isInForce(pause, now))
    return {decision: 'skipped', reason: pausedReason(pause)}
  if (launch.cause === 'schedule') {
    if (spec.disabled) return {decision: 'skipped', reason: 'disabled'}
    if (now - launch.scheduledAt > maxLatenessMs(spec))
      return {decision: 'missed', reason: 'max_lateness'}
  }
  if (launch.cause === 'parent') {
    if (spec.disabled) return {decision: 'skipped', reason: 'disabled'}
    const early = spec.startsAt !== null && now < spec.startsAt
    if (early || (spec.expiresAt !== null && now >= spec.expiresAt)) {
      return {decision: 'skipped', reason: 'outside_window'}
    }
  }
  return null
}

/** A pending row as loaded for its decision. */
export interface PendingWork {
  readonly launch: LaunchRecord
  readonly job: JobRecord
  /**
   * Another open launch of the job's name: launched already, or pending with a smaller number and cause
   * `schedule`. `null` = none.
   */
  readonly openGroup: number | null
  /**
   * Newer planned times of the job that also wait, and are missed by now; not counted beyond `catchUpMax`.
   */
  readonly newerMissed: number
}

/** Shared by all decisions of one pass. */
export interface PassContext {
  /** The store's clock. */
  readonly now: number
  readonly defaultZone: string
  readonly pauses: readonly FiringPause[]
  readonly defaultTarget: DefaultTarget
  /** Decided within this of its planned time, a launch is late but not missed. */
  readonly lateAfterMs: number
  /** How long a launch waits for a node whose tags match. */
  readonly targetWaitMs: number
  /** How many missed times `catch_up: all` runs. */
  readonly catchUpMax: number
  /** A job with this many launches that have not started gets no further ones. */
  readonly queuedMax: number
  readonly candidates: readonly Candidate[]
  /** Alive nodes that take no new work, for the reason of a skip; absent = none. */
  readonly cordoned?: readonly Candidate[]
  /** Load by node id, updated by every selection of the pass. */
  readonly loads: Map<string, number>
  /** Launches opened earlier in this pass, by job name: `forbid` checks them besides the store. */
  readonly opened: Map<string, string>
  readonly random: () => number
}

export type Admission =
  | {readonly kind: 'go'; readonly targets: readonly Target[]}
  /** Overlap: `by` names the blocking launch. */
  | {readonly kind: 'overlap'; readonly by: string}
  | {readonly kind: 'no_node'}

/**
 * Admits one launch: no overlap under `forbid`, and a node to run on. Planned times and requests share
 * this check. `go` updates the pass's loads and opened launches.
 */
export function admit(
  spec: JobSpec,
  openGroup: number | null,
  forced: boolean,
  label: string,
  context: PassContext,
): Admission {
  const forbids = spec.concurrency === 'forbid'
  if (forbids && !forced) {
    const by = openGroup === null ? context.opened.get(spec.name) : `launch ${openGroup}`
    if (by !== undefined) return {kind: 'overlap', by}
  }
  const chosen = selectTargets(
    spec.tags,
    context.candidates,
    context.defaultTarget,
    context.loads,
    context.random,
  )
  if (chosen.length === 0) return {kind: 'no_node'}
  if (forbids) context.opened.set(spec.name, label)
  return {kind: 'go', targets: chosen.map(({id, name}) => ({nodeId: id, nodeName: name}))}
}
