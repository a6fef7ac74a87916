/** Next planned times, of a stored job or of a schedule that is not stored. */
import {DomainError} from '../core/errors.ts'
import {pausedUntil} from '../core/firing.ts'
import type {JobSpec} from '../core/job.ts'
import {nextPlanned, scheduleOf} from '../core/next-time.ts'
import {clockChanges, localTimes} from '../core/schedule/clock-changes.ts'
import {
  parseSchedule,
  type Schedule,
  SCHEDULE_LENGTH_MAX,
  type ScheduleContext,
  zoneOf,
} from '../core/schedule/parse.ts'
import {isKnownZone} from '../core/schedule/zone.ts'
import {parseTime} from '../lib/rfc3339.ts'
import type {PlannedTimesJson} from '../wire/cluster.ts'
import {PLANNED_COUNT, type PlannedRange, QueryProblem} from '../wire/query.ts'
import {formatTime} from '../wire/time.ts'
import type {OperationsContext} from './context.ts'
import {requireJob} from './jobs.ts'

/** The anchor of `@every` has no fraction of a second. */
const SECOND_MS = 1000

export interface PreviewCall {
  readonly schedule: string
  /** `''` = the default zone. */
  readonly timezone: string
  /** Job name: the seed of `~`. */
  readonly name: string
  readonly range: PlannedRange
}

export function createSchedules({clock, store}: OperationsContext) {
  /** Throws `schedule_invalid`. */
  async function preview(call: PreviewCall): Promise<PlannedTimesJson> {
    const timezone = call.timezone === '' ? await store.defaultTimezone() : call.timezone
    if (!isKnownZone(timezone))
      throw new DomainError(
        'schedule_invalid',
        `timezone: "${timezone.slice(0, 64)}" is not a known time zone; use an IANA name ` +
          'such as "Europe/Berlin".',
      )
    const text = call.schedule.trim()
    if (text === '') throw new DomainError('schedule_invalid', 'schedule: is required.')
    if (text.length > SCHEDULE_LENGTH_MAX)
      throw new DomainError(
        'schedule_invalid',
        `schedule: must have at most ${SCHEDULE_LENGTH_MAX} characters.`,
      )
    const now = clock.now()
    const anchorAt = now - (now % SECOND_MS)
    const parsed = parseSchedule(text, {timezone, name: call.name, anchorAt})
    if (!parsed.ok) throw new DomainError('schedule_invalid', `schedule: ${parsed.problem}`)
    const {schedule} = parsed
    const zone = zoneOf(text, timezone)
    const span = spanOf(call.range, zone, now)
    const times = take(span, (after) => schedule.next(after))
    const context = {timezone, name: call.name, anchorAt}
    return encode({text, zone, span, times, schedule, context}, UNSTORED)
  }

  /** The undecided planned times of a stored job. Throws `job_unknown`. */
  async function next(name: string, range: PlannedRange): Promise<PlannedTimesJson> {
    const [found, fallback, putBack, pauses] = await Promise.all([
      store.job(name),
      store.defaultTimezone(),
      store.pausedSinceRestore(),
      store.firingPauses(),
    ])
    const {spec, anchorAt, nextAt} = requireJob(name, found)
    const timezone = spec.timezone === '' ? fallback : spec.timezone
    const zone = zoneOf(spec.schedule, timezone)
    const schedule = spec.disabled ? null : scheduleOf(spec, anchorAt, fallback)
    const context = {timezone, name, anchorAt}
    const asked = spanOf(range, isKnownZone(zone) ? zone : 'UTC', clock.now())
    // A due time is not decided yet, and the first one.
    const first = (nextAt ?? 0) - 1
    const after = range.from === null ? first : Math.max(asked.after, first)
    const span = {...asked, after}
    const following = (at: number) => nextPlanned(spec, anchorAt, at, fallback)
    const times = nextAt === null || schedule === null ? NO_TIMES : take(span, following)
    const until = putBack === null ? pausedUntil(pauses, name) : Infinity
    const state = {
      reason: nextAt === null || schedule === null ? reasonOf(spec, schedule) : '',
      paused: until > -Infinity,
      paused_until: Number.isFinite(until) ? formatTime(until) : null,
    } as const
    return encode({text: spec.schedule, zone, span, times, schedule, context}, state)
  }

  return {preview, next}
}

