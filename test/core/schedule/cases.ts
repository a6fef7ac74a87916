/**
 * Random schedules: cron expressions composed from parts whose meaning is known without a parser. Each comes
 * with its meaning, so that tests can compute the planned times independently.
 */
import assert from 'node:assert/strict'
import * as fc from 'fast-check'
import {parseSchedule, type Schedule} from '../../../src/core/schedule/parse.ts'

/** Seed of the random runs; a failure prints the path that repeats it. */
export const SEED = 20260329

/** Field: its text and its values; `wild` if it has `*` or a step. */
export interface FieldCase {
  readonly text: string
  readonly values: ReadonlySet<number>
  readonly wild: boolean
}

export interface CronCase {
  readonly text: string
  readonly zone: string
  readonly hours: FieldCase
  readonly minutes: FieldCase
  readonly seconds: FieldCase
  readonly isDay: (date: Temporal.PlainDate) => boolean
  readonly schedule: Schedule
}

function range(from: number, to: number, step = 1): number[] {
  const values: number[] = []
  for (let value = from; value <= to; value += step) values.push(value)
  return values
}

function fieldCase(min: number, max: number): fc.Arbitrary<FieldCase> {
  const value = fc.integer({min, max})
  const step = fc.integer({min: 1, max: max - min + 1})
  const star = fc.constant({text: '*', values: new Set(range(min, max)), wild: true})
  const every = step.map((by) => ({
    text: `*/${by}`,
    values: new Set(range(min, max, by)),
    wild: true,
  }))
  const list = fc.array(value, {minLength: 1, maxLength: 4}).map((values) => {
    return {text: values.join(','), values: new Set(values), wild: false}
  })
  const span = fc.tuple(value, value).map(([one, other]) => {
    const [from, to] = [Math.min(one, other), Math.max(one, other)]
    return {text: `${from}-${to}`, values: new Set(range(from, to)), wild: false}
  })
  const from = fc.tuple(value, step).map(([start, by]) => {
    return {text: `${start}/${by}`, values: new Set(range(start, max, by)), wild: true}
  })
  return fc.oneof(star, every, list, span, from)
}

export interface DayCase {
  readonly text: string
  readonly isDay: (date: Temporal.PlainDate) => boolean
}

/** The nearest Monday to Friday of the same month, by search instead of arithmetic. */
function isNearestWeekday(date: Temporal.PlainDate, target: number): boolean {
  if (target > date.daysInMonth) return false
  const candidates = [0, -1, 1, -2, 2].map((by) => target + by)
  const found = candidates.find((day) => {
    return day >= 1 && day <= date.daysInMonth && date.with({day}).dayOfWeek <= 5
  })
  return found === date.day
}

const DAY_OF_MONTH: fc.Arbitrary<DayCase> = fc.oneof(
  fieldCase(1, 31)
    .filter((field) => field.text !== '*')
    .map(({text, values}) => ({text, isDay: (date: Temporal.PlainDate) => values.has(date.day)})),
  fc.constant({text: 'L', isDay: (date: Temporal.PlainDate) => date.day === date.daysInMonth}),
  fc.constant({
    text: 'LW',
    isDay: (date: Temporal.PlainDate) => isNearestWeekdayBefore(date),
  }),
  fc.integer({min: 1, max: 31}).map((day) => {
    return {text: `${day}W`, isDay: (date: Temporal.PlainDate) => isNearestWeekday(date, day)}
  }),
)

function isNearestWeekdayBefore(date: Temporal.PlainDate): boolean {
  let last = date.with({day: date.daysInMonth})
  while (last.dayOfWeek > 5) last = last.subtract({days: 1})
  return last.equals(date)
}

