/**
 * Planned times of a job: its schedule within its window, and the effect of a changed definition on
 * `next`. Only this file implements the rule that a definition has no planned times before it was accepted.
 */
import type {JobRecord, JobSpec, StringMap} from './job.ts'
import {isUnset, JOB_FIELD_LIST, JOB_FIELDS, type JobField, type JobKey} from './job-fields.ts'
import type {Reason} from './launch-reasons.ts'
import type {StoredLaunch} from './launch-record.ts'
import {parseSchedule, type Schedule, zoneOf} from './schedule/parse.ts'

const ANCHOR_GRAIN_MS = 1000

/**
 * The schedule of a spec; `null` when it plans nothing. That is a child, whose own schedule never fires, or
 * a stored text that this version or its time zone data cannot parse. Such a job must not stop the others.
 */
export function scheduleOf(spec: JobSpec, anchorAt: number, defaultZone: string): Schedule | null {
  if (spec.parentJob !== '' || spec.schedule === '') return null
  const timezone = spec.timezone === '' ? defaultZone : spec.timezone
  const parsed = parseSchedule(spec.schedule, {timezone, name: spec.name, anchorAt})
  return parsed.ok ? parsed.schedule : null
}

/**
 * First planned time strictly after `after` and inside `startsAt` (inclusive) .. `expiresAt`
 * (exclusive); `null` when there is none, or the job is disabled or a child.
 */
export function nextPlanned(
  spec: JobSpec,
  anchorAt: number,
  after: number,
  defaultZone: string,
): number | null {
  if (spec.disabled) return null
  const schedule = scheduleOf(spec, anchorAt, defaultZone)
  if (schedule === null) return null
  const from = spec.startsAt === null ? after : Math.max(after, spec.startsAt - 1)
  const planned = schedule.next(from)
  if (planned === null || (spec.expiresAt !== null && planned >= spec.expiresAt)) return null
  return planned
}

/**
 * The undecided planned times of a job: `from`, its stored `next`, and those of the schedule after it. `from`
 * may be off the schedule, if it was planned with other time zone data. It is a planned time all the same.
 */
export function undecidedTimes(schedule: Schedule, from: number): Schedule {
  return {
    kind: schedule.kind,
    next: (after) => (after < from ? from : schedule.next(after)),
    previous: (before) => {
      if (before <= from) return null
      const planned = schedule.previous(before)
      return planned === null || planned < from ? from : planned
    },
    count: (since, until) => {
      if (since > from) return schedule.count(since, until)
      return until > from ? 1 + schedule.count(from + 1, until) : 0
    },
  }
}

/** End (exclusive) of a job's due times: after `now`, or at `expires_at`. Its stored `next` is always due. */
export function dueUntil({expiresAt}: JobSpec, nextAt: number, now: number): number {
  return Math.max(nextAt + 1, Math.min(now + 1, expiresAt ?? Infinity))
}

/**
 * The job's `next` by the time zone data of this process, when that has changed since `next` was stored. Only
 * undecided times move. Times that the new data puts between the last decided time and now are due.
 */
export function replanned(job: JobRecord, now: number, defaultZone: string): number | null {
  const {spec, anchorAt, nextAt, decidedUntil, updatedAt} = job
  const schedule = spec.disabled ? null : scheduleOf(spec, anchorAt, defaultZone)
  if (schedule?.kind !== 'cron') return nextAt
  // An earlier release stored `null` when it could not read the schedule.
  if (nextAt === null)
    return nextPlanned(spec, anchorAt, Math.max(now, decidedUntil ?? -Infinity), defaultZone)
  const decided = decidedUntil === null ? -Infinity : counterpart(schedule, decidedUntil)
  // A due time may be older than the last edit, which kept it.
  const accepted = Math.min(updatedAt, nextAt - 1)
  return nextPlanned(spec, anchorAt, Math.max(decided, accepted), defaultZone)
}

/**
 * The planned time that a decided one stands for. New rules of a zone shift planned times: the nearest one is
 * the same run of the same day, which must not be decided again.
 */
function counterpart(schedule: Schedule, decidedAt: number): number {
  const next = schedule.next(decidedAt - 1)
  const previous = schedule.previous(decidedAt)
  if (next === null || (previous !== null && decidedAt - previous <= next - decidedAt))
    return decidedAt
  return next
}

/** A change of the default time zone, after which jobs are still to be planned. */
export interface ZoneChange {
  readonly at: number
  readonly from: string
  readonly to: string
}

/**
 * The newest due times that stay due, if they are planned times of both zones. A job catches up fewer; times
 * before them are missed.
 */
const KEPT_MAX = 100

/**
 * Plans a job after changes of the default zone, oldest first: until a change its planned times are those of
 * the zone before. A due time stays due if it is a planned time of the new zone too; others are missed. Plans
 * the same again if it is called again. An edit calls it first, so only the last change may be news to a job
 * that was edited since.
 */
