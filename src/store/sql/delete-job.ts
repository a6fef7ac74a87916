/**
 * Deleting a job: it and its history are gone from every answer at once, because every answer goes through
 * a live job. Its rows are let go later, a bounded piece at a time. What still runs is flagged; its end
 * closes the launch.
 */
import type {JobRecord} from '../../core/job.ts'
import type {DeleteResult, RevisionMatch} from '../../ports/job-store.ts'
import {loadJob, lockJob, unmatched} from './jobs.ts'
import {dropOutput, dropOutputOfLaunches} from './output.ts'
import {all, each, type Query, type Transaction} from './query.ts'
import {type ExecutionRow, keyOf} from './rows.ts'

/** The last launch of an ephemeral job stays readable this long. */
export const EPHEMERAL_KEPT_MS = 24 * 3_600_000

export interface SoftDelete {
  readonly why: 'deleted' | 'ephemeral'
  /** Launch that stays readable for a while. */
  readonly keptGroup: number | null
}

/** Makes live job `id` a tombstone: pending work goes, running executions are flagged to be ended. */
export function* softDelete(
  tx: Transaction,
  id: number,
  {why, keptGroup}: SoftDelete,
): Query<void> {
  yield* all(
    `UPDATE jobs SET deleted_at = ?, deleted_why = ?, kept_group = ?, next_at = NULL WHERE id = ?`,
    [tx.now, why, keptGroup, id],
  )
  yield* all(`DELETE FROM definitions WHERE job_id = ?`, [id])
  yield* all(`DELETE FROM job_metadata WHERE job_id = ?`, [id])
  const open = yield* all<{group_id: number}>(
    `SELECT group_id FROM launches WHERE job_id = ? AND open = 1
      AND job_name = (SELECT name FROM jobs WHERE id = ?)${tx.dialect.forUpdate}`,
    [id, id],
  )
  const groups = open.map((row) => [row.group_id])
  const pending = yield* each<ExecutionRow>(
    `DELETE FROM executions WHERE group_id = ? AND status = 'pending'
      RETURNING group_id, node_name, attempt`,
    groups,
  )
  yield* dropOutput(pending.flat().map(keyOf))
  yield* each(
    `UPDATE executions SET cancel_requested_at = ?
      WHERE group_id = ? AND status = 'running' AND cancel_requested_at IS NULL`,
    open.map((row) => [tx.now, row.group_id]),
  )
  yield* each(`DELETE FROM launches WHERE group_id = ? AND decision = 'pending'`, groups)
  yield* each(
    `UPDATE launches SET retries_ended = 1, open = CASE WHEN EXISTS
      (SELECT 1 FROM executions e WHERE e.group_id = launches.group_id AND e.status = 'running')
      THEN 1 ELSE 0 END WHERE group_id = ?`,
    groups,
  )
}

/* Deleting a job, and forgetting what it did. */

export function* deleteJob(
  tx: Transaction,
  name: string,
  ifMatch: RevisionMatch = null,
): Query<DeleteResult> {
  const job = yield* lockJob(tx, name)
  if (job === null) return {kind: 'unknown'}
  const refusal = unmatched(ifMatch, job)
  if (refusal !== null) return refusal
  if (job.dependentJobs.length > 0) return {kind: 'dependents', names: job.dependentJobs}
  yield* softDelete(tx, job.id, {why: 'deleted', keptGroup: null})
  return {kind: 'deleted', job}
}

/** The ledger keeps its rows: they are the record of what became of each planned time. */
export function* resetHistory(tx: Transaction, name: string): Query<JobRecord | null> {
  const job = yield* lockJob(tx, name)
  if (job === null) return null
  const closed = yield* all<{group_id: number}>(
    `SELECT group_id FROM launches WHERE job_id = ? AND decision = 'launched' AND open = 0`,
    [job.id],
  )
  const groups = closed.map((row) => row.group_id)
  yield* dropOutputOfLaunches(groups)
  yield* each(
    `DELETE FROM executions WHERE group_id = ?`,
    groups.map((group) => [group]),
  )
  yield* all(
    `UPDATE jobs SET success_count = 0, error_count = 0, last_success = NULL, last_error = NULL,
      status = '', status_group = 0 WHERE id = ?`,
    [job.id],
  )
  return yield* loadJob(name)
}
