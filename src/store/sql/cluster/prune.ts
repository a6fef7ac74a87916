/**
 * Retention of history: deletes in bounded batches. Never deletes an open launch, or output of a running
 * execution. A round visits all live jobs, or those launched lately, or the rows that belong to no live job.
 */
import type {PruneRequest, PruneResult} from '../../../ports/leader-store.ts'
import {EPHEMERAL_KEPT_MS} from '../jobs/delete-job.ts'
import {IDEMPOTENCY_KEPT_MS} from '../jobs/idempotency.ts'
import {pruneEvents} from './cluster-events.ts'
import {fence} from './lease.ts'
import {closeLeftSpans} from '../launches/disabled-spans.ts'
import {dropOutput, dropOutputOfLaunches, totalOutputBytes} from '../executions/output.ts'
import {
  all,
  each,
  one,
  oneEach,
  type Query,
  sendEach,
  type Transaction,
  type Values,
} from '../query.ts'
import {type ExecutionRow, keyOf} from '../rows.ts'
import {tooOldAt} from './standstill.ts'

const DAY_MS = 86_400_000
/** More than a year, so that a day can be compared with the same day of the previous year. */
const STATISTICS_KEPT_MS = 400 * DAY_MS
/** Executions whose output one call may cut when total output exceeds its limit. */
const OUTPUTS_PER_CALL = 500
/** Deleted jobs of each kind that one call may remove, and launches of each of them. */
const DELETED_JOBS_PER_CALL = 200
const LAUNCHES_OF_DELETED = 50

/** Rows that one call may still delete, and its results. */
interface Budget {
  rowsLeft: number
  rowsDeleted: number
  outputBytesCut: number
  more: boolean
}

export function* prune(tx: Transaction, request: PruneRequest): Query<PruneResult> {
  yield* fence(tx, request.term)
  const budget: Budget = {
    rowsLeft: request.rowLimit,
    rowsDeleted: 0,
    outputBytesCut: 0,
    more: false,
  }
  const newest = yield* one<{group_id: number | null}>(
    `SELECT max(group_id) AS group_id FROM launches`,
  )
  let next = 0
  let isLast = true
  if (request.round === 'other') {
    yield* pruneDeletedJobs(tx, budget)
    yield* pruneOutput(tx, budget, request.keepOutputBytes)
    yield* pruneOther(tx, budget)
  } else {
    const piece = yield* request.round === 'all' ? someJobs(request) : someLaunched(request)
    yield* closeLeftSpans(tx, piece.ids)
    yield* pruneLaunches(budget, yield* excess(tx, budget, request, piece.ids))
    yield* pruneExecutions(budget, request, piece.ids)
    next = piece.next
    isLast = piece.isLast
  }
  const {rowsDeleted, outputBytesCut, more} = budget
  const newestGroup = newest?.group_id ?? 0
  return {next, isRoundOver: isLast, newestGroup, rowsDeleted, outputBytesCut, more}
}

/** The live jobs that one call visits. */
interface Piece {
  readonly ids: readonly number[]
  readonly next: number
  readonly isLast: boolean
}

function* someJobs({after, jobLimit}: PruneRequest): Query<Piece> {
  const rows = yield* all<{id: number}>(
    `SELECT id FROM jobs WHERE id > ? AND deleted_at IS NULL ORDER BY id LIMIT ?`,
    [after, jobLimit],
  )
  const ids = rows.map(({id}) => id)
  return {ids, next: ids.at(-1) ?? after, isLast: ids.length < jobLimit}
}

/** A launch that commits after one with a larger number is missed here; a round over all jobs finds it. */
function* someLaunched({after, jobLimit}: PruneRequest): Query<Piece> {
  const rows = yield* all<{group_id: number; job_id: number}>(
    `SELECT group_id, job_id FROM launches WHERE group_id > ? ORDER BY group_id LIMIT ?`,
    [after, jobLimit],
  )
  const jobs = [...new Set(rows.map((row) => row.job_id))]
  // A join could make PostgreSQL read all jobs for each launch.
  const found = yield* oneEach<{deleted_at: number | null}>(
    `SELECT deleted_at FROM jobs WHERE id = ?`,
    jobs.map((id) => [id]),
  )
  const ids = jobs.filter((_id, index) => found[index]?.deleted_at === null)
  // A skipped row of a dependent is written without a lock on the job, which may be gone by then.
  const ownerless = new Set(jobs.filter((_id, index) => found[index] === null))
  yield* sendEach(
    `DELETE FROM launches WHERE group_id = ? AND open = 0`,
    rows.flatMap((row) => (ownerless.has(row.job_id) ? [[row.group_id]] : [])),
  )
  return {ids, next: rows.at(-1)?.group_id ?? after, isLast: rows.length < jobLimit}
}

