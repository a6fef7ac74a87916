/** Timestamps in JSON: RFC 3339 in UTC, with milliseconds and `Z`. `lib/rfc3339.ts` parses them. */

/** The timestamp of an execution that has not started or finished. Clients of this API compare with it. */
export const ZERO_TIME = '0001-01-01T00:00:00Z'

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
