/**
 * The base of all schedules: the contract they implement, the range of years, and the proleptic
 * Gregorian calendar in whole numbers. Date and Temporal allocate an object per call; a search makes
 * thousands of calls.
 */

/** The planned times of one job. Instants in ms since the epoch. */
export interface Schedule {
  readonly kind: 'cron' | 'every' | 'at' | 'manual'
  /** First planned time strictly after `after`, or `null` when there is none. */
  next(after: number): number | null
  /**
   * Last planned time strictly before `before`, or `null`; `every` has none before its anchor. As
   * cheap as `next`.
   */
  previous(before: number): number | null
  /** How many planned times lie in [from, until). Computed, not enumerated. */
  count(from: number, until: number): number
}

export type ScheduleResult =
  | {readonly ok: true; readonly schedule: Schedule}
  /** Sentence that names the field of the expression, the cause and the fix. */
  | {readonly ok: false; readonly problem: string}

/** 0001-01-01T00:00:00Z, which clients read as "never". */
export const PLANNED_MIN = -62_135_596_800_000
/** 9999-12-31T23:59:59.999Z: RFC 3339 has no later year. */
export const PLANNED_MAX = 253_402_300_799_999

export interface CivilDate {
  readonly year: number
  /** 1 to 12. */
  readonly month: number
  /** 1 to 31. */
  readonly dayOfMonth: number
}

const DAYS_IN_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] as const
/** Days of 400 years. Years are counted from March here, so that the leap day is the last day. */
const DAYS_IN_ERA = 146_097
/** Days from 0000-03-01 to 1970-01-01. */
const DAYS_BEFORE_EPOCH = 719_468

/** Values of `weekdayOf`. */
export const SUNDAY = 0
export const SATURDAY = 6

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

/** The number of a date; 1970-01-01 is day 0. */
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

/** The inverse of `dayNumberOf`. */
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