export function rezoned(
  job: JobRecord,
  changes: readonly ZoneChange[],
  now: number,
): Pick<DefinitionChange, 'nextAt' | 'missed'> {
  const missed: StoredLaunch[] = []
  let {nextAt, decidedUntil} = job
  for (const change of changes.filter(
    ({at}, i) => i === changes.length - 1 || at >= job.updatedAt,
  )) {
    const planned = rezonedOnce({...job, nextAt, decidedUntil}, change, now)
    nextAt = planned.nextAt
    decidedUntil = planned.missed.at(-1)?.scheduledUntil ?? decidedUntil
    missed.push(...planned.missed)
  }
  return {nextAt, missed}
}

/** The definition names a zone, also in its schedule: the default zone has no effect on the job. */
export function hasOwnZone({timezone, schedule}: Pick<JobSpec, 'timezone' | 'schedule'>): boolean {
  return timezone !== '' || zoneOf(schedule, '') !== ''
}

function rezonedOnce(
  job: JobRecord,
  {at: changedAt, from, to}: ZoneChange,
  now: number,
): ReturnType<typeof rezoned> {
  const {spec, anchorAt, nextAt, decidedUntil, updatedAt} = job
  const schedule = spec.disabled || hasOwnZone(spec) ? null : scheduleOf(spec, anchorAt, to)
  if (schedule?.kind !== 'cron') return {nextAt, missed: []}
  // A later time was stored by a wrong clock.
  const at = Math.min(changedAt, now)
  const decided = decidedUntil ?? -Infinity
  if (nextAt !== null && nextAt <= at) {
    const kept = keptFrom(job, nextAt, scheduleOf(spec, anchorAt, from), schedule, at)
    const missed = kept === nextAt ? [] : dueRow(job, (kept ?? at + 1) - 1, from, 'edited')
    return {nextAt: kept ?? nextPlanned(spec, anchorAt, Math.max(at, decided), to), missed}
  }
  const edited = updatedAt > now ? -Infinity : updatedAt
  // The edit may have kept an earlier time.
  const accepted = nextAt === null ? edited : Math.min(edited, nextAt - 1)
  return {nextAt: nextPlanned(spec, anchorAt, Math.max(at, decided, accepted), to), missed: []}
}

/** The first of the newest due times that both schedules plan alike; `null` = not even the newest. */
function keptFrom(
  {spec}: JobRecord,
  nextAt: number,
  before: Schedule | null,
  after: Schedule,
  at: number,
): number | null {
  if (before === null) return null
  const times = undecidedTimes(before, nextAt)
  let kept: number | null = null
  let until = dueUntil(spec, nextAt, at)
  for (let count = 0; count < KEPT_MAX; count += 1) {
    const due = times.previous(until)
    if (due === null || due !== after.previous(until)) break
    kept = due
    until = due
  }
  return kept
}

/** Phase of `@every`: the job's start, or the second its schedule was accepted. */
function anchorFor(spec: JobSpec, acceptedAt: number): number {
  return spec.startsAt ?? acceptedAt - (acceptedAt % ANCHOR_GRAIN_MS)
}

/** Effects of an accepted definition besides the spec itself. */
export interface DefinitionChange {
  readonly changed: boolean
  readonly revision: number
  readonly anchorAt: number
  readonly nextAt: number | null
  /** Due, undecided times of the old definition that `next` moves past; at most one row. */
  readonly missed: readonly StoredLaunch[]
  /**
   * The clock was wrong: times far after now were decided. They are planned again, and the rows of those that
   * did not launch are taken back.
   */
  readonly retracts: boolean
}

/** Decided times further ahead than this show that the clock was wrong; smaller steps are corrections. */
export const CLOCK_WRONG_MS = 60_000

/** Deep equality of two specs as stored. The key order of processors counts: they run in it. */
export function sameSpec(one: JobSpec, other: JobSpec): boolean {
  return specText(one) === specText(other)
}

/** Sorts maps: one spec may come from a request and the other from the store. */
function specText(spec: JobSpec): string {
  const sorted = (map: object) => Object.entries(map).toSorted(([a], [b]) => (a < b ? -1 : 1))
  const comparable = ({key, kind}: {key: JobKey; kind: JobField['kind']}) => {
    if (kind === 'map') return sorted(spec[key] as StringMap)
    if (kind !== 'processors') return spec[key]
    return Object.entries(spec.processors).map(([name, config]) => [name, sorted(config)])
  }
  return JSON.stringify(JOB_FIELD_LIST.map(comparable))
}

/**
 * Decides the effects of storing `spec`. `existing` is the stored job or `null`. `runsPast` is true only
 * for a submit that creates: a past `@at` is then subject to catch-up. A restore never plans the past.
 * `zoneChanges`: those after which the stored job may not be planned yet.
 */
