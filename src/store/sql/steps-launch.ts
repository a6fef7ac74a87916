/**
 * The launch step's half of the store: what is due, what was asked for, and writing what the leader
 * decided.
 */
import type {Candidate} from '../../core/node.ts'
import type {DueWork, PendingRequest} from '../../ports/leader-store.ts'
import {all, one, type Step} from './query.ts'
import {jobOf, LAUNCH_COLUMNS, launchOf, SELECT_JOB, type JobRow, type LaunchRow} from './rows.ts'
import {loadJobs} from './jobs.ts'
import {inTheWay, inTheWayOfRequests} from './launch-rows.ts'
import type {Transaction} from './transaction.ts'

/** Reads only the due part of an index: its cost does not grow with the jobs that are not due. */
export function* loadDue(tx: Transaction, request: {readonly limit: number}): Step<DueWork> {
  const rows = yield* all<JobRow>(
    `${SELECT_JOB} WHERE j.next_at <= ? ORDER BY j.next_at, j.id LIMIT ?`,
    [tx.now, request.limit],
  )
  const jobs = rows.map(jobOf)
  const forbidding = jobs.filter(({spec}) => spec.concurrency === 'forbid')
  const open = yield* inTheWay(forbidding.map(({spec}) => spec.name))
  const openById = new Map(forbidding.map(({id}, index) => [id, open[index] ?? null]))
  const next = yield* one<{next_at: number | null}>(
    `SELECT min(next_at) AS next_at FROM jobs WHERE next_at > ?`,
    [tx.now],
  )
  return {
    now: tx.now,
    jobs: jobs.map((job) => ({job, openGroup: openById.get(job.id) ?? null})),
    nextDueAt: next?.next_at ?? null,
  }
}

const PENDING_AFTER = `SELECT ${LAUNCH_COLUMNS} FROM launches
  WHERE decision = 'pending' AND group_id > ? ORDER BY group_id LIMIT ?`

export function* loadRequests(
  tx: Transaction,
  request: {readonly afterGroup: number; readonly limit: number},
): Step<{readonly now: number; readonly requests: readonly PendingRequest[]}> {
  const rows = yield* all<LaunchRow>(PENDING_AFTER, [request.afterGroup, request.limit])
  const launches = rows.map(launchOf)
  const jobs = yield* loadJobs(launches.map(({jobId}) => jobId))
  const found = launches.flatMap((launch, index) => {
    const job = jobs[index] ?? null
    return job === null ? [] : [{launch, job}]
  })
  const open = yield* inTheWayOfRequests(
    found.map(({launch: {jobName, group}}) => ({name: jobName, group})),
  )
  const requests = found.map((each, index) => ({...each, openGroup: open[index] ?? null}))
  return {now: tx.now, requests}
}

interface CandidateRow {
  readonly id: string
  readonly name: string
  readonly tags: string
  readonly slots: number
  readonly load: number
}

/**
 * What waits for a node is counted up to here: each pass asks, and with a hundred thousand waiting the
 * counting took a sixth of the launching. Nodes this far behind count as equally full until one catches up.
 */
const WAITING_COUNTED_MAX = 2_000

export function* candidates(_tx: Transaction): Step<readonly Candidate[]> {
  const rows = yield* all<CandidateRow>(
    `SELECT m.id, m.name, m.tags, m.slots,
      (SELECT count(*) FROM (SELECT 1 AS found FROM executions e
        WHERE e.node_id = m.id AND e.status = 'pending' LIMIT ${WAITING_COUNTED_MAX}) AS waiting)
      + (SELECT count(*) FROM executions e WHERE e.node_id = m.id AND e.status = 'running') AS load
      FROM members m WHERE m.status = 'alive' AND m.runs = 1 ORDER BY m.name, m.id`,
  )
  return rows.map(({id, name, tags, slots, load}) => {
    return {id, name, slots, load, tags: JSON.parse(tags) as Record<string, string>}
  })
}
