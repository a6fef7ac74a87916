/**
 * Deleting a job (soft delete) and resetting its history. A deleted job and its history disappear from every
 * reply at once, because every reply goes through a live job. Retention deletes the rows later, in bounded
 * batches. Running executions get a cancel request; the last one that ends closes the launch.
 */
import {type Actor, BELFRY, replacedBy} from '../../../core/audit.ts'
import {deletedSentence} from '../../../core/explain/reasons.ts'
import type {JobRecord} from '../../../core/job.ts'
import {checkRevision, type RevisionMatch} from '../../../core/submit.ts'
import type {DeleteResult} from '../../../ports/job-store.ts'
import {recordChange} from '../access/audit.ts'
import {loadJob, lockJob} from './jobs.ts'
import {recordDefinitions} from '../notices/facts.ts'
import {noticeScopes} from '../notices/scopes.ts'
import {dropOutput, dropOutputOfLaunches} from '../executions/output.ts'
import {all, each, type Query, type Transaction} from '../query.ts'
import {type ExecutionRow, keyOf} from '../rows.ts'

export function* deleteJob(
  tx: Transaction,
  name: string,
  ifMatch: RevisionMatch = null,
  actor: Actor = BELFRY,
): Query<DeleteResult> {
  const job = yield* lockJob(tx, name)
  if (job === null) return {kind: 'unknown'}
  const refusal = checkRevision(ifMatch, job)
  if (refusal !== null) return refusal
  if (job.dependentJobs.length > 0) return {kind: 'dependents', names: job.dependentJobs}
  yield* softDelete(tx, job.id, {why: 'deleted', keptGroup: null})
  const sentence = deletedSentence(actor)
  const deleted = {jobId: job.id, kind: 'deleted', spec: job.spec, sentence} as const
  yield* recordDefinitions(tx, [deleted], yield* noticeScopes())
  const replaced = replacedBy(job, null)
  yield* recordChange(tx, {
    actor,
    action: 'job.delete',
    targetType: 'job',
    target: name,
    ...replaced,
  })
  return {kind: 'deleted', job}
}

/** Launch rows stay: they record the outcome of each planned time. */
export function* resetHistory(
  tx: Transaction,
  name: string,
  actor?: Actor,
): Query<JobRecord | null> {
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
      status = '', status_group = 0, fail_streak = NULL, failing_since = NULL, typical_ms = NULL,
      reset_at = ? WHERE id = ?`,
    [tx.now, job.id],
  )
  yield* recordChange(tx, {actor, action: 'job.reset', targetType: 'job', target: name})
  return yield* loadJob(name)
}

/** The last launch of a deleted ephemeral job stays readable this long. */
export const EPHEMERAL_KEPT_MS = 24 * 3_600_000

export interface SoftDelete {
  readonly why: 'deleted' | 'ephemeral'
  /** Launch that stays readable for `EPHEMERAL_KEPT_MS`; `null` = none. */
  readonly keptGroup: number | null
}

/** Deletes the pending work of live job `id` and requests the cancellation of running executions. */
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
