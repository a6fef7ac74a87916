/**
 * Deleted jobs, whose rows a list leaves out. Few are read once instead of a look-up of its job for each row,
 * which would be most of the cost of a long list. Many are left to the condition of each row.
 */
import type {LaunchListQuery} from '../../../ports/history-store.ts'
import {EPHEMERAL_KEPT_MS} from '../jobs/delete-job.ts'
import type {Condition} from '../jobs/name-filter.ts'
import {all, type Query, type Transaction} from '../query.ts'
import {ofJobs, ofNames} from './across-jobs.ts'

/** Retention removes deleted jobs: there are more for a short time, or with many ephemeral jobs. */
const HIDDEN_MAX = 1_000

/** The launch of each deleted job that stays readable, `null` = none; `many` = there are too many to read. */
export type HiddenJobs = ReadonlyMap<number, number | null> | 'many'

export function* hiddenJobs({now}: Transaction): Query<HiddenJobs> {
  const rows = yield* all<{id: number; kept_group: number | null; deleted_at: number}>(
    `SELECT id, kept_group, deleted_at FROM jobs WHERE deleted_at IS NOT NULL ORDER BY name, id LIMIT ?`,
    [HIDDEN_MAX + 1],
  )
  if (rows.length > HIDDEN_MAX) return 'many'
  return new Map(
    rows.map(({id, kept_group: kept, deleted_at: at}) => {
      return [id, at > now - EPHEMERAL_KEPT_MS ? kept : null]
    }),
  )
}

/** Conditions for rows of jobs that the query names; `isVisible` decides about the rest. */
export function visibleRows(
  tx: Transaction,
  table: string,
  query: Pick<LaunchListQuery, 'names' | 'job'>,
  hidden: HiddenJobs,
): Condition[] {
  return hidden === 'many' ? ofJobs(tx, table, query) : ofNames(table, query)
}

export function isVisible(
  hidden: HiddenJobs,
  {jobId, group}: {readonly jobId: number; readonly group: number},
): boolean {
  return hidden === 'many' || !hidden.has(jobId) || hidden.get(jobId) === group
}
