/**
 * The schedule of a job, from its text to its planned times: cron expressions, descriptors,
 * `@every`, `@at`. The one entry to everything about schedules; the parts stand in schedule/. It
 * decides nothing about lateness or catch-up, and takes the current time from nowhere: every answer
 * depends on the arguments alone.
 */
import {formatDuration, parseDuration} from '../../lib/duration.ts'
import {BoundedCache} from '../../lib/lru.ts'
import {daysInMonth, PLANNED_MAX, PLANNED_MIN, type Schedule} from './calendar.ts'
import {compileExpression, EXAMPLE_INSTANT} from './cron.ts'
import {InstantSchedule, IntervalSchedule, MANUAL_SCHEDULE} from './interval.ts'
import {findZone} from './zone.ts'

export type {Schedule}

/** What besides its text decides a schedule. */
export interface ScheduleContext {
  /** IANA name, never `''`. */
  readonly timezone: string
  /** The job's name: what `~` is computed from. */
  readonly name: string
  /** Phase of `@every`, ms since the epoch. */
  readonly anchorAt: number
}

export type ScheduleResult =
  | {readonly ok: true; readonly schedule: Schedule}
  /** One sentence that names the field of the expression, what is wrong with it, and the fix. */
  | {readonly ok: false; readonly problem: string}

/** Far above any real expression; keeps refusals readable and parsing cheap. */
export const SCHEDULE_LENGTH_MAX = 256

/**
 * A second is what the clock of a scheduler can promise; a shorter interval belongs into the job
 * itself.
 */
export const INTERVAL_MIN_MS = 1000

/**
 * Compiled schedules that are remembered, at about 1 KB each: a launch pass asks for the same ones
 * again and again.
 */
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
 * Reads a schedule. The same text, zone, name and anchor always give the same planned times, in any
 * process. A text seen before costs about a microsecond.
 */
export function parseSchedule(text: string, context: ScheduleContext): ScheduleResult {
  if (text.length > SCHEDULE_LENGTH_MAX) {
    const what = `the schedule is ${text.length} characters long`
    return {ok: false, problem: `${what}: use at most ${SCHEDULE_LENGTH_MAX}`}
  }
  const nameSum = text.includes('~') ? sumOfCodePoints(context.name) : 0
  // With its length the zone ends where it ends: no two questions share a key.
  const key = `${nameSum} ${context.timezone.length} ${context.timezone}${text}`
  const known = compiled.get(key)
  if (known !== undefined) return known
  const result = parseAnew(text, context, nameSum)
  // An interval also depends on its anchor, and costs next to nothing to read again.
  if (result.ok && result.schedule.kind !== 'every') compiled.set(key, result)
  return result
}

const ZONE_PREFIX = /^\s*(TZ|CRON_TZ)=(\S*)(.*)$/s

/** The zone in which `text` is read: that of its `TZ=` prefix, else `timezone`. */
export function zoneOf(text: string, timezone: string): string {
  return ZONE_PREFIX.exec(text)?.[2] ?? timezone
}

function parseAnew(text: string, context: ScheduleContext, nameSum: number): ScheduleResult {
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
  const all = `${Object.keys(DESCRIPTORS).join(', ')}, @manually, @every <duration> and @at <time>`
  return {ok: false, problem: `${JSON.stringify(body)} is not a descriptor: there are ${all}`}
}

/**
 * `@every  1h30m` → `['@every', '1h30m']`. Only the descriptor itself may be written in any case.
 */
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

const INSTANT_SHAPE =
  /^(\d{4}-\d\d-\d\d)[Tt]([01]\d|2[0-3])(:[0-5]\d:[0-5]\d)(\.\d+)?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/

/**
 * RFC 3339 with any offset, to the ms; `null` for anything else, leap seconds too: no clock here
 * can show them.
 */
function readInstant(text: string): number | null {
  const match = INSTANT_SHAPE.exec(text)
  if (match === null) return null
  const [, date, hour, minuteSecond, fraction, offset] = match
  const [year, month, day] = date!.split('-').map(Number) as [number, number, number]
  if (!isDate(year, month, day)) return null
  const millis = (fraction ?? '.').slice(1, 4).padEnd(3, '0')
  const at = Date.parse(`${date}T${hour}${minuteSecond}.${millis}${offset!.toUpperCase()}`)
  return at >= PLANNED_MIN && at <= PLANNED_MAX ? at : null
}

function isDate(year: number, month: number, day: number): boolean {
  return month >= 1 && month <= 12 && day >= 1 && day <= daysInMonth(year, month)
}

/** What `~` is made from: stable everywhere, and different for most names. */
function sumOfCodePoints(name: string): number {
  let sum = 0
  for (const character of name) sum += character.codePointAt(0)!
  return sum
}
