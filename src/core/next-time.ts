/**
 * Planned times of a job: its schedule within its window, and the effect of a changed definition on
 * `next`. Only this file implements the rule that a definition has no planned times before it was accepted.
 */
import type {JobRecord, JobSpec} from './job.ts'
import type {StoredLaunch, Reason} from './launch-record.ts'
import {parseSchedule, type Schedule} from './schedule/parse.ts'

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
}

/** Deep equality of two specs as stored. The key order of processors counts: they run in it. */
export function sameSpec(one: JobSpec, other: JobSpec): boolean {
  return specText(one) === specText(other)
}

/** Sorts fields and maps: one spec may come from a request and the other from the store. */
function specText(spec: JobSpec): string {
  const sorted = (map: object) => Object.entries(map).toSorted(([a], [b]) => (a < b ? -1 : 1))
  return JSON.stringify([
    sorted({...spec, tags: 0, metadata: 0, executorConfig: 0, processors: 0}),
    sorted(spec.tags),
    sorted(spec.metadata),
    sorted(spec.executorConfig),
    Object.entries(spec.processors).map(([name, config]) => [name, sorted(config)]),
  ])
}

/**
 * Decides the effects of storing `spec`. `existing` is the stored job or `null`. `runsPast` is true only
 * for a submit that creates: a past `@at` is then subject to catch-up. A restore never plans the past.
 */
export function planDefinition(
  existing: JobRecord | null,
  spec: JobSpec,
  now: number,
  defaultZone: string,
  runsPast: boolean,
): DefinitionChange {
  if (existing === null) {
    const anchorAt = anchorFor(spec, now)
    // The second of creation is only the phase of `@every`. A `starts_at` of this instant is a planned time.
    const after = spec.startsAt === null ? now : now - 1
    const nextAt =
      (runsPast ? pastInstant(spec, anchorAt, now, defaultZone) : null) ??
      nextPlanned(spec, anchorAt, after, defaultZone)
    return {changed: true, revision: 1, anchorAt, nextAt, missed: []}
  }
  if (sameSpec(existing.spec, spec)) {
    const {revision, anchorAt, nextAt} = existing
    return {changed: false, revision, anchorAt, nextAt, missed: []}
  }
  const keeps = samePlan(existing.spec, spec)
  const anchorAt = keepsPhase(existing.spec, spec) ? existing.anchorAt : anchorFor(spec, now)
  const after = Math.max(now, existing.decidedUntil ?? -Infinity)
  const nextAt =
    keeps && existing.nextAt !== null && !cutsDue(existing, spec, now, defaultZone)
      ? within(existing.nextAt, spec.expiresAt)
      : nextPlanned(spec, anchorAt, after, defaultZone)
  const reason: Reason = spec.disabled && !existing.spec.disabled ? 'disabled' : 'edited'
  const missed = existing.nextAt === nextAt ? [] : dueRow(existing, now, defaultZone, reason)
  return {changed: true, revision: existing.revision + 1, anchorAt, nextAt, missed}
}

/** One `missed` row for the job's due, undecided planned times; empty when nothing is due. */
function dueRow(job: JobRecord, now: number, defaultZone: string, reason: Reason): StoredLaunch[] {
  if (job.nextAt === null || job.nextAt > now) return []
  const schedule = scheduleOf(job.spec, job.anchorAt, defaultZone)
  if (schedule === null) {
    const at = {scheduledAt: job.nextAt, scheduledUntil: job.nextAt, count: 1}
    return [{...at, decision: 'missed', reason, targets: []}]
  }
  const until = Math.min(now + 1, job.spec.expiresAt ?? Infinity)
  const scheduledUntil = schedule.previous(until) ?? job.nextAt
  const count = Math.max(1, schedule.count(job.nextAt, until))
  return [{scheduledAt: job.nextAt, scheduledUntil, count, decision: 'missed', reason, targets: []}]
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

function keepsPhase(old: JobSpec, spec: JobSpec): boolean {
  return old.schedule === spec.schedule && old.startsAt === spec.startsAt
}

/** True when the undecided planned times of the old definition are those of the new one too. */
function samePlan(old: JobSpec, spec: JobSpec): boolean {
  return (
    keepsPhase(old, spec) &&
    old.timezone === spec.timezone &&
    old.disabled === spec.disabled &&
    (old.parentJob === '') === (spec.parentJob === '')
  )
}
