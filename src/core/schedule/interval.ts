/**
 * The schedules without calendar and zone: an interval with a phase, one instant, and never. They use
 * arithmetic on instants only, so a wall clock that jumps has no effect on them.
 */
import {assert} from '../../lib/assert.ts'
import {PLANNED_MAX, PLANNED_MIN, type Schedule} from './calendar.ts'

/** `@every`: the instants `anchorAt + k × intervalMs`, k ≥ 0. */
export class IntervalSchedule implements Schedule {
  readonly kind = 'every'
  readonly #anchorAt: number
  readonly #intervalMs: number

  /** Both are whole ms; `intervalMs` is positive. */
  constructor(anchorAt: number, intervalMs: number) {
    assert(Number.isSafeInteger(anchorAt), 'an anchor must be whole ms')
    assert(Number.isSafeInteger(intervalMs) && intervalMs > 0, 'an interval must be whole ms')
    this.#anchorAt = anchorAt
    this.#intervalMs = intervalMs
  }

  next(after: number): number | null {
    assert(!Number.isNaN(after), 'after must be a time')
    if (after >= PLANNED_MAX) return null
    const steps = Math.max(0, Math.floor((after - this.#anchorAt) / this.#intervalMs) + 1)
    const planned = this.#anchorAt + steps * this.#intervalMs
    return planned <= PLANNED_MAX ? planned : null
  }

  previous(before: number): number | null {
    assert(!Number.isNaN(before), 'before must be a time')
    const steps = this.#stepsBefore(before)
    return steps === 0 ? null : this.#anchorAt + (steps - 1) * this.#intervalMs
  }

  count(from: number, until: number): number {
    assert(!Number.isNaN(from) && !Number.isNaN(until), 'from and until must be times')
    return Math.max(0, this.#stepsBefore(until) - this.#stepsBefore(from))
  }

  /** Number of planned times before the instant. */
  #stepsBefore(instant: number): number {
    const sinceAnchorMs = Math.min(Math.max(instant, PLANNED_MIN), PLANNED_MAX + 1) - this.#anchorAt
    return Math.max(0, Math.ceil(sinceAnchorMs / this.#intervalMs))
  }
}

/** `@at`: one planned time. */
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

/** `@manually`: no planned times, only requests. */
export const MANUAL_SCHEDULE: Schedule = {
  kind: 'manual',
  next: () => null,
  previous: () => null,
  count: () => 0,
}
