/** Times as people write them, with or without a zone. */
import {parseTime} from '../../lib/rfc3339.ts'
import {isKnownZone} from './zone.ts'

export const DATE = /^\d{4}-\d\d-\d\d$/
const WALL = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?$/

/**
 * The instant of a date, of a wall time of the zone, or of a time with its offset; `null` = the text is none.
 * A wall time in a gap is the instant after it; of two, the first.
 */
export function instantOf(text: string, zone: string): number | null {
  const wall = DATE.test(text) ? `${text}T00:00` : text
  const at = parseTime(wall)
  if (at === null || !WALL.test(wall)) return at
  return Temporal.PlainDateTime.from(wall).toZonedDateTime(zone).epochMilliseconds
}

/** The zone of a job's times; `UTC` if this runtime does not know it. */
export function shownZone(zone: string): string {
  return isKnownZone(zone) ? zone : 'UTC'
}