export function planDefinition(
  existing: JobRecord | null,
  spec: JobSpec,
  now: number,
  defaultZone: string,
  runsPast: boolean,
  zoneChanges: readonly ZoneChange[] = [],
): DefinitionChange {
  if (existing !== null && zoneChanges.length > 0 && !sameSpec(existing.spec, spec)) {
    const {nextAt, missed} = rezoned(existing, zoneChanges, now)
    const decidedUntil = missed.at(-1)?.scheduledUntil ?? existing.decidedUntil
    const planned = {...existing, nextAt, decidedUntil}
    const change = planDefinition(planned, spec, now, defaultZone, runsPast)
    return {...change, missed: [...missed, ...change.missed]}
  }
  if (existing === null) {
    const anchorAt = anchorFor(spec, now)
    // The second of creation is only the phase of `@every`. A `starts_at` of this instant is a planned time.
    const after = spec.startsAt === null ? now : now - 1
    const nextAt =
      (runsPast ? pastInstant(spec, anchorAt, now, defaultZone) : null) ??
      nextPlanned(spec, anchorAt, after, defaultZone)
    return {changed: true, revision: 1, anchorAt, nextAt, missed: [], retracts: false}
  }
  if (sameSpec(existing.spec, spec)) {
    const {revision, anchorAt, nextAt} = existing
    return {changed: false, revision, anchorAt, nextAt, missed: [], retracts: false}
  }
  const keeps = keepsPlan(existing.spec, spec)
  const anchorAt = keepsPhase(existing.spec, spec) ? existing.anchorAt : anchorFor(spec, now)
  const decidedUntil = existing.decidedUntil ?? -Infinity
  const isWrong = decidedUntil > now + CLOCK_WRONG_MS
  const keepsNext = keeps && existing.nextAt !== null && !cutsDue(existing, spec, now, defaultZone)
  const after = isWrong ? now : Math.max(now, decidedUntil)
  const nextAt = keepsNext
    ? within(existing.nextAt, spec.expiresAt)
    : nextPlanned(spec, anchorAt, after, defaultZone)
  const reason: Reason = spec.disabled && !existing.spec.disabled ? 'disabled' : 'edited'
  const missed = existing.nextAt === nextAt ? [] : dueRow(existing, now, defaultZone, reason)
  const retracts = isWrong && !keepsNext && nextAt !== null
  return {changed: true, revision: existing.revision + 1, anchorAt, nextAt, missed, retracts}
}

/** A single `missed` row for the job's due, undecided planned times; empty when nothing is due. */
export function dueRow(
  job: JobRecord,
  now: number,
  defaultZone: string,
  reason: Reason,
): StoredLaunch[] {
  const {nextAt: scheduledAt, spec, anchorAt} = job
  if (scheduledAt === null || scheduledAt > now) return []
  const missed = {scheduledAt, decision: 'missed', reason, targets: []} as const
  const schedule = scheduleOf(spec, anchorAt, defaultZone)
  if (schedule === null) return [{...missed, scheduledUntil: scheduledAt, count: 1}]
  const times = undecidedTimes(schedule, scheduledAt)
  const until = dueUntil(spec, scheduledAt, now)
  const scheduledUntil = times.previous(until) ?? scheduledAt
  return [{...missed, scheduledUntil, count: times.count(scheduledAt, until)}]
}

/**
 * True when an earlier `expires_at` excludes times that are due already. No later pass would decide them, so
 * all due times are recorded now.
 */
function cutsDue(job: JobRecord, spec: JobSpec, now: number, defaultZone: string): boolean {
  if (spec.expiresAt === null || spec.expiresAt > now) return false
  const [due] = dueRow(job, now, defaultZone, 'edited')
  return due !== undefined && due.scheduledUntil >= spec.expiresAt
}

/** A past or present `@at` of a job being created: it is due now, and catch-up decides. */
function pastInstant(spec: JobSpec, anchorAt: number, now: number, zone: string): number | null {
  if (spec.disabled) return null
  const schedule = scheduleOf(spec, anchorAt, zone)
  if (schedule === null || schedule.kind !== 'at') return null
  const planned = schedule.previous(now + 1)
  if (planned === null || (spec.startsAt !== null && planned < spec.startsAt)) return null
  return within(planned, spec.expiresAt)
}

function within(planned: number, expiresAt: number | null): number | null {
  return expiresAt !== null && planned >= expiresAt ? null : planned
}

const KEYS_OF_PHASE = keysReplanning('phase')
const KEYS_OF_PLAN = keysReplanning('always')
const KEYS_IF_SET = keysReplanning('if_set')

function keysReplanning(effect: JobField['replans']): readonly JobKey[] {
  return JOB_FIELD_LIST.filter(({replans}) => replans === effect).map(({key}) => key)
}

function keepsPhase(old: JobSpec, spec: JobSpec): boolean {
  return KEYS_OF_PHASE.every((key) => old[key] === spec[key])
}

/** True when the undecided planned times of the old definition are those of the new one too. */
export function keepsPlan(old: JobSpec, spec: JobSpec): boolean {
  const isSet = (of: JobSpec, key: JobKey) => !isUnset(JOB_FIELDS[key], of[key])
  return (
    keepsPhase(old, spec) &&
    KEYS_OF_PLAN.every((key) => old[key] === spec[key]) &&
    KEYS_IF_SET.every((key) => isSet(old, key) === isSet(spec, key))
  )
}
