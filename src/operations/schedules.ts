/** Next planned times, of a stored job or of a schedule that is not stored. */
import {DomainError} from '../core/errors.ts'
import {pausedUntil} from '../core/firing.ts'
import type {JobSpec} from '../core/job.ts'
import {nextPlanned, scheduleOf} from '../core/next-time.ts'
import {
  type ClockChange,
  clockChanges,
  type LocalTime,
  localTimes,
} from '../core/schedule/clock-changes.ts'
import {
  parseSchedule,
  type Schedule,
  SCHEDULE_LENGTH_MAX,
  type ScheduleContext,
  zoneOf,
} from '../core/schedule/parse.ts'
import {instantOf, shownZone} from '../core/schedule/instant.ts'
import {isKnownZone} from '../core/schedule/zone.ts'
import type {OperationsContext} from './context.ts'
import {requireJob} from './jobs.ts'

/** The anchor of `@every` has no fraction of a second. */
const SECOND_MS = 1000

/** Changes of the wall clock in one reply. */
const CHANGES_MAX = 100

export interface PlannedRange {
  readonly count: number
  /** Start as written; `null` = now. */
  readonly from: string | null
  /** End as written; `null` = no end. */
  readonly to: string | null
}

export interface PlannedTimes {
  readonly schedule: string
  readonly timezone: string
  /** Soonest first. */
  readonly times: readonly LocalTime[]
  /** Changes of the wall clock up to the last of these times. */
  readonly changes: readonly ClockChange[]
  /** Further times follow before the end of the range. */
  readonly more: boolean
  /** Why a stored job has no planned times; `''` = it has. */
  readonly reason: '' | 'disabled' | 'dependent' | 'no_schedule' | 'expired' | 'ended'
  /** Firing of the stored job is paused. */
  readonly paused: boolean
  /** `null` = the pause has no end, or there is none. */
  readonly pausedUntil: number | null
}

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
  async function preview(call: PreviewCall): Promise<PlannedTimes> {
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
    return plannedTimes({text, zone, span, times, schedule, context}, UNSTORED)
  }

  /** The undecided planned times of a stored job. Throws `job_unknown`. */
  async function next(name: string, range: PlannedRange): Promise<PlannedTimes> {
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
    const asked = spanOf(range, shownZone(zone), clock.now())
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
      pausedUntil: Number.isFinite(until) ? until : null,
    } as const
    return plannedTimes({text: spec.schedule, zone, span, times, schedule, context}, state)
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
    throw queryInvalid('to: must be later than from; nothing is between them')
  return {after: from === null ? now : after, until, count}
}

/** Throws `query_invalid`. */
function instantIn(name: string, text: string, zone: string): number {
  const at = instantOf(text, zone)
  if (at === null)
    throw queryInvalid(
      `${name}: "${text.slice(0, 64)}" is no time; use 2027-03-28, 2027-03-28T02:00 or ` +
        '2027-03-28T02:00:00+01:00',
    )
  return at
}

function queryInvalid(problem: string): DomainError {
  return new DomainError('query_invalid', `${problem}.`)
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

type State = Pick<PlannedTimes, 'reason' | 'paused' | 'pausedUntil'>

/** State of a schedule that no job has. */
const UNSTORED: State = {reason: '', paused: false, pausedUntil: null}

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

function plannedTimes(
  {text, zone, span, times: {at, more}, schedule, context}: Planned,
  state: State,
): PlannedTimes {
  const last = at.at(-1)
  const known = {schedule: text, timezone: zone, more, ...state}
  // A stored zone may be unknown to this version; then nothing is planned.
  if (last === undefined || schedule === null) return {...known, times: [], changes: []}
  return {
    ...known,
    times: localTimes(at, text, schedule, context, zone),
    changes: clockChanges(zone, Math.min(span.after, at[0]!), last, CHANGES_MAX),
  }
}