/** An open span of a disabled job has no planned times yet, and stays until it is counted. */
const IS_NO_OPEN_SPAN = 'planned_count > 0'

/** Closed launches beyond the newest that are kept. The inner select reads only an index. */
function beyondNewest(decisions: string): string {
  return `SELECT group_id FROM launches WHERE open = 0 AND ${IS_NO_OPEN_SPAN} AND group_id IN
    (SELECT group_id FROM launches WHERE job_id = ? AND decision IN (${decisions})
    ORDER BY group_id DESC LIMIT ? OFFSET ?)`
}

/** The oldest closed launches that are too old; numbers grow with time, so no others need a check. */
const TOO_OLD = `SELECT group_id FROM (SELECT group_id, decided_at FROM launches
  WHERE job_id = ? AND open = 0 AND ${IS_NO_OPEN_SPAN} ORDER BY group_id LIMIT ?) AS oldest
  WHERE decided_at < ?`
/** Launches checked by age at once; if all are too old, the job is checked again. */
const OLDEST_LAUNCHES = 50

/** Numbers of the launches of these jobs beyond what is kept, in order. */
function* excess(
  tx: Transaction,
  budget: Budget,
  request: PruneRequest,
  ids: readonly number[],
): Query<number[]> {
  const {keepLaunches, keepUnlaunched, keepMs} = request
  // The limit plus one shows that there are more.
  const limit = request.rowLimit + 1
  const found = [
    yield* each<{group_id: number}>(
      beyondNewest(`'launched'`),
      ids.map((id) => [id, limit, keepLaunches]),
    ),
    yield* each<{group_id: number}>(
      beyondNewest(`'skipped', 'missed'`),
      ids.map((id) => [id, limit, keepUnlaunched]),
    ),
  ]
  if (keepMs !== null && request.round === 'all') {
    const oldAt = yield* tooOldAt(tx, keepMs)
    const old = yield* each<{group_id: number}>(
      TOO_OLD,
      ids.map((id) => [id, OLDEST_LAUNCHES, oldAt]),
    )
    found.push(old)
    if (old.some(({length}) => length === OLDEST_LAUNCHES)) budget.more = true
  }
  const groups = new Set(found.flat(2).map((row) => row.group_id))
  return [...groups].toSorted((a, b) => a - b)
}

/**
 * The first launches of these whose rows fit into the budget, which is charged; at least one, if nothing was
 * deleted yet. `ownRows`: rows of each besides its executions.
 */
function* withinBudget(
  budget: Budget,
  groups: readonly number[],
  ownRows: number,
): Query<readonly number[]> {
  const candidates = groups.slice(0, Math.max(1, budget.rowsLeft))
  const sizes = yield* oneEach<{size: number}>(
    `SELECT count(*) AS size FROM executions WHERE group_id = ?`,
    candidates.map((group) => [group]),
  )
  const chosen: number[] = []
  for (const [index, group] of candidates.entries()) {
    const rows = ownRows + (sizes[index]?.size ?? 0)
    if (budget.rowsLeft < rows && budget.rowsDeleted > 0) break
    budget.rowsLeft -= rows
    budget.rowsDeleted += rows
    chosen.push(group)
  }
  if (chosen.length < groups.length) budget.more = true
  return chosen
}

/** Deletes launches with their executions and output. */
function* pruneLaunches(budget: Budget, groups: readonly number[]): Query<void> {
  const chosen = yield* withinBudget(budget, groups, 1)
  yield* deleteExecutions(budget, chosen)
  yield* each(
    `DELETE FROM launches WHERE group_id = ?`,
    chosen.map((group) => [group]),
  )
}

function* deleteExecutions(budget: Budget, groups: readonly number[]): Query<void> {
  budget.outputBytesCut += yield* dropOutputOfLaunches(groups)
  yield* each(
    `DELETE FROM executions WHERE group_id = ?`,
    groups.map((group) => [group]),
  )
}

/** Launches of a job that have executions, before the newest launches whose executions are kept. */
const BEFORE_NEWEST = `SELECT DISTINCT e.group_id FROM executions e
  JOIN launches l ON l.group_id = e.group_id AND l.open = 0
  WHERE e.job_id = ? AND e.group_id < (SELECT group_id FROM launches
    WHERE job_id = ? AND decision = 'launched' ORDER BY group_id DESC LIMIT 1 OFFSET ?)
  ORDER BY e.group_id LIMIT ?`

