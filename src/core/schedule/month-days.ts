/**
 * Which days of a month a pair of day fields means. A month is one of 28 shapes (28 to 31 days,
 * beginning on one of seven weekdays), and croner is asked once about every day of each: afterwards
 * a day costs one bit test. It never hears of zones or hours, and it keeps no croner object: each
 * holds 80 KB.
 */
import {Cron} from 'croner'
import {bitsBelow, countBits, nextBit, previousBit} from '../../lib/bit-set.ts'
import {BoundedCache} from '../../lib/lru.ts'
import {civilOf, dayNumberOf, daysInMonth, weekdayOf} from './calendar.ts'
import type {Field} from './cron-field.ts'

/** After 400 years the calendar repeats: a day not found within as many months does not exist. */
const MONTHS_SEARCHED_MAX = 400 * 12

/**
 * Distinct pairs of day fields that are remembered, at some 300 bytes each. Most schedules share `*
 * *`.
 */
const TABLES_MAX = 5000

const DAY_MS = 86_400_000
const MONTHS_A_YEAR = 12

const tables = new BoundedCache<Int32Array>(TABLES_MAX)

/** The days a cron expression runs on. Days are numbered from 1970-01-01 = 0. */
export class CronDays {
  /** Bit `m` for month 1 to 12. */
  readonly #months: number
  /** By `shapeIndex`: bit `d` for day of the month 1 to 31. */
  readonly #table: Int32Array

  constructor(dayOfMonth: Field, dayOfWeek: Field, months: number) {
    this.#months = months
    this.#table = tableFor(dayOfMonth, dayOfWeek)
  }

  /** True when no day of any year matches, such as 30 February. */
  isNever(): boolean {
    for (let month = 1; month <= MONTHS_A_YEAR; month += 1) {
      if (((this.#months >>> month) & 1) === 0) continue
      // The leap year 2000 has every month at its longest; each weekday begins each of them in some year.
      const shape = shapeIndex(daysInMonth(2000, month), 0)
      for (let weekday = 0; weekday < 7; weekday += 1) {
        if (this.#table[shape + weekday] !== 0) return false
        if (month === 2 && this.#table[shapeIndex(28, weekday)] !== 0) return false
      }
    }
    return true
  }

  /** First matching day ≥ `day`; `null` when there is none within 400 years. */
  next(day: number): number | null {
    let {year, month, dayOfMonth} = civilOf(day)
    for (let searched = 0; searched <= MONTHS_SEARCHED_MAX; searched += 1) {
      const found = nextBit(this.#mask(year, month), dayOfMonth)
      if (found >= 0) return dayNumberOf(year, month, found)
      dayOfMonth = 1
      month += 1
      if (month > MONTHS_A_YEAR) {
        month = 1
        year += 1
      }
    }
    return null
  }

  /** Last matching day ≤ `day`; `null` when there is none within 400 years. */
  previous(day: number): number | null {
    let {year, month, dayOfMonth} = civilOf(day)
    for (let searched = 0; searched <= MONTHS_SEARCHED_MAX; searched += 1) {
      const found = previousBit(this.#mask(year, month), dayOfMonth)
      if (found >= 0) return dayNumberOf(year, month, found)
      dayOfMonth = 31
      month -= 1
      if (month < 1) {
        month = MONTHS_A_YEAR
        year -= 1
      }
    }
    return null
  }

  /** How many matching days lie in [from, until): one step a month. */
  count(from: number, until: number): number {
    if (from >= until) return 0
    let {year, month, dayOfMonth} = civilOf(from)
    const end = civilOf(until)
    let count = -countBits(bitsBelow(this.#mask(year, month), dayOfMonth))
    while (year < end.year || month < end.month) {
      count += countBits(this.#mask(year, month))
      month += 1
      if (month > MONTHS_A_YEAR) {
        month = 1
        year += 1
      }
    }
    return count + countBits(bitsBelow(this.#mask(year, month), end.dayOfMonth))
  }

  #mask(year: number, month: number): number {
    if (((this.#months >>> month) & 1) === 0) return 0
    const firstWeekday = weekdayOf(dayNumberOf(year, month, 1))
    return this.#table[shapeIndex(daysInMonth(year, month), firstWeekday)]!
  }
}

/** Months of 28 to 31 days, each beginning on Sunday (0) to Saturday (6). */
function shapeIndex(days: number, firstWeekday: number): number {
  return (days - 28) * 7 + firstWeekday
}

function tableFor(dayOfMonth: Field, dayOfWeek: Field): Int32Array {
  const patterns = cronerPatterns(dayOfMonth, dayOfWeek)
  const key = patterns.join('|')
  const known = tables.get(key)
  if (known !== undefined) return known
  const table = new Int32Array(4 * 7)
  for (const pattern of patterns) addPattern(table, pattern)
  tables.set(key, table)
  return table
}

/** The days of each shape of month on which `pattern` (day-of-month, `*`, day-of-week) matches. */
function addPattern(table: Int32Array, pattern: string): void {
  const cron = new Cron(`0 0 0 ${pattern}`, {mode: '6-part', utcOffset: 0, paused: true})
  for (const sample of SAMPLE_MONTHS) {
    const first = dayNumberOf(sample.year, sample.month, 1)
    const index = shapeIndex(sample.days, weekdayOf(first))
    for (let day = 0; day < sample.days; day += 1) {
      if (cron.match(new Date((first + day) * DAY_MS))) table[index]! |= 1 << (day + 1)
    }
  }
}

interface SampleMonth {
  readonly year: number
  readonly month: number
  readonly days: number
}

/** One month of each shape, found in the 28 years after which weekdays and leap years repeat. */
const SAMPLE_MONTHS: readonly SampleMonth[] = sampleMonths()

function sampleMonths(): SampleMonth[] {
  const found = new Map<number, SampleMonth>()
  for (let year = 1972; year < 2000; year += 1) {
    for (const month of [1, 2, 4]) {
      const days = daysInMonth(year, month)
      const index = shapeIndex(days, weekdayOf(dayNumberOf(year, month, 1)))
      if (!found.has(index)) found.set(index, {year, month, days})
    }
  }
  return [...found.values()]
}

/**
 * The day fields as croner reads them. It treats a lone `*` as unrestricted and everything else as
 * restricted, as we do. `LW` it knows only alone, so a list with `LW` becomes two patterns, whose
 * days are united.
 */
function cronerPatterns(dayOfMonth: Field, dayOfWeek: Field): string[] {
  const weekdays = cronerText(dayOfWeek)
  if (dayOfMonth.unrestricted) return [`* * ${weekdays}`]
  const isLastWeekday = (item: Field['items'][number]) => item.kind === 'mark' && item.text === 'LW'
  const rest = dayOfMonth.items.filter((item) => !isLastWeekday(item))
  const patterns =
    rest.length > 0 ? [`${cronerText({...dayOfMonth, items: rest})} * ${weekdays}`] : []
  if (rest.length < dayOfMonth.items.length) patterns.push(`LW * ${weekdays}`)
  return patterns
}

function cronerText(field: Field): string {
  if (field.unrestricted) return '*'
  return field.items
    .map((item) => {
      if (item.kind === 'mark') return item.text
      if (item.from === item.to) return `${item.from}`
      return `${item.from}-${item.to}${item.step === 1 ? '' : `/${item.step}`}`
    })
    .join(',')
}
