/**
 * Cron expressions in a time zone: five or six fields, compiled to a schedule. This file contains the
 * rule for daylight saving. Each stretch of constant offset (zone.ts) has the wall clock time it shows
 * and the wall clock time reached before it.
 *
 * - Fixed hour field: a wall time fires once, at the first instant at which the wall clock has reached
 *   it. A wall time in a gap fires at the first instant after the gap. A repeated wall time fires in
 *   the first pass.
 * - Wild hour field (`*` or a step): every instant whose wall time matches fires. Gaps add nothing,
 *   and both passes match.
 */
import {assert} from '../../lib/assert.ts'
import {
  type BitSet,
  bitSetOf,
  countBelow,
  has,
  nextMember,
  previousMember,
} from '../../lib/bit-set.ts'
import {PLANNED_MAX, PLANNED_MIN, type Schedule, type ScheduleResult} from './calendar.ts'
import {type Field, FIELD_SHAPES, type FieldShape, parseField, valuesOf} from './cron-field.ts'
import {CronDays} from './month-days.ts'
import {OFFSET_MAX_MS, type Zone, type ZoneStretch} from './zone.ts'

/** An instant as `@at` expects it, for errors. */
export const EXAMPLE_INSTANT = '2030-01-31T08:00:00Z'

const SECOND_MS = 1000
const DAY_MS = 86_400_000
const HOUR_S = 3600
const MINUTE_S = 60
const DAY_S = 86_400

type SixFields = [Field, Field, Field, Field, Field, Field]

const SHAPES_IN_ORDER: readonly FieldShape[] = Object.values(FIELD_SHAPES)

/**
 * Compiles a trimmed expression without descriptor or `TZ=` prefix. `nameSum` is the number behind `~`.
 */
export function compileExpression(text: string, zone: Zone, nameSum: number): ScheduleResult {
  const texts = text.split(/\s+/)
  // No expression begins with a word: names are only in the last two fields.
  if (/^[a-z]{2,}(\s|$)/i.test(text)) return {ok: false, problem: wordsProblem(text)}
  if (texts.length === SHAPES_IN_ORDER.length - 1) texts.unshift('0')
  if (texts.length !== SHAPES_IN_ORDER.length) return {ok: false, problem: countProblem(text)}
  const fields: Field[] = []
  for (const [index, shape] of SHAPES_IN_ORDER.entries()) {
    const result = parseField(shape, texts[index]!, nameSum)
    if (!result.ok) return result
    fields.push(result.field)
  }
  const [second, minute, hour, dayOfMonth, month, dayOfWeek] = fields as SixFields
  const days = new CronDays(dayOfMonth, dayOfWeek, bitSetOf(valuesOf(month)).low)
  if (days.isNever()) {
    const [dayText, monthText] = [JSON.stringify(texts[3]), JSON.stringify(texts[4])]
    const problem =
      `the day-of-month field ${dayText} never matches in the month field ${monthText}, ` +
      'so it would never run: change one of them'
    return {ok: false, problem}
  }
  const walls = new WallTimes(
    days,
    bitSetOf(valuesOf(hour)),
    bitSetOf(valuesOf(minute)),
    bitSetOf(valuesOf(second)),
  )
  return {ok: true, schedule: new CronSchedule(walls, zone, !hour.wild)}
}

function wordsProblem(text: string): string {
  const examples = '0 0 2 * * * (every day at 2:00), @daily or @every 5m'
  return `${JSON.stringify(text)} is not a cron expression: write one such as ${examples}`
}

function countProblem(text: string): string {
  const written = JSON.stringify(text)
  if (/^\d{4}-\d\d/.test(text)) {
    const what = `${written} is a date, not a cron expression`
    return `${what}: for a single run write @at ${EXAMPLE_INSTANT}`
  }
  const count = text.split(/\s+/).length
  return (
    'a cron expression has five fields (minute hour day-of-month month day-of-week), ' +
    `or six with the second in front, and ${written} has ${count}: ` +
    (count < 5 ? 'add the missing ones' : 'remove the rest')
  )
}

class CronSchedule implements Schedule {
  readonly kind = 'cron'
  readonly #walls: WallTimes
  readonly #zone: Zone
  readonly #fixedHour: boolean

  constructor(walls: WallTimes, zone: Zone, fixedHour: boolean) {
    this.#walls = walls
    this.#zone = zone
    this.#fixedHour = fixedHour
  }

