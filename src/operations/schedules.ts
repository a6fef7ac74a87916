/** Next planned times, of a stored job or of a schedule that is not stored. */
import {DomainError} from '../core/errors.ts'
import type {JobSpec} from '../core/job.ts'
import {nextPlanned, scheduleOf} from '../core/next-time.ts'
import {parseSchedule, SCHEDULE_LENGTH_MAX, zoneOf} from '../core/schedule/parse.ts'
import {isKnownZone} from '../core/schedule/zone.ts'
import type {PlannedTimesJson} from '../wire/cluster.ts'
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
  readonly count: number
}

export function createSchedules({clock, store}: OperationsContext) {
  /** Throws `schedule_invalid`. */
  async function preview(call: PreviewCall): Promise<PlannedTimesJson> {
    const timezone = call.timezone === '' ? await store.defaultTimezone() : call.timezone
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
        `schedule: must have at most ${SCHEDULE_LENGTH_MAX} characters.`,
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

  /** The undecided planned times of a stored job. Throws `job_unknown`. */
  async function next(name: string, count: number): Promise<PlannedTimesJson> {
    const [found, zone] = await Promise.all([store.job(name), store.defaultTimezone()])
    const job = requireJob(name, found)
    const {spec, anchorAt, nextAt} = job
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
