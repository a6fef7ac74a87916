/**
 * Planned times as the wall clock of their zone shows them, and the changes of that clock. For previews: what
 * daylight saving does to a schedule is decided in `cron.ts`, and only named here.
 */
import {wallSchedule, type Schedule, type ScheduleContext} from './parse.ts'
import {findZone, type Zone} from './zone.ts'

/**
 * `moved`: its wall time does not exist on that day, so it is the first instant after the gap. `first_pass`
 * and `second_pass`: its wall time is shown twice.
 */
export type Shift = '' | 'moved' | 'first_pass' | 'second_pass'

export interface LocalTime {
  readonly at: number
  readonly offsetMs: number
  readonly shift: Shift
  /** The wall time of `moved` that does not exist, as if it were UTC. */
  readonly plannedWall: number | null
}

export interface ClockChange {
  readonly at: number
  readonly offsetBeforeMs: number
  readonly offsetAfterMs: number
}

/** `times` of a schedule in the zone `name`, which must be known. */
export function localTimes(
  times: readonly number[],
  text: string,
  schedule: Schedule,
  context: ScheduleContext,
  name: string,
): readonly LocalTime[] {
  const zone = findZone(name)!
  // Only wall times move. `@every` and `@at` are instants.
  const walls = schedule.kind === 'cron' ? wallSchedule(text, context) : null
  return times.map((at) => {
    const {from, offsetMs, reachedWall} = zone.stretchAt(at)
    const common = {at, offsetMs, plannedWall: null}
    const wall = at + offsetMs
    if (walls === null) return {...common, shift: ''}
    const isGapEnd = at === from && reachedWall < wall
    if (isGapEnd && walls.next(wall - 1) !== wall)
      return {...common, shift: 'moved', plannedWall: walls.next(reachedWall - 1)}
    if (wall < reachedWall) return {...common, shift: 'second_pass'}
    return {...common, shift: isShownAgain(zone, at, wall) ? 'first_pass' : ''}
  })
}

function isShownAgain(zone: Zone, at: number, wall: number): boolean {
  const {until} = zone.stretchAt(at)
  const next = zone.stretchAt(until)
  return wall >= until + next.offsetMs && wall < next.reachedWall
}

/** The changes after `from`, up to `until`, at most `limit`. */
export function clockChanges(
  name: string,
  from: number,
  until: number,
  limit: number,
): readonly ClockChange[] {
  const zone = findZone(name)!
  const changes: ClockChange[] = []
  let stretch = zone.stretchAt(from)
  while (stretch.until <= until && changes.length < limit) {
    const next = zone.stretchAt(stretch.until)
    // A long stretch comes in several pieces.
    if (next.offsetMs !== stretch.offsetMs)
      changes.push({
        at: stretch.until,
        offsetBeforeMs: stretch.offsetMs,
        offsetAfterMs: next.offsetMs,
      })
    stretch = next
  }
  return changes
}
