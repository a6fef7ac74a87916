/**
 * Cron in a time zone: which instants the wall clock readings of an expression become. The
 * daylight-saving rule is here and nowhere else. It stands on two facts about each stretch of
 * constant offset (zone.ts): the wall clock it shows, and how far the wall clock had come before
 * it.
 *
 * - Fixed hour field: a reading fires at the first instant at which the wall clock has come to it.
 *   For one that does not exist that is the first instant after the gap; for one that exists twice
 *   it is the first pass.
 * - Wild hour field (`*` or a step): every instant whose wall clock matches. Gaps add nothing, both
 *   passes match.
 */
import {assert} from '../../lib/assert.ts'
import {OFFSET_MAX_MS, type Zone, type ZoneStretch} from './zone.ts'
import {PLANNED_MAX, PLANNED_MIN, type Schedule} from './planned.ts'
import type {WallTimes} from './wall-times.ts'

const SECOND_MS = 1000

export class CronSchedule implements Schedule {
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
    assert(!Number.isNaN(after), 'after is a time')
    if (after >= PLANNED_MAX) return null
    let instant = wholeSecondAfter(Math.max(after, PLANNED_MIN - 1))
    for (;;) {
      const stretch = this.#zone.stretchAt(instant)
      const {from, until, offsetMs} = stretch
      if (from >= instant && this.#firesAtStart(stretch)) return within(from)
      const wall = this.#walls.next(Math.max(instant + offsetMs, this.#lowestWall(stretch)))
      if (wall === null) return null
      if (wall < until + offsetMs) return within(wall - offsetMs)
      // No reading before `wall` matches, so nothing fires while the wall clock cannot yet have come near it.
      instant = Math.max(until, wall - OFFSET_MAX_MS)
      if (instant > PLANNED_MAX) return null
    }
  }

  previous(before: number): number | null {
    assert(!Number.isNaN(before), 'before is a time')
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
    assert(!Number.isNaN(from) && !Number.isNaN(until), 'from and until are times')
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
        // The first second of the stretch has fired, whether or not its own reading matches as well.
        wallFrom = Math.max(wallFrom, stretch.from + offsetMs + SECOND_MS)
      }
      instant = Math.min(end, stretch.until)
      count += this.#walls.count(wallFrom, instant + offsetMs)
    }
    return count
  }

  /** The lowest reading that may fire at its own instant within the stretch. */
  #lowestWall({from, offsetMs, reachedWall}: ZoneStretch): number {
    return this.#fixedHour ? Math.max(from + offsetMs, reachedWall) : from + offsetMs
  }

  /**
   * True when readings of the gap before the stretch fall on its first instant, where they are one
   * fire.
   */
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
