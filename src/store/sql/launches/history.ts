/**
 * Reads of history: executions, launches, statistics. A name leads to a live job or, for a while, to the last
 * launch of a deleted ephemeral job; other history of deleted jobs is never returned.
 */
import type {ExecutionKey, ExecutionRecord} from '../../../core/execution.ts'
import type {LaunchDecision} from '../../../core/launch-record.ts'
import type {
  BusyQuery,
  DayStatistics,
  ExecutionQuery,
  ExecutionView,
  HistoryStore,
  LaunchView,
  NamedExecution,
  OutputStretch,
} from '../../../ports/history-store.ts'
import type {Page, Slice} from '../../../ports/page.ts'
import {EPHEMERAL_KEPT_MS} from '../jobs/delete-job.ts'
import {isShownName} from '../jobs/name-filter.ts'
import {readOutput, withOutput} from '../executions/output.ts'
import {all, one, type Query, together, type Transaction, type Value} from '../query.ts'
import {
  BY_KEY,
  EXECUTION_COLUMNS,
  EXECUTION_COLUMNS_E,
  executionOf,
  type ExecutionRow,
  keyValues,
  LAUNCH_COLUMNS,
  type LaunchRow,
} from '../rows.ts'
import {FIRING_PAUSED} from '../cluster/settings.ts'
import {launchViews} from './launch-views.ts'

export function* executions(
  tx: Transaction,
  name: string,
  query: ExecutionQuery,
): Query<Page<ExecutionView> | null> {
  const owner = yield* ownerOf(tx, name)
  if (owner === null) return null
  const {where: owned, values} = ownedBy(owner)
  const {status} = query
  const isStatus = status === 'not_pending' ? "status <> 'pending'" : 'status = ?'
  if (status !== null && status !== 'not_pending') values.push(status)
  const where = status === null ? owned : `${owned} AND ${isStatus}`
  return yield* executionPage(tx, `FROM executions WHERE ${where}`, values, {
    ...query,
    columns: EXECUTION_COLUMNS,
    orderBy: executionOrder(query),
  })
}

export function* execution(
  tx: Transaction,
  name: string,
  key: ExecutionKey,
  outputBytes: number,
): Query<ExecutionView | null> {
  const found = yield* ownedExecution(tx, name, key)
  if (found === null) return null
  const isWhole = outputBytes >= tx.limits.outputTailBytes
  const [view] = yield* withOutput(tx, [found], outputBytes, isWhole)
  return view!
}

/** `execution` of each, in as many round trips as one. */
export function* executionOfEach(
  tx: Transaction,
  wanted: readonly NamedExecution[],
  outputBytes: number,
): Query<(ExecutionView | null)[]> {
  return yield* together(
    ...wanted.map(({jobName, key}) => execution(tx, jobName, key, outputBytes)),
  )
}

export function* outputSince(
  tx: Transaction,
  name: string,
  key: ExecutionKey,
  from: number,
  limit: number,
): Query<OutputStretch | null> {
  const found = yield* ownedExecution(tx, name, key)
  if (found === null) return null
  const kept = yield* readOutput(key, from, limit)
  return {...kept, totalBytes: found.outputBytes, execution: found}
}

export function* busy(tx: Transaction, query: BusyQuery): Query<Page<ExecutionView>> {
  const {names = null} = query
  const shown = isShownName('j.name', names)
  const from = `FROM executions e JOIN jobs j ON j.id = e.job_id
    WHERE e.status = 'running' AND j.deleted_at IS NULL AND ${shown.sql}`
  const columns = EXECUTION_COLUMNS_E
  const orderBy = 'e.started_at, e.group_id, e.attempt, e.node_name'
  return yield* executionPage(tx, from, shown.values, {...query, columns, orderBy})
}

export function* launches(
  tx: Transaction,
  name: string,
  query: Slice & {readonly decision: LaunchDecision | null},
): Query<Page<LaunchView> | null> {
  const owner = yield* ownerOf(tx, name)
  if (owner === null) return null
  const {where: owned, values} = ownedBy(owner)
  const where = query.decision === null ? owned : `${owned} AND decision = ?`
  if (query.decision !== null) values.push(query.decision)
  const [counted, rows] = yield* together(
    one<{total: number}>(`SELECT count(*) AS total FROM launches WHERE ${where}`, values),
    all<LaunchRow>(
      `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE ${where} ORDER BY group_id DESC LIMIT ? OFFSET ?`,
      [...values, ...limits(query)],
    ),
  )
  return {total: counted?.total ?? 0, rows: yield* launchViews(tx, rows)}
}

