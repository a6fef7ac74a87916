/**
 * What a schedule means: its next planned times, for a stored job or for a text somebody is still writing.
 */
import type {JobSpec} from '../core/job.ts'
import {nextPlanned, scheduleOf} from '../core/next-time.ts'
import {DomainError} from '../core/errors.ts'
import {parseSchedule, SCHEDULE_LENGTH_MAX, zoneOf} from '../core/schedule/parse.ts'
import {isKnownZone} from '../core/schedule/zone.ts'
import type {PlannedTimesJson} from '../wire/cluster.ts'
import {formatTime} from '../wire/time.ts'
import type {OperationsDependencies} from './context.ts'
import {known} from './jobs.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

export const COUNT_FALLBACK = 10
export const COUNT_LIMITS = {minimum: 1, maximum: 100}

/** The phase of `@every` counts in whole seconds. */
const SECOND_MS = 1000

export interface PreviewCall {
  readonly schedule: string
  /** `''` = the default zone. */
  readonly timezone: string
  /** What `~` is derived from. */
  readonly name: string
  readonly count: number
}

export function createSchedules(
  {clock, settings}: Pick<OperationsDependencies, 'clock' | 'settings'>,
  store: StoreWithDeadlines,
) {
  /** Throws `schedule_invalid`. */
  function preview(call: PreviewCall): PlannedTimesJson {
    const timezone = call.timezone === '' ? settings.defaultTimezone() : call.timezone
    if (!isKnownZone(timezone))
      throw new DomainError(
        'schedule_invalid',
        `timezone: "${timezone.slice(0, 64)}" is not a known time zone; use an IANA name.`,
      )
    const text = call.schedule.trim()
    if (text === '') throw new DomainError('schedule_invalid', 'schedule: is required.')
    if (text.length > SCHEDULE_LENGTH_MAX)
      throw new DomainError(
        'schedule_invalid',
        `schedule: is longer than ${SCHEDULE_LENGTH_MAX} characters.`,
      )
    const now = clock.now()
    const anchorAt = now - (now % SECOND_MS)
    const parsed = parseSchedule(text, {timezone, name: call.name, anchorAt})
    if (!parsed.ok) throw new DomainError('schedule_invalid', `schedule: ${parsed.problem}`)
    const {schedule} = parsed
    return {
      schedule: text,
      timezone: zoneOf(text, timezone),
      next: take(call.count, now, (after) => schedule.next(after)),
    }
  }

  /** The planned times of a stored job that are not decided yet. Throws `job_unknown`. */
  async function next(name: string, count: number): Promise<PlannedTimesJson> {
    const job = known(name, await store.job(name))
    const {spec, anchorAt, nextAt} = job
    const zone = settings.defaultTimezone()
    const following = (after: number) => nextPlanned(spec, anchorAt, after, zone)
    return {
      schedule: spec.schedule,
      timezone: zoneOf(spec.schedule, spec.timezone === '' ? zone : spec.timezone),
      next:
        nextAt === null || !fires(spec, anchorAt, zone) ? [] : take(count, nextAt - 1, following),
    }
  }

  return {preview, next}
}

function fires(spec: JobSpec, anchorAt: number, zone: string): boolean {
  return !spec.disabled && scheduleOf(spec, anchorAt, zone) !== null
}

function take(count: number, from: number, next: (after: number) => number | null): string[] {
  const times: string[] = []
  for (let after = next(from); after !== null && times.length < count; after = next(after))
    times.push(formatTime(after))
  return times
}
