/**
 * The calendar in whole numbers: days since 1970-01-01 to year, month and day, and back, in the
 * proleptic Gregorian calendar. Date and Temporal make an object for every question; the searches
 * here ask thousands.
 */

export interface CivilDate {
  readonly year: number
  /** 1 to 12. */
  readonly month: number
  /** 1 to 31. */
  readonly dayOfMonth: number
}

const DAYS_IN_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const
/**
 * Days of 400, 100, 4 years; years are counted from March, so that the leap day is the last of
 * them.
 */
const DAYS_IN_ERA = 146_097
/** From 0000-03-01 to 1970-01-01. */
const DAYS_BEFORE_EPOCH = 719_468

export function daysInMonth(year: number, month: number): number {
  return month === 2 && isLeapYear(year) ? 29 : DAYS_IN_MONTH[month - 1]!
}

function isLeapYear(year: number): boolean {
  return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0)
}

/** 0 for Sunday to 6 for Saturday. 1970-01-01 was a Thursday. */
export function weekdayOf(dayNumber: number): number {
  return (((dayNumber + 4) % 7) + 7) % 7
}

/** Days from 1970-01-01 to that date. */
export function dayNumberOf(year: number, month: number, dayOfMonth: number): number {
  const shifted = month <= 2 ? year - 1 : year
  const era = Math.floor(shifted / 400)
  const yearOfEra = shifted - era * 400
  const monthFromMarch = (month + 9) % 12
  const dayOfYear = Math.floor((153 * monthFromMarch + 2) / 5) + dayOfMonth - 1
  const dayOfEra =
    yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear
  return era * DAYS_IN_ERA + dayOfEra - DAYS_BEFORE_EPOCH
}

/** The date of a day numbered from 1970-01-01 = 0. */
export function civilOf(dayNumber: number): CivilDate {
  const shifted = dayNumber + DAYS_BEFORE_EPOCH
  const era = Math.floor(shifted / DAYS_IN_ERA)
  const dayOfEra = shifted - era * DAYS_IN_ERA
  const leapDays =
    Math.floor(dayOfEra / 1460) - Math.floor(dayOfEra / 36_524) + Math.floor(dayOfEra / 146_096)
  const yearOfEra = Math.floor((dayOfEra - leapDays) / 365)
  const yearStart = 365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100)
  const dayOfYear = dayOfEra - yearStart
  const monthFromMarch = Math.floor((5 * dayOfYear + 2) / 153)
  const dayOfMonth = dayOfYear - Math.floor((153 * monthFromMarch + 2) / 5) + 1
  const month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
  return {year: yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfMonth}
}

/*
 * What a schedule answers, and the years it answers for. Apart from schedule.ts so that every kind
 * can be built on it.
 */

/** The planned times of one job. Instants in ms since the epoch. */
export interface Schedule {
  readonly kind: 'cron' | 'every' | 'at' | 'manual'
  /** First planned time strictly after `after`, or `null` when there is none. */
  next(after: number): number | null
  /**
   * Last planned time strictly before `before`, or `null`. As cheap as `next`. For `every` nothing
   * lies before the anchor.
   */
  previous(before: number): number | null
  /** How many planned times lie in [from, until). Computed, not enumerated. */
  count(from: number, until: number): number
}

/**
 * 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z: RFC 3339 can write no later year, and 0001
 * means "never" to clients.
 */
export const PLANNED_MIN = -62_135_596_800_000
export const PLANNED_MAX = 253_402_300_799_999