/** Deletes executions and output of launches beyond the newest; the launches stay. */
function* pruneExecutions(
  budget: Budget,
  {keepExecutions, rowLimit}: PruneRequest,
  ids: readonly number[],
): Query<void> {
  const found = yield* each<{group_id: number}>(
    BEFORE_NEWEST,
    ids.map((id) => [id, id, keepExecutions - 1, rowLimit + 1]),
  )
  const groups = found.flat().map((row) => row.group_id)
  yield* deleteExecutions(budget, yield* withinBudget(budget, groups, 0))
}

/** No launch of the job is open: none of its executions runs. */
const IS_OVER = `NOT EXISTS (SELECT 1 FROM launches l
  WHERE l.job_name = jobs.name AND l.open = 1 AND l.job_id = jobs.id)`

/** Soft-deleted jobs; each condition is that of an index, so that no other job is read. */
export const DELETED_JOBS = `SELECT id FROM jobs WHERE deleted_at IS NOT NULL AND kept_group IS NULL
  AND ${IS_OVER} ORDER BY id LIMIT ?`
/** Ephemeral jobs whose last launch has expired. */
export const EXPIRED_JOBS = `SELECT id FROM jobs WHERE kept_group IS NOT NULL AND deleted_at <= ?
  AND ${IS_OVER} ORDER BY deleted_at, id LIMIT ?`

/** Deletes these jobs with their launches, as far as the budget allows. */
function* pruneDeletedJobs(tx: Transaction, budget: Budget): Query<void> {
  const expiredAt = tx.now - EPHEMERAL_KEPT_MS
  const deleted = yield* all<{id: number}>(DELETED_JOBS, [DELETED_JOBS_PER_CALL])
  const expired = yield* all<{id: number}>(EXPIRED_JOBS, [expiredAt, DELETED_JOBS_PER_CALL])
  const jobs = [...deleted, ...expired]
  const launches = yield* each<{group_id: number}>(
    `SELECT group_id FROM launches WHERE job_id = ? ORDER BY group_id LIMIT ?`,
    jobs.map(({id}) => [id, LAUNCHES_OF_DELETED]),
  )
  yield* pruneLaunches(
    budget,
    launches.flat().map((row) => row.group_id),
  )
  const gone = yield* each(
    `DELETE FROM jobs WHERE id = ? AND NOT EXISTS
      (SELECT 1 FROM launches l WHERE l.job_id = jobs.id) RETURNING 1 AS gone`,
    jobs.map(({id}) => [id]),
  )
  const goneCount = gone.flat().length
  budget.rowsDeleted += goneCount
  const isFull = [deleted, expired].some(({length}) => length === DELETED_JOBS_PER_CALL)
  if (isFull || goneCount < jobs.length) budget.more = true
}

/** Deletes the oldest output first; the executions stay and show that it was cut. */
function* pruneOutput(tx: Transaction, budget: Budget, keepBytes: number): Query<void> {
  let total = yield* totalOutputBytes(tx)
  if (total <= keepBytes) return
  const oldest = yield* all<ExecutionRow & {size: number}>(
    `SELECT o.group_id, o.node_name, o.attempt, sum(length(o.bytes)) AS size FROM output o
      WHERE NOT EXISTS (SELECT 1 FROM executions e WHERE e.group_id = o.group_id
        AND e.node_name = o.node_name AND e.attempt = o.attempt AND e.status = 'running')
      GROUP BY o.group_id, o.node_name, o.attempt
      ORDER BY o.group_id, o.node_name, o.attempt LIMIT ?`,
    [OUTPUTS_PER_CALL],
  )
  const cut: ExecutionRow[] = []
  for (const row of oldest) {
    if (total <= keepBytes) break
    total -= row.size
    cut.push(row)
  }
  budget.outputBytesCut += yield* dropOutput(cut.map(keyOf))
  if (total > keepBytes && oldest.length === OUTPUTS_PER_CALL) budget.more = true
}

/** Rows that belong to no job; each kind is small or grows slowly. */
function* pruneOther(tx: Transaction, budget: Budget): Query<void> {
  const statisticsFrom = yield* tooOldAt(tx, STATISTICS_KEPT_MS)
  const deletions: [string, Values][] = [
    [
      `DELETE FROM idempotency WHERE (scope, key) IN
        (SELECT scope, key FROM idempotency WHERE created_at <= ? ORDER BY created_at LIMIT ?)
        RETURNING 1 AS gone`,
      [tx.now - IDEMPOTENCY_KEPT_MS, Math.max(1, budget.rowsLeft)],
    ],
    [`DELETE FROM statistics WHERE day < ? RETURNING 1 AS gone`, [statisticsFrom]],
  ]
  for (const [sql, values] of deletions) {
    const gone = yield* all(sql, values)
    budget.rowsDeleted += gone.length
  }
  budget.rowsDeleted += yield* pruneEvents(tx)
}
