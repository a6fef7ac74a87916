/**
 * Values of flags and arguments. Impossible values are refused before a request is sent: `UsageError` names
 * the flag, and the exit code is 2.
 */
import {DURATION_MAX_MS, formatDuration, parseLength} from '../lib/duration.ts'
import {formatTime, parseTime} from '../lib/rfc3339.ts'
import {PLANNED_COUNT} from '../wire/query.ts'
import {UsageError} from './errors.ts'

/** Beyond it, no limit is meant. */
const WHOLE_MAX = 999_999_999

/** A reader of a whole number within the range. */
export function whole(flag: string, minimum = 1, maximum = WHOLE_MAX): (text: string) => number {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : NaN
    if (value >= minimum && value <= maximum) return value
    const range = maximum === WHOLE_MAX ? `${minimum} on` : `${minimum} to ${maximum}`
    throw refused(flag, `a whole number from ${range}`, text)
  }
}

/** A reader of a known word. */
export function oneOf<Word extends string>(
  flag: string,
  words: readonly Word[],
): (text: string) => Word {
  return (text) => {
    const found = words.find((word) => word === text)
    if (found === undefined) throw refused(flag, `one of ${words.join(', ')}`, text)
    return found
  }
}

/** A time as the API has it. A duration counts from `now`: `sign` -1 = back. */
export function timeOf(flag: string, text: string, now: number, sign: 1 | -1): string {
  const lengthMs = parseLength(text)
  if (lengthMs !== null) return formatTime(now + sign * lengthMs)
  if (/^\d+(ms|s|m|h|d)$/.test(text))
    throw refused(flag, `at most ${formatDuration(DURATION_MAX_MS)}`, text)
  if (parseTime(text) !== null) return text
  throw refused(flag, 'a duration such as 90d, or a time such as 2027-01-31T00:00:00Z', text)
}

/** The time of an option that says a duration before now; `undefined` = the option is not given. */
export function pastTimeOf(
  flag: string,
  text: string | undefined,
  now: number,
): string | undefined {
  return text === undefined ? undefined : timeOf(flag, text, now, -1)
}

/** A shorter timeout leaves no server the time to reply. */
const TIMEOUT_MIN_MS = 100
/** Timers of sockets take no more. */
const TIMEOUT_MAX_MS = 24 * 3_600_000

/** A reader of a time-out, in ms. */
export function timeoutOf(flag: string): (text: string) => number {
  return (text) => {
    const lengthMs = parseLength(text)
    if (lengthMs !== null && lengthMs >= TIMEOUT_MIN_MS && lengthMs <= TIMEOUT_MAX_MS)
      return lengthMs
    throw refused(flag, 'a duration from 100ms to 24h, such as 10s', text)
  }
}

/** A duration, as the API reads it. */
export function durationText(flag: string, text: string): string {
  if (parseLength(text) !== null) return text
  throw refused(flag, 'a duration such as 10m or 1h30m', text)
}

/** A reader of the number of planned times. */
export const plannedCount = whole('--count', PLANNED_COUNT.minimum, PLANNED_COUNT.maximum)

const BOUND = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?) ?(Z|[+-]\d\d:\d\d)?)?$/

/**
 * A bound of planned times, as the API takes it. A date or time without offset stays: it is in the zone of
 * the schedule, which the server knows.
 */
export function plannedBound(
  flag: string,
  text: string | undefined,
  now: number,
): string | undefined {
  if (text === undefined) return undefined
  const lengthMs = parseLength(text)
  if (lengthMs !== null) return formatTime(now + lengthMs)
  const [, date, time, offset = ''] = BOUND.exec(text) ?? []
  const bound = time === undefined ? date : `${date}T${time}${offset}`
  if (bound !== undefined && parseTime(time === undefined ? `${bound}T00:00` : bound) !== null)
    return bound
  throw refused(flag, 'a date, a time such as 2027-03-28T02:00, or a duration such as 30d', text)
}

const DAYS_AWAY: Readonly<Record<string, number>> = {yesterday: -1, today: 0, tomorrow: 1}

const MINUTE_MS = 60_000

/**
 * A moment of a job, as the API takes it: `now` (this minute), `yesterday 02:30`, a duration ago, or a bound
 * of planned times. The day of a word is that of the terminal's zone; the time of day is in the zone of the
 * job.
 */
export function momentOf(flag: string, text: string, now: number, zone: string): string {
  const lengthMs = parseLength(text)
  if (lengthMs !== null) return formatTime(now - lengthMs)
  if (text.trim() === 'now') return formatTime(now - (now % MINUTE_MS))
  const [word = '', ...time] = text.trim().split(/\s+/)
  const days = DAYS_AWAY[word]
  if (days === undefined) return plannedBound(flag, text, now)!
  const today = Temporal.Instant.fromEpochMilliseconds(now).toZonedDateTimeISO(zone).toPlainDate()
  return plannedBound(flag, [today.add({days}).toString(), ...time].join(' '), now)!
}

/** A reader of the number of a revision. */
export const revisionNumber = whole('The revision')

function refused(flag: string, wanted: string, text: string): UsageError {
  return new UsageError(`${flag} must be ${wanted}, not ${JSON.stringify(text.slice(0, 100))}.`)
}
