/** Deleting a job, and forgetting what it did. */
import type {JobRecord} from '../../core/job.ts'
import type {DeleteResult, RevisionMatch} from '../../ports/job-store.ts'
import {all, each, type Step} from './query.ts'
import {unmatched} from './steps-submit.ts'
import {bury} from './delete-job.ts'
import {loadJob, lockJob} from './jobs.ts'
import {dropOutputOfLaunches} from './stored-output.ts'
import type {Transaction} from './transaction.ts'

export function* deleteJob(
  tx: Transaction,
  name: string,
  ifMatch: RevisionMatch,
): Step<DeleteResult> {
  const job = yield* lockJob(tx, name)
  if (job === null) return {kind: 'unknown'}
  const refusal = unmatched(ifMatch, job)
  if (refusal !== null) return refusal
  if (job.dependentJobs.length > 0) return {kind: 'dependents', names: job.dependentJobs}
  yield* bury(tx, job.id, {why: 'deleted', keptGroup: null})
  return {kind: 'deleted', job}
}

/** The ledger keeps its rows: they are the record of what became of each planned time. */
export function* resetHistory(tx: Transaction, name: string): Step<JobRecord | null> {
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