const DAY_OF_WEEK: fc.Arbitrary<DayCase> = fc.oneof(
  fieldCase(0, 6)
    .filter((field) => field.text !== '*')
    .map(({text, values}) => {
      return {text, isDay: (date: Temporal.PlainDate) => values.has(date.dayOfWeek % 7)}
    }),
  fc.tuple(fc.integer({min: 0, max: 6}), fc.integer({min: 1, max: 5})).map(([day, nth]) => ({
    text: `${day}#${nth}`,
    isDay: (date: Temporal.PlainDate) =>
      date.dayOfWeek % 7 === day && Math.ceil(date.day / 7) === nth,
  })),
  fc.integer({min: 0, max: 6}).map((day) => ({
    text: `${day}L`,
    isDay: (date: Temporal.PlainDate) =>
      date.dayOfWeek % 7 === day && date.day + 7 > date.daysInMonth,
  })),
)

export const DAYS = fc
  .tuple(fc.option(DAY_OF_MONTH), fieldCase(1, 12), fc.option(DAY_OF_WEEK))
  .map(([dayOfMonth, month, dayOfWeek]) => ({
    text: `${dayOfMonth?.text ?? '*'} ${month.text} ${dayOfWeek?.text ?? '?'}`,
    isDay: (date: Temporal.PlainDate) => {
      if (!month.values.has(date.month)) return false
      if (dayOfMonth === null && dayOfWeek === null) return true
      return (dayOfMonth?.isDay(date) ?? false) || (dayOfWeek?.isDay(date) ?? false)
    },
  }))
export const EVERY_DAY = fc.constant({text: '* * *', isDay: () => true})

/** Windows end just after the named transition, so that most runs contain one. */
export const PLACES: readonly (readonly [zone: string, transition: string])[] = [
  ['UTC', '2026-03-29T01:00:00Z'],
  ['Europe/Berlin', '2026-03-29T01:00:00Z'],
  ['Europe/Berlin', '2026-10-25T01:00:00Z'],
  ['America/New_York', '2026-11-01T06:00:00Z'],
  ['America/Santiago', '2026-04-05T03:00:00Z'],
  ['America/Santiago', '2026-09-06T04:00:00Z'],
  ['America/Havana', '2026-11-01T05:00:00Z'],
  ['Australia/Lord_Howe', '2026-04-04T15:00:00Z'],
  ['Australia/Lord_Howe', '2026-10-03T15:30:00Z'],
  ['Pacific/Apia', '2011-12-30T10:00:00Z'],
  ['Asia/Pyongyang', '2015-08-14T15:00:00Z'],
  ['Asia/Pyongyang', '2018-05-04T15:00:00Z'],
  ['Antarctica/Troll', '2026-10-25T01:00:00Z'],
  ['Africa/Monrovia', '1972-01-07T00:44:30Z'],
  ['America/Juneau', '1867-10-19T00:27:41Z'],
]

export function cronCase(zone: string, days: fc.Arbitrary<DayCase>, grain: 'second' | 'minute') {
  const seconds: fc.Arbitrary<FieldCase> =
    grain === 'second'
      ? fieldCase(0, 59)
      : fc.constant({text: '0', values: new Set([0]), wild: false})
  return fc
    .tuple(seconds, fieldCase(0, 59), fieldCase(0, 23), days)
    .map(([second, minute, hour, day]): CronCase | null => {
      const text = `${second.text} ${minute.text} ${hour.text} ${day.text}`
      const parsed = parseSchedule(text, {timezone: zone, name: 'any', anchorAt: 0})
      if (!parsed.ok) {
        assert.match(parsed.problem, /never matches/, 'the expression has another error')
        return null
      }
      const {schedule} = parsed
      return {text, zone, hours: hour, minutes: minute, seconds: second, isDay: day.isDay, schedule}
    })
    .filter((example) => example !== null)
}

/** The planned times in [from, until), at most `limit`. */
export function enumerate(
  schedule: Schedule,
  from: number,
  until: number,
  limit = Infinity,
): number[] {
  const planned: number[] = []
  for (let at = schedule.next(from - 1); at !== null && at < until; at = schedule.next(at)) {
    planned.push(at)
    if (planned.length >= limit) break
  }
  return planned
}
