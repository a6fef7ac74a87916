/**
 * The schedules that need no calendar and no zone: an interval with a phase, one instant, and
 * never. Arithmetic on instants only, so a wall clock that jumps makes no difference to them.
 */
import {assert} from '../../lib/assert.ts'
import {PLANNED_MAX, PLANNED_MIN, type Schedule} from './calendar.ts'

/** `@every`: the instants `anchorAt + k × intervalMs`, k ≥ 0. */
export class IntervalSchedule implements Schedule {
  readonly kind = 'every'
  readonly #anchorAt: number
  readonly #intervalMs: number

  /** `intervalMs` whole and positive, `anchorAt` whole. */
  constructor(anchorAt: number, intervalMs: number) {
    assert(Number.isSafeInteger(anchorAt), 'an anchor is whole ms')
    assert(Number.isSafeInteger(intervalMs) && intervalMs > 0, 'an interval is whole ms')
    this.#anchorAt = anchorAt
    this.#intervalMs = intervalMs
  }

  next(after: number): number | null {
    assert(!Number.isNaN(after), 'after is a time')
    if (after >= PLANNED_MAX) return null
    const steps = Math.max(0, Math.floor((after - this.#anchorAt) / this.#intervalMs) + 1)
    const planned = this.#anchorAt + steps * this.#intervalMs
    return planned <= PLANNED_MAX ? planned : null
  }

  previous(before: number): number | null {
    assert(!Number.isNaN(before), 'before is a time')
    const steps = this.#stepsBefore(before)
    return steps === 0 ? null : this.#anchorAt + (steps - 1) * this.#intervalMs
  }

  count(from: number, until: number): number {
    assert(!Number.isNaN(from) && !Number.isNaN(until), 'from and until are times')
    return Math.max(0, this.#stepsBefore(until) - this.#stepsBefore(from))
  }

  /** How many planned times lie before the instant. */
  #stepsBefore(instant: number): number {
    const sinceAnchorMs = Math.min(Math.max(instant, PLANNED_MIN), PLANNED_MAX + 1) - this.#anchorAt
    return Math.max(0, Math.ceil(sinceAnchorMs / this.#intervalMs))
  }
}

/** `@at`: once. */
export class InstantSchedule implements Schedule {
  readonly kind = 'at'
  readonly #at: number

  constructor(at: number) {
    this.#at = at
  }

  next(after: number): number | null {
    return this.#at > after ? this.#at : null
  }

  previous(before: number): number | null {
    return this.#at < before ? this.#at : null
  }

  count(from: number, until: number): number {
    return this.#at >= from && this.#at < until ? 1 : 0
  }
}

/** `@manually`: only by request. */
export const MANUAL_SCHEDULE: Schedule = {
  kind: 'manual',
  next: () => null,
  previous: () => null,
  count: () => 0,
}
