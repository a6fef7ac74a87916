/** Requests by hand: stored at once, decided by the leader. */
import type {RunRequest, RunResult} from '../../ports/job-store.ts'
import type {Step} from './query.ts'
import {recall, remember} from './idempotency.ts'
import {lockJob} from './jobs.ts'
import {firstOpen, insertRequest} from './launch-rows.ts'
import type {Transaction} from './transaction.ts'

export function* requestRun(tx: Transaction, request: RunRequest): Step<RunResult> {
  const known = yield* recall<RunResult>(tx, request.idempotency)
  if (known !== null) return known
  const {name, forced} = request
  const job = yield* lockJob(tx, name)
  if (job === null) return {kind: 'unknown'}
  if (job.spec.concurrency === 'forbid' && !forced) {
    const open = yield* firstOpen(job)
    if (open !== null) return {kind: 'forbidden', openGroup: open.isOwn ? open.group : null}
  }
  const group = yield* insertRequest(tx, {job: {id: job.id, name}, cause: 'manual', forced})
  const result: RunResult = {kind: 'accepted', job, group}
  yield* remember(tx, request.idempotency, result)
  return result
}
