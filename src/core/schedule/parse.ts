/**
 * The schedule of a job, from its text to its planned times: cron expressions, descriptors, `@every`
 * and `@at`. The only entry to this folder. Lateness and catch-up are decided elsewhere. The current
 * time is never read: every result depends on the arguments alone.
 */
import {formatDuration, parseDuration} from '../../lib/duration.ts'
import {BoundedCache} from '../../lib/lru.ts'
import {meantBy} from '../../lib/nearest.ts'
import {parseTime} from '../../lib/rfc3339.ts'
import {PLANNED_MAX, PLANNED_MIN, type Schedule, type ScheduleResult} from './calendar.ts'
import {compileExpression, EXAMPLE_INSTANT} from './cron.ts'
import {InstantSchedule, IntervalSchedule, MANUAL_SCHEDULE} from './interval.ts'
import {findZone} from './zone.ts'

export type {Schedule}

/** The inputs of a schedule besides its text. */
export interface ScheduleContext {
  /** IANA name, never `''`. */
  readonly timezone: string
  /** The job's name: `~` is computed from it. */
  readonly name: string
  /** Phase of `@every`, ms since the epoch. */
  readonly anchorAt: number
}

/** Length in characters. Far above any real expression; keeps errors readable and parsing cheap. */
export const SCHEDULE_LENGTH_MAX = 256

/** A scheduler's clock can promise a second. A shorter interval belongs in the job itself. */
const INTERVAL_MIN_MS = 1000

/** Compiled schedules in the cache, about 1 KB each. Every launch pass uses the same ones. */
const COMPILED_MAX = 20_000

const DESCRIPTORS: Readonly<Record<string, string>> = {
  '@yearly': '0 0 0 1 1 *',
  '@annually': '0 0 0 1 1 *',
  '@monthly': '0 0 0 1 * *',
  '@weekly': '0 0 0 * * 0',
  '@daily': '0 0 0 * * *',
  '@midnight': '0 0 0 * * *',
  '@hourly': '0 0 * * * *',
  '@minutely': '0 * * * * *',
}

const compiled = new BoundedCache<ScheduleResult>(COMPILED_MAX)

/**
 * Parses a schedule. The same text, zone, name and anchor give the same planned times in any process.
 * A cached text costs about a microsecond.
 */
export function parseSchedule(text: string, context: ScheduleContext): ScheduleResult {
  if (text.length > SCHEDULE_LENGTH_MAX) {
    const what = `the schedule is ${text.length} characters long`
    return {ok: false, problem: `${what}: use at most ${SCHEDULE_LENGTH_MAX}`}
  }
  const nameSum = text.includes('~') ? sumOfCodePoints(context.name) : 0
  // The length of the zone separates it from the text: no two inputs share a key.
  const key = `${nameSum} ${context.timezone.length} ${context.timezone}${text}`
  const known = compiled.get(key)
  if (known !== undefined) return known
  const result = parseUncached(text, context, nameSum)
  // An interval also depends on its anchor, and is cheap to parse again.
  if (result.ok && result.schedule.kind !== 'every') compiled.set(key, result)
  return result
}

const ZONE_PREFIX = /^\s*(TZ|CRON_TZ)=(\S*)(.*)$/s

/** The zone of the schedule `text`: its `TZ=` prefix, else `timezone`. */
export function zoneOf(text: string, timezone: string): string {
  return ZONE_PREFIX.exec(text)?.[2] ?? timezone
}

/** The wall times that the schedule `text` matches, on a clock that never changes; `null` = invalid. */
export function wallSchedule(text: string, context: ScheduleContext): Schedule | null {
  const body = ZONE_PREFIX.exec(text)?.[3] ?? text
  const parsed = parseSchedule(body, {...context, timezone: 'UTC'})
  return parsed.ok ? parsed.schedule : null
}

