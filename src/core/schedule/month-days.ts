/**
 * The days on which a pair of day fields matches. A month has one of 28 shapes: 28 to 31 days, and
 * one of seven first weekdays. The matching days of each shape are computed once as a bit mask;
 * afterwards a day costs one bit test. Zones and hours play no part here.
 */
import {bitsBelow, countBits, nextBit, previousBit} from '../../lib/bit-set.ts'
import {civilOf, dayNumberOf, daysInMonth, SUNDAY, SATURDAY, weekdayOf} from './calendar.ts'
import type {Field} from './cron-field.ts'

/** The calendar repeats after 400 years: a day not found within as many months does not exist. */
const MONTHS_SEARCHED_MAX = 400 * 12

const MONTHS_A_YEAR = 12
const SHORTEST_MONTH = 28
const LONGEST_MONTH = 31

/** The days a cron expression matches. Days are numbered from 1970-01-01 = 0. */
export class CronDays {
  /** Bit `m` for month 1 to 12. */
  readonly #months: number
  /** Masks by `shapeIndex`: bit `d` for day of the month 1 to 31. */
  readonly #masks: Int32Array

  /** Bit `m` of `months` stands for month 1 to 12. */
  constructor(dayOfMonth: Field, dayOfWeek: Field, months: number) {
    this.#months = months
    this.#masks = masksOf(dayOfMonth, dayOfWeek)
  }

  /** True when no day of any year matches, such as 30 February. */
  isNever(): boolean {
    for (let month = 1; month <= MONTHS_A_YEAR; month += 1) {
      if (((this.#months >>> month) & 1) === 0) continue
      // 1999 is a common year and 2000 a leap year. Over the years a month begins on every weekday.
      for (const days of [daysInMonth(1999, month), daysInMonth(2000, month)]) {
        const first = shapeIndex(days, SUNDAY)
        if (this.#masks.subarray(first, first + 7).some((mask) => mask !== 0)) return false
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
      dayOfMonth = LONGEST_MONTH
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
    return this.#masks[shapeIndex(daysInMonth(year, month), firstWeekday)]!
  }
}

/** Properties that decide the matching days of a month. */
interface MonthShape {
  /** 28 to 31. */
  readonly days: number
  /** 0 for Sunday to 6 for Saturday. */
  readonly firstWeekday: number
}

function shapeIndex(days: number, firstWeekday: number): number {
  return (days - SHORTEST_MONTH) * 7 + firstWeekday
}

/** A lone `*` restricts nothing. With two restricted fields a day matches when either does. */
function masksOf(dayOfMonth: Field, dayOfWeek: Field): Int32Array {
  const needsBoth = dayOfMonth.unrestricted || dayOfWeek.unrestricted
  const masks = new Int32Array(shapeIndex(LONGEST_MONTH, SATURDAY) + 1)
  for (let days = SHORTEST_MONTH; days <= LONGEST_MONTH; days += 1) {
    for (let firstWeekday = SUNDAY; firstWeekday <= SATURDAY; firstWeekday += 1) {
      const shape = {days, firstWeekday}
      const [dates, weekdays] = [dayOfMonthMask(dayOfMonth, shape), dayOfWeekMask(dayOfWeek, shape)]
      masks[shapeIndex(days, firstWeekday)] = needsBoth ? dates & weekdays : dates | weekdays
    }
  }
  return masks
}

function dayOfMonthMask({items}: Field, shape: MonthShape): number {
  let mask = 0
  const add = (day: number) => {
    if (day <= shape.days) mask |= 1 << day
  }
  for (const item of items) {
    if (item.kind === 'span') {
      for (let day = item.from; day <= item.to; day += item.step) add(day)
    } else if (item.kind === 'last-day') {
      add(shape.days)
    } else if (item.kind === 'last-workday') {
      add(nearestWorkday(shape.days, shape))
    } else if (item.kind === 'nearest-workday' && item.day <= shape.days) {
      add(nearestWorkday(item.day, shape))
    }
  }
  return mask
}

/** Monday to Friday nearest to `day`, in the same month: a weekend at its edge moves inwards. */
function nearestWorkday(day: number, {days, firstWeekday}: MonthShape): number {
  const weekday = (firstWeekday + day - 1) % 7
  if (weekday === SATURDAY) return day === 1 ? day + 2 : day - 1
  if (weekday === SUNDAY) return day === days ? day - 2 : day + 1
  return day
}

function dayOfWeekMask({items}: Field, {days, firstWeekday}: MonthShape): number {
  let mask = 0
  for (const item of items) {
    if (item.kind === 'span') {
      for (let weekday = item.from; weekday <= item.to; weekday += item.step) {
        for (let day = firstOf(weekday, firstWeekday); day <= days; day += 7) mask |= 1 << day
      }
    } else if (item.kind === 'nth-weekday') {
      const day = firstOf(item.weekday, firstWeekday) + (item.nth - 1) * 7
      if (day <= days) mask |= 1 << day
    } else if (item.kind === 'last-weekday') {
      const fifth = firstOf(item.weekday, firstWeekday) + 4 * 7
      mask |= 1 << (fifth <= days ? fifth : fifth - 7)
    }
  }
  return mask
}

/** First day of a month on which `weekday` (0 to 7, both Sunday) falls. */
function firstOf(weekday: number, firstWeekday: number): number {
  return 1 + ((weekday - firstWeekday + 7) % 7)
}
