/**
 * Finds launches by the time of their recording. Numbers grow with it, so a search over the primary key needs
 * no index of times, which every launch would have to write.
 */
import {each, one, type Query} from '../query.ts'

/** Numbers tried at once: one round trip. */
const PROBES = 15
/** Rows read at each: a row whose wait started again looks later than it is. */
const ROWS_OF_PROBE = 8

/** The smallest number of launches that were recorded at `at` or later; none has it if there are none. */
export function* firstRecorded(at: number): Query<number> {
  const ends = yield* one<{least: number | null; most: number | null}>(
    // Two ends of the index: one statement with both functions would read all of it.
    `SELECT (SELECT min(group_id) FROM launches) AS least,
      (SELECT max(group_id) FROM launches) AS most`,
  )
  let before = (ends?.least ?? 1) - 1
  let first = (ends?.most ?? 0) + 1
  while (first - before > 1) {
    const step = Math.max(1, Math.floor((first - before) / (PROBES + 1)))
    const probes: number[] = []
    for (let probe = before + step; probe < first && probes.length < PROBES; probe += step)
      probes.push(probe)
    const found = yield* each<{stored_at: number}>(
      `SELECT stored_at FROM launches WHERE group_id >= ? ORDER BY group_id LIMIT ${ROWS_OF_PROBE}`,
      probes.map((probe) => [probe]),
    )
    const late = found.findIndex((rows) => Math.min(...rows.map((row) => row.stored_at)) >= at)
    if (late !== -1) first = probes[late]!
    const early = late === -1 ? probes.length - 1 : late - 1
    if (early >= 0) before = probes[early]!
  }
  return first
}