interface Span {
  /** Planned times are later. */
  readonly after: number
  /** Exclusive. */
  readonly until: number
  readonly count: number
}

/** Throws `query_invalid`. */
function spanOf({count, from, to}: PlannedRange, zone: string, now: number): Span {
  const after = from === null ? now : instantIn('from', from, zone) - 1
  const until = to === null ? Infinity : instantIn('to', to, zone)
  if (from !== null && until <= after + 1)
    throw new QueryProblem('to: must be later than from; nothing is between them')
  return {after: from === null ? now : after, until, count}
}

const DATE = /^\d{4}-\d\d-\d\d$/
const WALL = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/

/**
 * Instant of a time in the zone, unless it has an offset. A wall time in a gap is the instant after it; of
 * two, the first.
 */
function instantIn(name: string, text: string, zone: string): number {
  const wall = DATE.test(text) ? `${text}T00:00` : text
  const at = parseTime(wall)
  if (at === null)
    throw new QueryProblem(
      `${name}: "${text.slice(0, 64)}" is no time; use 2027-03-28, 2027-03-28T02:00 or ` +
        '2027-03-28T02:00:00+01:00',
    )
  if (!WALL.test(wall)) return at
  return Temporal.PlainDateTime.from(wall).toZonedDateTime(zone).epochMilliseconds
}

interface Taken {
  readonly at: readonly number[]
  readonly more: boolean
}

const NO_TIMES: Taken = {at: [], more: false}

function take({after, until, count}: Span, next: (after: number) => number | null): Taken {
  const at: number[] = []
  let planned = next(after)
  while (planned !== null && planned < until && at.length < count) {
    at.push(planned)
    planned = next(planned)
  }
  return {at, more: planned !== null && planned < until}
}

interface Planned {
  readonly text: string
  readonly zone: string
  readonly span: Span
  readonly times: Taken
  readonly schedule: Schedule | null
  readonly context: ScheduleContext
}

type State = Pick<PlannedTimesJson, 'reason' | 'paused' | 'paused_until'>

/** State of a schedule that no job has. */
const UNSTORED: State = {reason: '', paused: false, paused_until: null}

/** Why a job has no next planned time. */
function reasonOf(
  {disabled, parentJob, expiresAt}: JobSpec,
  schedule: Schedule | null,
): State['reason'] {
  if (disabled) return 'disabled'
  if (parentJob !== '') return 'dependent'
  if (schedule?.kind === 'manual') return 'no_schedule'
  return expiresAt === null ? 'ended' : 'expired'
}

function encode(
  {text, zone, span, times: {at, more}, schedule, context}: Planned,
  state: State,
): PlannedTimesJson {
  const last = at.at(-1)
  const known = {schedule: text, timezone: zone, next: at.map(formatTime), more, ...state}
  // A stored zone may be unknown to this version; then nothing is planned.
  if (last === undefined || schedule === null) return {...known, planned: [], clock_changes: []}
  const changes = clockChanges(zone, Math.min(span.after, at[0]!), last, PLANNED_COUNT.maximum)
  return {
    ...known,
    planned: localTimes(at, text, schedule, context, zone).map((time) => ({
      at: formatTime(time.at),
      local: localText(time.at, time.offsetMs),
      shift: time.shift,
      moved_from: time.plannedWall === null ? '' : wallText(time.plannedWall),
    })),
    clock_changes: changes.map((change) => ({
      at: formatTime(change.at),
      before: offsetText(change.offsetBeforeMs),
      after: offsetText(change.offsetAfterMs),
    })),
  }
}

function localText(at: number, offsetMs: number): string {
  return `${wallText(at + offsetMs)}${offsetText(offsetMs)}`
}

function wallText(wall: number): string {
  return new Date(wall).toISOString().slice(0, 19)
}

/** RFC 3339 has no seconds in offsets, which some zones had long ago. */
function offsetText(offsetMs: number): string {
  const minutes = Math.round(Math.abs(offsetMs) / 60_000)
  const two = (value: number) => String(value).padStart(2, '0')
  return `${offsetMs < 0 ? '-' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`
}
