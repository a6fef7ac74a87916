/**
 * RFC 3339 timestamps. The one reader for the API, restore files and `@at` schedules, and the one writer. The
 * local time zone is never used: a timestamp without a zone is UTC.
 */

const SHAPE =
  /^(\d{4})-(\d{2})-(\d{2})[Tt](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?([Zz]|[+-]\d{2}:\d{2})?$/

/** RFC 3339 writes a year in four digits: other instants could not be formatted again. */
const FIRST_YEAR = Date.UTC(-1, 12, 1)
const AFTER_LAST_YEAR = Date.UTC(10_000, 0, 1)

/**
 * Parses RFC 3339 with any offset and fraction, or `YYYY-MM-DDTHH:MM[:SS]` as UTC. Returns ms since the
 * epoch, truncated; `null` when the text has another form or names no date of the calendar.
 */
export function parseTime(text: string): number | null {
  const match = SHAPE.exec(text)
  if (match === null) return null
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match
    .slice(1, 7)
    .map((part) => Number(part ?? 0))
  if (match[6] === undefined && match[8] !== undefined) return null
  const ms = Number((match[7] ?? '').slice(0, 3).padEnd(3, '0'))
  // RFC 3339 allows 60 for a leap second. `Date` has none: it becomes the start of the next second.
  if (hour > 23 || minute > 59 || second > 60) return null
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null
  const offsetMs = parseOffset(match[8])
  if (offsetMs === null) return null
  const at = date.setUTCHours(hour, minute, second, ms) - offsetMs
  return at < FIRST_YEAR || at >= AFTER_LAST_YEAR ? null : at
}

function parseOffset(zone: string | undefined): number | null {
  if (zone === undefined || zone === 'Z' || zone === 'z') return 0
  const hours = Number(zone.slice(1, 3))
  const minutes = Number(zone.slice(4, 6))
  if (hours > 23 || minutes > 59) return null
  return (zone[0] === '-' ? -1 : 1) * (hours * 60 + minutes) * 60_000
}

/** `at` in ms since the epoch, years 0 to 9999. */
export function formatTime(at: number): string {
  return new Date(at).toISOString()
}

/** Time with the offset of the zone: `2026-05-01T10:30:00+02:00`. */
export function formatInZone(at: number, timeZone: string): string {
  return Temporal.Instant.fromEpochMilliseconds(at).toString({timeZone, smallestUnit: 'second'})
}

export function formatOptionalTime(at: number | null): string | null {
  return at === null ? null : formatTime(at)
}
