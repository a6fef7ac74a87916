/**
 * What the leader does beside deciding: plans jobs again after a change of the time zone data, ends waits
 * that a wrong clock began in the future, and records jobs that cannot be decided.
 */
import type {JobFault} from '../../core/launch-record.ts'
import {replanned} from '../../core/next-time.ts'
import type {LeaderStore} from '../../ports/leader-store.ts'
import {newLaunch} from './launch-rows.ts'
import {fence} from './lease.ts'
import {all, each, one, oneEach, type Query, type Transaction} from './query.ts'
import {INSERT_LAUNCH, type JobRow, launchValues, readableJobs, SELECT_JOB} from './rows.ts'
import {metaValue, putMeta, timezone} from './settings.ts'

/** Version of the time zone data that planned `next` of all jobs. Absent = an earlier release did. */
const ZONE_DATA = 'zone_data'

export function* replan(
  tx: Transaction,
  {term, zoneData, after, limit}: Parameters<LeaderStore['replan']>[0],
): Query<number | null> {
  yield* fence(tx, term)
  if ((yield* metaValue(ZONE_DATA)) === zoneData) return null
  const rows = yield* all<JobRow>(
    `${SELECT_JOB} WHERE j.id > ? AND j.deleted_at IS NULL AND j.disabled = 0 AND j.parent = ''
      ORDER BY j.id LIMIT ?${tx.dialect.forUpdate}`,
    [after, limit],
  )
  const zone = yield* timezone()
  const moved = readableJobs(rows).jobs.flatMap((job) => {
    const nextAt = replanned(job, tx.now, zone)
    return nextAt === job.nextAt ? [] : [[nextAt, job.id]]
  })
  yield* each(`UPDATE jobs SET next_at = ? WHERE id = ?`, moved)
  if (rows.length === limit) return rows.at(-1)!.id
  yield* putMeta(ZONE_DATA, zoneData)
  return null
}

/** No wait of an execution is longer: the backoff of a retry ends after 6 minutes. */
const WAIT_MAX_MS = 15 * 60_000

export function* endFutureWaits(
  tx: Transaction,
  {term}: Parameters<LeaderStore['endFutureWaits']>[0],
): Query<number> {
  yield* fence(tx, term)
  const executions = yield* all(
    `UPDATE executions SET not_before = ? WHERE status = 'pending' AND not_before > ?
      RETURNING group_id`,
    [tx.now, tx.now + WAIT_MAX_MS],
  )
  const launches = yield* all(
    `UPDATE launches SET stored_at = ? WHERE decision = 'pending' AND stored_at > ?
      RETURNING group_id`,
    [tx.now, tx.now + WAIT_MAX_MS],
  )
  return executions.length + launches.length
}

/** One row a fault, unless the newest row of the job says the same. It covers no planned time. */
export function* recordFaults(
  tx: Transaction,
  term: number,
  faults: readonly JobFault[],
): Query<void> {
  const jobs = yield* oneEach<{id: number; name: string}>(
    `SELECT id, name FROM jobs WHERE id = ? AND deleted_at IS NULL`,
    faults.map(({jobId}) => [jobId]),
  )
  for (const [index, {jobId, reason}] of faults.entries()) {
    const job = jobs[index]
    if (job === null || job === undefined) continue
    const newest = yield* one<{reason: string}>(
      `SELECT reason FROM launches WHERE job_id = ? ORDER BY group_id DESC LIMIT 1`,
      [jobId],
    )
    if (newest?.reason === reason) continue
    const [group] = yield* tx.dialect.takeNumbers('launch', 1)
    const times = {scheduledAt: tx.now, decidedAt: tx.now, term}
    const row = {cause: 'manual', decision: 'skipped', reason, ...times} as const
    yield* all(INSERT_LAUNCH, launchValues(newLaunch(job, group!, tx.now, row)))
  }
}