export function* launch(tx: Transaction, name: string, group: number): Query<LaunchView | null> {
  const owner = yield* ownerOf(tx, name)
  if (owner === null) return null
  const {where, values} = ownedBy(owner)
  const row = yield* one<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE group_id = ? AND ${where}`,
    [group, ...values],
  )
  if (row === null) return null
  const [view] = yield* launchViews(tx, [row])
  return view!
}

const DAY_MS = 86_400_000

export function* statistics(tx: Transaction, days: number): Query<readonly DayStatistics[]> {
  const today = tx.now - (tx.now % DAY_MS)
  const first = today - (days - 1) * DAY_MS
  const rows = yield* all<{day: number; success_count: number; failed_count: number}>(
    `SELECT day, success_count, failed_count FROM statistics WHERE day >= ?`,
    [first],
  )
  const byDay = new Map(rows.map((row) => [row.day, row]))
  return Array.from({length: days}, (_, index) => {
    const date = first + index * DAY_MS
    const row = byDay.get(date)
    return {date, successCount: row?.success_count ?? 0, failedCount: row?.failed_count ?? 0}
  })
}

/** Stands for a pause without an end; no instant is as late. */
const FOREVER = Number.MAX_SAFE_INTEGER

export function* totals(tx: Transaction): Query<Awaited<ReturnType<HistoryStore['totals']>>> {
  const row = yield* one<
    Record<'jobs' | 'running' | 'pending' | 'undecided' | 'put_back', number> & {
      readonly paused_until: number | null
      readonly oldest_next: number | null
      readonly waiting_since: number | null
    }
  >(
    `SELECT (SELECT count(*) FROM jobs WHERE deleted_at IS NULL) AS jobs,
      (SELECT count(*) FROM executions e JOIN jobs j ON j.id = e.job_id
        WHERE e.status = 'running' AND j.deleted_at IS NULL) AS running,
      (SELECT count(*) FROM executions WHERE status = 'pending') AS pending,
      (SELECT count(*) FROM launches WHERE decision = 'pending') AS undecided,
      (SELECT min(stored_at) FROM launches
        WHERE decision = 'pending' AND reason = 'waits_for_node') AS waiting_since,
      (SELECT min(next_at) FROM jobs WHERE next_at IS NOT NULL) AS oldest_next,
      (SELECT max(COALESCE(paused_until, ${FOREVER})) FROM firing_pauses) AS paused_until,
      (SELECT count(*) FROM meta WHERE key = '${FIRING_PAUSED}') AS put_back`,
  )
  const {jobs, running, pending, undecided, paused_until: until, put_back: putBack} = row!
  // The time is known only after the reply: as a value, it would take a round trip of its own.
  const isPaused = putBack > 0 || (until ?? 0) > tx.now
  const lateMs = Math.max(0, tx.now - (row!.oldest_next ?? tx.now))
  const waitingMs = Math.max(0, tx.now - (row!.waiting_since ?? tx.now))
  return {jobs, running, pending, undecided, firingPaused: isPaused ? 1 : 0, lateMs, waitingMs}
}

interface Owner {
  readonly jobId: number
  /** The only visible launch; `null` = all. */
  readonly keptGroup: number | null
}

function* ownerOf(tx: Transaction, name: string): Query<Owner | null> {
  const live = yield* one<{id: number}>(
    `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL`,
    [name],
  )
  if (live !== null) return {jobId: live.id, keptGroup: null}
  const gone = yield* one<{id: number; kept_group: number}>(
    `SELECT id, kept_group FROM jobs WHERE name = ? AND deleted_at > ? AND kept_group IS NOT NULL
      ORDER BY id DESC LIMIT 1`,
    [name, tx.now - EPHEMERAL_KEPT_MS],
  )
  return gone === null ? null : {jobId: gone.id, keptGroup: gone.kept_group}
}

/** The `WHERE` clause for the visible rows of `owner`, with its values. */
function ownedBy({jobId, keptGroup}: Owner): {where: string; values: Value[]} {
  return keptGroup === null
    ? {where: 'job_id = ?', values: [jobId]}
    : {where: 'job_id = ? AND group_id = ?', values: [jobId, keptGroup]}
}

function* ownedExecution(
  tx: Transaction,
  name: string,
  key: ExecutionKey,
): Query<ExecutionRecord | null> {
  const owner = yield* ownerOf(tx, name)
  if (owner === null) return null
  const {where, values} = ownedBy(owner)
  const row = yield* one<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE ${BY_KEY} AND ${where}`,
    [...keyValues(key), ...values],
  )
  return row === null ? null : executionOf(row)
}

function* executionPage(
  tx: Transaction,
  from: string,
  values: readonly Value[],
  query: Slice & {
    readonly columns: string
    readonly orderBy: string
    readonly outputBytes: number
  },
): Query<Page<ExecutionView>> {
  const [counted, found] = yield* together(
    one<{total: number}>(`SELECT count(*) AS total ${from}`, values),
    all<ExecutionRow>(
      `SELECT ${query.columns} ${from} ORDER BY ${query.orderBy} LIMIT ? OFFSET ?`,
      [...values, ...limits(query)],
    ),
  )
  const rows = yield* withOutput(tx, found.map(executionOf), query.outputBytes)
  return {total: counted?.total ?? 0, rows}
}

function executionOrder({sort, order}: Pick<ExecutionQuery, 'sort' | 'order'>): string {
  const way = order === 'asc' ? 'ASC' : 'DESC'
  const identity = `group_id ${way}, attempt ${way}, node_name ${way}`
  // The API shows a missing time as the zero time, which sorts before all others.
  const empty = order === 'asc' ? 'NULLS FIRST' : 'NULLS LAST'
  switch (sort) {
    case 'id':
      return identity
    case 'attempt':
      return `attempt ${way}, group_id ${way}, node_name ${way}`
    case 'started_at':
    case 'finished_at':
      return `${sort} ${way} ${empty}, ${identity}`
  }
}

/** `LIMIT` of a slice without an end: more rows than any table has. */
const ALL_ROWS = Number.MAX_SAFE_INTEGER

function limits({start, end}: Slice): [limit: number, offset: number] {
  return [end === null ? ALL_ROWS : Math.max(0, end - start), start]
}