  next(after: number): number | null {
    assert(!Number.isNaN(after), 'after must be a time')
    if (after >= PLANNED_MAX) return null
    let instant = wholeSecondAfter(Math.max(after, PLANNED_MIN - 1))
    for (;;) {
      const stretch = this.#zone.stretchAt(instant)
      const {from, until, offsetMs} = stretch
      if (from >= instant && this.#firesAtStart(stretch)) return within(from)
      const wall = this.#walls.next(Math.max(instant + offsetMs, this.#lowestWall(stretch)))
      if (wall === null) return null
      if (wall < until + offsetMs) return within(wall - offsetMs)
      // No wall time before `wall` matches: skip the stretches that end before the clock can reach it.
      instant = Math.max(until, wall - OFFSET_MAX_MS)
      if (instant > PLANNED_MAX) return null
    }
  }

  previous(before: number): number | null {
    assert(!Number.isNaN(before), 'before must be a time')
    if (before <= PLANNED_MIN) return null
    let instant = wholeSecondBefore(Math.min(before, PLANNED_MAX + 1))
    for (;;) {
      const stretch = this.#zone.stretchAt(instant)
      const {from, offsetMs} = stretch
      const wall = this.#walls.previous(instant + offsetMs)
      if (wall !== null && wall >= this.#lowestWall(stretch)) return within(wall - offsetMs)
      if (this.#firesAtStart(stretch)) return within(from)
      if (wall === null) return null
      instant = Math.min(from - SECOND_MS, wall + OFFSET_MAX_MS)
      if (instant < PLANNED_MIN) return null
    }
  }

  count(from: number, until: number): number {
    assert(!Number.isNaN(from) && !Number.isNaN(until), 'from and until must be times')
    const first = wholeSecondAt(Math.max(from, PLANNED_MIN))
    const end = wholeSecondAt(Math.min(until, PLANNED_MAX + 1))
    let count = 0
    let instant = first
    while (instant < end) {
      const stretch = this.#zone.stretchAt(instant)
      const {offsetMs} = stretch
      let wallFrom = Math.max(instant + offsetMs, this.#lowestWall(stretch))
      if (stretch.from >= first && this.#firesAtStart(stretch)) {
        count += 1
        // The first second of the stretch is counted already, also if its own wall time matches.
        wallFrom = Math.max(wallFrom, stretch.from + offsetMs + SECOND_MS)
      }
      instant = Math.min(end, stretch.until)
      count += this.#walls.count(wallFrom, instant + offsetMs)
    }
    return count
  }

  /** The lowest wall time that may fire at its own instant within the stretch. */
  #lowestWall({from, offsetMs, reachedWall}: ZoneStretch): number {
    return this.#fixedHour ? Math.max(from + offsetMs, reachedWall) : from + offsetMs
  }

  /** True when wall times in the gap before the stretch match. They fire once, at its first instant. */
  #firesAtStart({from, offsetMs, reachedWall}: ZoneStretch): boolean {
    if (!this.#fixedHour || reachedWall >= from + offsetMs) return false
    const wall = this.#walls.next(reachedWall)
    return wall !== null && wall < from + offsetMs
  }
}

/** First whole second strictly after the instant. */
function wholeSecondAfter(instant: number): number {
  return Math.floor(instant / SECOND_MS) * SECOND_MS + SECOND_MS
}

/** Last whole second strictly before the instant. */
function wholeSecondBefore(instant: number): number {
  return Math.ceil(instant / SECOND_MS) * SECOND_MS - SECOND_MS
}

/** First whole second at the instant or after. */
function wholeSecondAt(instant: number): number {
  return Math.ceil(instant / SECOND_MS) * SECOND_MS
}

function within(instant: number): number | null {
  return instant >= PLANNED_MIN && instant <= PLANNED_MAX ? instant : null
}

/**
 * The wall times that an expression matches, on an ideal clock without zones. A wall time is ms since
 * 1970-01-01 00:00 as the wall clock shows it, in whole seconds. Bit sets give the next match, and
 * whole days are counted by multiplication: nothing steps second by second.
 */
class WallTimes {
  readonly #days: CronDays
  readonly #hours: BitSet
  readonly #minutes: BitSet
  readonly #seconds: BitSet
  readonly #minutesAnHour: number
  readonly #secondsAMinute: number
  readonly #timesADay: number
  readonly #firstOfDay: number
  readonly #lastOfDay: number

  /** None of the sets is empty. */
  constructor(days: CronDays, hours: BitSet, minutes: BitSet, seconds: BitSet) {
    this.#days = days
    this.#hours = hours
    this.#minutes = minutes
    this.#seconds = seconds
    this.#secondsAMinute = countBelow(seconds, 60)
    this.#minutesAnHour = countBelow(minutes, 60)
    this.#timesADay = countBelow(hours, 24) * this.#minutesAnHour * this.#secondsAMinute
    this.#firstOfDay = this.#nextInDay(0)
    this.#lastOfDay = this.#previousInDay(DAY_S - 1)
  }

  /** First match ≥ `wall`; `null` when there is none. */
  next(wall: number): number | null {
    const day = Math.floor(wall / DAY_MS)
    const found = this.#days.next(day)
    if (found === null) return null
    if (found > day) return found * DAY_MS + this.#firstOfDay * SECOND_MS
    const second = this.#nextInDay((wall - day * DAY_MS) / SECOND_MS)
    if (second >= 0) return day * DAY_MS + second * SECOND_MS
    const later = this.#days.next(day + 1)
    return later === null ? null : later * DAY_MS + this.#firstOfDay * SECOND_MS
  }

  /** Last match ≤ `wall`; `null` when there is none. */
  previous(wall: number): number | null {
    const day = Math.floor(wall / DAY_MS)
    const found = this.#days.previous(day)
    if (found === null) return null
    if (found < day) return found * DAY_MS + this.#lastOfDay * SECOND_MS
    const second = this.#previousInDay((wall - day * DAY_MS) / SECOND_MS)
    if (second >= 0) return day * DAY_MS + second * SECOND_MS
    const earlier = this.#days.previous(day - 1)
    return earlier === null ? null : earlier * DAY_MS + this.#lastOfDay * SECOND_MS
  }

  /** How many matches lie in [from, until). */
  count(from: number, until: number): number {
    if (from >= until) return 0
    const firstDay = Math.floor(from / DAY_MS)
    const lastDay = Math.floor(until / DAY_MS)
    // Whole days before the last, minus the matches before `from`, plus those of the last day before `until`.
    return (
      this.#days.count(firstDay, lastDay) * this.#timesADay -
      this.#countInDay(firstDay, (from - firstDay * DAY_MS) / SECOND_MS) +
      this.#countInDay(lastDay, (until - lastDay * DAY_MS) / SECOND_MS)
    )
  }

  /** How many matches of `day` lie before its second `second`. */
  #countInDay(day: number, second: number): number {
    if (second === 0 || this.#days.count(day, day + 1) === 0) return 0
    const hour = Math.floor(second / HOUR_S)
    let count = countBelow(this.#hours, hour) * this.#minutesAnHour * this.#secondsAMinute
    if (!has(this.#hours, hour)) return count
    const minute = Math.floor((second % HOUR_S) / MINUTE_S)
    count += countBelow(this.#minutes, minute) * this.#secondsAMinute
    if (has(this.#minutes, minute)) count += countBelow(this.#seconds, second % MINUTE_S)
    return count
  }

  /** First matching second of a day ≥ `from`, or -1. */
  #nextInDay(from: number): number {
    const hour = Math.floor(from / HOUR_S)
    if (has(this.#hours, hour)) {
      const minute = Math.floor((from % HOUR_S) / MINUTE_S)
      if (has(this.#minutes, minute)) {
        const second = nextMember(this.#seconds, from % MINUTE_S)
        if (second >= 0) return from - (from % MINUTE_S) + second
      }
      const later = nextMember(this.#minutes, minute + 1)
      if (later >= 0) return hour * HOUR_S + later * MINUTE_S + nextMember(this.#seconds, 0)
    }
    const later = nextMember(this.#hours, hour + 1)
    if (later < 0) return -1
    return later * HOUR_S + nextMember(this.#minutes, 0) * MINUTE_S + nextMember(this.#seconds, 0)
  }

  /** Last matching second of a day ≤ `from`, or -1. */
  #previousInDay(from: number): number {
    const hour = Math.floor(from / HOUR_S)
    if (has(this.#hours, hour)) {
      const minute = Math.floor((from % HOUR_S) / MINUTE_S)
      if (has(this.#minutes, minute)) {
        const second = previousMember(this.#seconds, from % MINUTE_S)
        if (second >= 0) return from - (from % MINUTE_S) + second
      }
      const earlier = previousMember(this.#minutes, minute - 1)
      if (earlier >= 0) {
        return hour * HOUR_S + earlier * MINUTE_S + previousMember(this.#seconds, 59)
      }
    }
    const earlier = previousMember(this.#hours, hour - 1)
    if (earlier < 0) return -1
    const minute = previousMember(this.#minutes, 59)
    return earlier * HOUR_S + minute * MINUTE_S + previousMember(this.#seconds, 59)
  }
}
