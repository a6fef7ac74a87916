/** Attempts that ended badly, wait, or run for long, and launches and planned times that wait. */
import {LATE_MIN_MS, LONG_MIN_MS} from '../../../core/problems/ended.ts'
import type {AttemptFacts, ProblemFacts, RunningFacts} from '../../../core/problems/facts.ts'
import type {ProblemQuery} from '../../../ports/history-store.ts'
import {keysetPage} from '../keyset.ts'
import {all, type Query, together, type Transaction} from '../query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow} from '../rows.ts'
import {
  allOf,
  condition,
  EXECUTIONS_ENDED_BADLY,
  hasMetadata,
  isOfJobs,
  ofJobs,
  upTo,
} from './across-jobs.ts'
import {type HiddenJobs, isVisible, visibleRows} from './hidden-jobs.ts'

/**
 * Rows of one list that are read. Each costs some 30 microseconds with what is looked up for it: three full
 * lists and the spans of 1,000 disabled jobs stay within 100 ms.
 */
export const ROWS_MAX = 1_000
/** Rows that are looked through for them: those of other jobs, and of spans that are counted apart. */
export const VISITED_MAX = 5_000
/** Launches without a decision, and attempts that wait or run, oldest first. */
const WAITING_MAX = 2_000
const DUE_MAX = 1_000

/** Instants in ms since the epoch. */
export interface Range {
  readonly from: number
  /** `ALWAYS` = now: ends are timed by nodes, and may be a moment ahead. */
  readonly to: number
}
export const ALWAYS = Number.MAX_SAFE_INTEGER

export interface Rows<Row> {
  readonly rows: readonly Row[]
  readonly isPartial: boolean
}

const ATTEMPT_COLUMNS = `e.group_id, e.node_name, e.attempt, e.job_id, e.job_name, e.status, e.reason,
  e.exit_code, e.started_at, e.finished_at, e.not_before`
/** A single value on purpose: a planner must not turn it into a join over all launches. */
const PLANNED = `(SELECT l.scheduled_at FROM launches l WHERE l.group_id = e.group_id) AS scheduled_at`

interface AttemptRow {
  readonly group_id: number
  readonly node_name: string
  readonly attempt: number
  readonly job_id: number
  readonly job_name: string
  readonly status: AttemptFacts['status']
  readonly reason: string
  readonly exit_code: number | null
  readonly started_at: number | null
  readonly finished_at: number | null
  readonly not_before: number
  readonly scheduled_at?: number | null
}

function attemptOf(row: AttemptRow): AttemptFacts {
  return {
    group: row.group_id,
    node: row.node_name,
    attempt: row.attempt,
    jobId: row.job_id,
    jobName: row.job_name,
    status: row.status,
    reason: row.reason,
    exitCode: row.exit_code,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
    notBefore: row.not_before,
    scheduledAt: row.scheduled_at ?? row.not_before,
  }
}

/** Attempts that ended badly, but for those that a person cancelled. */
export function* badEnds(
  tx: Transaction,
  query: ProblemQuery,
  {from, to}: Range,
  hidden: HiddenJobs,
): Query<Rows<AttemptFacts>> {
  const conditions = [
    condition(`e.status <> 'cancelled' AND e.finished_at <= ?`, to),
    ...visibleRows(tx, 'e', query, hidden),
    ...query.metadata.map((filter) => hasMetadata(filter, 'e.job_id')),
  ]
  const {items, next} = yield* keysetPage<AttemptRow>(
    {
      columns: ATTEMPT_COLUMNS,
      from: 'executions e',
      where: EXECUTIONS_ENDED_BADLY,
      key: ['e.finished_at', 'e.group_id', 'e.node_name', 'e.attempt'],
      range: upTo(from),
      filter: {...allOf(conditions), visitedMax: VISITED_MAX},
      order: 'desc',
    },
    {after: null, limit: ROWS_MAX},
  )
  return {
    rows: items.map(attemptOf).filter((row) => isVisible(hidden, row)),
    isPartial: next !== null,
  }
}

interface RunningRow extends AttemptRow {
  readonly typical_ms: number | null
}

/** Rows that wait or run now, oldest first; none if it is not a range up to now. */
export function* waitingRows(
  tx: Transaction,
  query: ProblemQuery,
  isNow: boolean,
): Query<
  Pick<ProblemFacts, 'pending' | 'queued' | 'running' | 'due'> & {readonly isPartial: boolean}
> {
  if (!isNow) return {pending: [], queued: [], running: [], due: [], isPartial: false}
  const late = tx.now - LATE_MIN_MS
  const launches = allOf([
    condition('l.stored_at <= ?', late),
    ...ofJobs(tx, 'l', query),
    ...query.metadata.map((filter) => hasMetadata(filter)),
  ])
  const attempts = allOf([
    ...ofJobs(tx, 'e', query),
    ...query.metadata.map((filter) => hasMetadata(filter, 'e.job_id')),
  ])
  const due = allOf(isOfJobs(query))
  const [pending, queued, running, jobs] = yield* together(
    all<LaunchRow>(
      `SELECT ${LAUNCH_COLUMNS} FROM launches l WHERE l.decision = 'pending' AND ${launches.where}
        ORDER BY l.group_id LIMIT ?`,
      [...launches.values, WAITING_MAX + 1],
    ),
    all<AttemptRow>(
      `SELECT ${ATTEMPT_COLUMNS}, ${PLANNED} FROM executions e WHERE e.status = 'pending'
        AND e.not_before <= ? AND ${attempts.where} ORDER BY e.group_id LIMIT ?`,
      [late, ...attempts.values, WAITING_MAX + 1],
    ),
    all<RunningRow>(
      `SELECT ${ATTEMPT_COLUMNS.replaceAll('e.', '')}, scheduled_at, typical_ms
        FROM (SELECT ${ATTEMPT_COLUMNS}, ${PLANNED},
          (SELECT j.typical_ms FROM jobs j WHERE j.id = e.job_id) AS typical_ms
          FROM executions e WHERE e.status = 'running' AND ${attempts.where}) AS attempts
        WHERE started_at <= ? OR started_at - scheduled_at >= ? LIMIT ?`,
      [...attempts.values, tx.now - LONG_MIN_MS, LATE_MIN_MS, WAITING_MAX + 1],
    ),
    all<{name: string; next_at: number}>(
      `SELECT j.name, j.next_at FROM jobs j WHERE j.next_at <= ? AND ${due.where}
        ORDER BY j.next_at, j.id LIMIT ?`,
      [late, ...due.values, DUE_MAX + 1],
    ),
  )
  return {
    pending: pending.slice(0, WAITING_MAX).map(launchOf),
    queued: queued.slice(0, WAITING_MAX).map(attemptOf),
    running: running.slice(0, WAITING_MAX).map((row): RunningFacts => {
      return {...attemptOf(row), typicalMs: row.typical_ms}
    }),
    due: jobs.slice(0, DUE_MAX).map(({name, next_at: at}) => ({jobName: name, at})),
    isPartial:
      jobs.length > DUE_MAX || [pending, queued, running].some((rows) => rows.length > WAITING_MAX),
  }
}
