/**
 * The wall clock readings a cron expression names, on an ideal clock without zones. A wall is ms
 * since 1970-01-01 00:00 as the clock on the wall shows it; all walls here are whole seconds.
 * Nothing is walked through second by second: the next reading comes from bit sets, and whole days
 * are counted by multiplication.
 */
import {countBelow, has, nextMember, previousMember, type BitSet} from '../../lib/bit-set.ts'
import type {CronDays} from './month-days.ts'

const SECOND_MS = 1000
const DAY_MS = 86_400_000
const HOUR_S = 3600
const MINUTE_S = 60
const DAY_S = 86_400

export class WallTimes {
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

  /** First named wall ≥ `wall`; `null` when there is none. */
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

  /** Last named wall ≤ `wall`; `null` when there is none. */
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

  /** How many named walls lie in [from, until). */
  count(from: number, until: number): number {
    if (from >= until) return 0
    const firstDay = Math.floor(from / DAY_MS)
    const lastDay = Math.floor(until / DAY_MS)
    // Whole days up to the last; less what lies before `from`, and what the last day has before `until`.
    return (
      this.#days.count(firstDay, lastDay) * this.#timesADay -
      this.#countInDay(firstDay, (from - firstDay * DAY_MS) / SECOND_MS) +
      this.#countInDay(lastDay, (until - lastDay * DAY_MS) / SECOND_MS)
    )
  }

  /** How many named walls of `day` lie before `second` of it. */
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

  /** First named second of the day ≥ `from`, or -1. */
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

  /** Last named second of the day ≤ `from`, or -1. */
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