function parseUncached(text: string, context: ScheduleContext, nameSum: number): ScheduleResult {
  const prefix = ZONE_PREFIX.exec(text)
  const zoneName = prefix === null ? context.timezone : prefix[2]!
  const zone = findZone(zoneName)
  if (zone === null) {
    const where = prefix === null ? 'the timezone' : `the ${prefix[1]}= prefix`
    const what = `${where} ${JSON.stringify(zoneName)} is not a time zone this server knows`
    return {ok: false, problem: `${what}: use an IANA name such as Europe/Berlin or UTC`}
  }
  const body = (prefix === null ? text : prefix[3]!).trim()
  if (body === '') {
    const problem =
      'the schedule is empty: write a cron expression such as 0 30 2 * * *, or @manually'
    return {ok: false, problem}
  }
  if (!body.startsWith('@')) return compileExpression(body, zone, nameSum)
  const [descriptor, argument] = splitDescriptor(body)
  switch (descriptor) {
    case '@every':
      return parseInterval(argument, context.anchorAt)
    case '@at':
      return parseInstant(argument)
    case '@manually':
      if (argument === '') return {ok: true, schedule: MANUAL_SCHEDULE}
      break
    default:
      if (argument === '' && Object.hasOwn(DESCRIPTORS, descriptor)) {
        return compileExpression(DESCRIPTORS[descriptor]!, zone, nameSum)
      }
  }
  return {
    ok: false,
    problem: `${JSON.stringify(body)} is not a descriptor: ${adviceFor(descriptor)}`,
  }
}

function adviceFor(descriptor: string): string {
  if (descriptor === '@reboot')
    return 'Belfry plans times, not starts of a machine. Run the command from a systemd unit'
  const simple = [...Object.keys(DESCRIPTORS), '@manually']
  const meant = meantBy(descriptor, [...simple, '@every', '@at'])
  if (meant !== '') return `did you mean ${meant}?`
  return `there are ${simple.join(', ')}, @every <duration> and @at <time>`
}

/** `@every  1h30m` → `['@every', '1h30m']`. Only the descriptor is case-insensitive. */
function splitDescriptor(body: string): [descriptor: string, argument: string] {
  const blank = body.search(/\s/)
  if (blank < 0) return [body.toLowerCase(), '']
  return [body.slice(0, blank).toLowerCase(), body.slice(blank).trim()]
}

function parseInterval(text: string, anchorAt: number): ScheduleResult {
  const ms = parseDuration(text)
  if (ms === null) {
    const what = `@every has ${JSON.stringify(text)}, which is not a duration`
    const fix = 'write numbers with units, such as 90s, 1h30m or 1.5h, 100 years at most'
    return {ok: false, problem: `${what}: ${fix}`}
  }
  if (ms < INTERVAL_MIN_MS) {
    const what = `@every has ${JSON.stringify(text)}, which is too short`
    return {ok: false, problem: `${what}: use ${formatDuration(INTERVAL_MIN_MS)} or more`}
  }
  return {ok: true, schedule: new IntervalSchedule(anchorAt, Math.round(ms))}
}

function parseInstant(text: string): ScheduleResult {
  const at = readInstant(text)
  if (at !== null) return {ok: true, schedule: new InstantSchedule(at)}
  const what = `@at has ${JSON.stringify(text)}, which is not a date and time with an offset`
  return {
    ok: false,
    problem: `${what}: write it like ${EXAMPLE_INSTANT} or 2030-01-31T10:00:00+02:00`,
  }
}

/** An offset is required: without one, the time of day of a schedule would depend on a zone. */
const INSTANT_SHAPE = /T\d\d:\d\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/i

/** RFC 3339 with seconds and offset, or `null`. Leap seconds are rejected: no clock here has them. */
function readInstant(text: string): number | null {
  const at = INSTANT_SHAPE.test(text) ? parseTime(text) : null
  return at !== null && at >= PLANNED_MIN && at <= PLANNED_MAX ? at : null
}

/** The number behind `~`: stable in every process, and different for most names. */
function sumOfCodePoints(name: string): number {
  let sum = 0
  for (const character of name) sum += character.codePointAt(0)!
  return sum
}
