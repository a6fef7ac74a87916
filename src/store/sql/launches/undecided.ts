/**
 * Due jobs and waiting requests, which the leader decides next, page by page. A page is read in one
 * snapshot, with what its decisions depend on.
 */
import type {PendingWork} from '../../../core/launch.ts'
import type {DueWork, LeaderStore} from '../../../ports/leader-store.ts'
import {loadJobs} from '../jobs/jobs.ts'
import {inTheWay, inTheWayOfRequests} from './launch-rows.ts'
import {all, one, oneEach, type Query, together, type Transaction, type Values} from '../query.ts'
import {
  LAUNCH_COLUMNS,
  launchOf,
  type LaunchRow,
  plannedJobOf,
  type PlannedJobRow,
  readableJobs,
  SELECT_PLANNED_JOB,
} from '../rows.ts'
import {launchSettings} from '../jobs/firing.ts'
import {FIRING_PAUSED} from '../cluster/settings.ts'

const BEFORE_ALL = {nextAt: Number.MIN_SAFE_INTEGER, id: 0}
const DUE = `${SELECT_PLANNED_JOB} WHERE j.next_at <= ? AND (j.next_at, j.id) > (?, ?)
  AND NOT EXISTS (SELECT 1 FROM meta WHERE key = '${FIRING_PAUSED}')
  ORDER BY j.next_at, j.id LIMIT ?`

/** Returns a row if more jobs are due than the offset. Reads only an index. */
const MANY_DUE = `SELECT 1 AS found FROM jobs WHERE next_at <= ? AND (next_at, id) > (?, ?)
  ORDER BY next_at, id LIMIT 1 OFFSET ?`

/**
 * Open launches of a job with an execution that has not started; a limit bounds the count. The expression
 * `e.status || ''` prevents a bad plan: with statistics from a quiet time, PostgreSQL would read the index of
 * all that is pending for each launch. It uses no such index for an expression.
 */
export const QUEUED = `SELECT count(*) AS queued FROM (SELECT 1 AS found FROM launches l
  WHERE l.job_name = ? AND l.open = 1 AND EXISTS (SELECT 1 FROM executions e
    WHERE e.group_id = l.group_id AND e.status || '' = 'pending' AND e.attempt = 1)
  LIMIT ?) AS waiting`

/** Due jobs. The cost does not depend on the number of other jobs: only the due part of an index is read. */
export function* loadDue(
  tx: Transaction,
  {limit, after, queuedMax = 0, burstMin = null}: Parameters<LeaderStore['loadDue']>[0],
): Query<DueWork> {
  const {nextAt, id} = after ?? BEFORE_ALL
  const [settings, rows, isBurst, next] = yield* together(
    launchSettings(),
    all<PlannedJobRow>(DUE, [tx.now, nextAt, id, limit]),
    hasBurst([tx.now, nextAt, id], burstMin),
    one<{next_at: number | null}>(`SELECT min(next_at) AS next_at FROM jobs WHERE next_at > ?`, [
      tx.now,
    ]),
  )
  const {jobs, damaged} = readableJobs(rows, plannedJobOf)
  const forbidding = jobs.filter(({spec}) => spec.concurrency === 'forbid')
  const open = yield* inTheWay(forbidding.map(({spec}) => spec.name))
  const openById = new Map(forbidding.map(({id}, index) => [id, open[index] ?? null]))
  const allowing = queuedMax === 0 ? [] : jobs.filter(({spec}) => spec.concurrency === 'allow')
  const counts = yield* oneEach<{queued: number}>(
    QUEUED,
    allowing.map(({spec}) => [spec.name, queuedMax]),
  )
  const queuedById = new Map(allowing.map(({id}, index) => [id, counts[index]?.queued ?? 0]))
  const last = rows.length === limit ? rows.at(-1) : undefined
  return {
    now: tx.now,
    settings,
    jobs: jobs.map((job) => {
      const {id} = job
      return {job, openGroup: openById.get(id) ?? null, queued: queuedById.get(id) ?? 0}
    }),
    damaged,
    nextDueAt: next?.next_at ?? null,
    isBurst,
    next: last === undefined ? null : {nextAt: last.next_at!, id: last.id},
  }
}

function* hasBurst(from: Values, burstMin: number | null): Query<boolean> {
  if (burstMin === null) return false
  return (yield* one(MANY_DUE, [...from, burstMin])) !== null
}

/**
 * Newer planned times of a job that wait as well and are missed; a limit bounds the count. As in `QUEUED`, an
 * expression instead of the column keeps PostgreSQL from an index of all that is pending.
 */
export const NEWER_MISSED = `SELECT count(*) AS newer FROM (SELECT 1 AS found FROM launches
  WHERE job_id = ? AND cause = 'schedule' AND scheduled_at > ? AND scheduled_at < ?
    AND decision || '' = 'pending' LIMIT ?) AS waiting`

const PENDING_AFTER = `SELECT ${LAUNCH_COLUMNS} FROM launches
  WHERE decision = 'pending' AND group_id > ? ORDER BY group_id LIMIT ?`

export function* loadRequests(
  tx: Transaction,
  {afterGroup, limit, catchUp}: Parameters<LeaderStore['loadRequests']>[0],
): Query<Awaited<ReturnType<LeaderStore['loadRequests']>>> {
  const [settings, rows] = yield* together(
    launchSettings(),
    all<LaunchRow>(PENDING_AFTER, [afterGroup, limit]),
  )
  const launches = rows.map(launchOf)
  const [jobs, open] = yield* together(
    loadJobs(launches.map(({jobId}) => jobId)),
    inTheWayOfRequests(launches.map(({jobName, group}) => ({name: jobName, group}))),
  )
  const missedBefore = tx.now - (catchUp?.lateAfterMs ?? Infinity)
  const waiting = launches.filter(({reason, scheduledAt}) => {
    return reason === 'waits_for_node' && scheduledAt < missedBefore
  })
  const newer = yield* oneEach<{newer: number}>(
    NEWER_MISSED,
    waiting.map(({jobId, scheduledAt}) => {
      return [jobId, scheduledAt, missedBefore, catchUp?.catchUpMax ?? 0]
    }),
  )
  const newerByGroup = new Map(waiting.map(({group}, index) => [group, newer[index]?.newer ?? 0]))
  const requests = launches.flatMap((launch, index): PendingWork[] => {
    const job = jobs[index] ?? null
    const newerMissed = newerByGroup.get(launch.group) ?? 0
    return job === null ? [] : [{launch, job, openGroup: open[index] ?? null, newerMissed}]
  })
  return {now: tx.now, settings, requests}
}
