/**
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
