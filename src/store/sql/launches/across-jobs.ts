/**
 * Lists over all jobs, newest first, page by page. A page reads a bounded number of rows: in the order of
 * numbers, or from an index that has only rows that did not run or ended badly.
 */
import {EPHEMERAL_KEPT_MS} from '../jobs/delete-job.ts'
import type {NameFilter} from '../../../core/access/authorization.ts'
import type {
  ExecutionListQuery,
  ExecutionView,
  LaunchListQuery,
  LaunchView,
} from '../../../ports/history-store.ts'
import type {MetadataFilter} from '../../../ports/job-store.ts'
import type {KeysetPage} from '../../../ports/page.ts'
import {withOutput} from '../executions/output.ts'
import {type Condition, isShownName, likePattern} from '../jobs/name-filter.ts'
import {type KeysetList, keysetPage} from '../keyset.ts'
import {one, type Query, type Transaction, type Value} from '../query.ts'
import {
  EXECUTION_COLUMNS_E,
  executionOf,
  type ExecutionRow,
  LAUNCH_COLUMNS,
  type LaunchRow,
} from '../rows.ts'
import {launchViews} from './launch-views.ts'
import {firstRecorded} from './recorded.ts'

/** Rows read for one page in the order of numbers, in which they are stored: some tens of milliseconds. */
const VISITED_MAX = 20_000
/** Rows read for one page through another index: each may be in a block of its own. */
const VISITED_SCATTERED_MAX = 5_000

export const NOT_RUN = `l.decision IN ('skipped', 'missed')`
export const ENDED_BADLY = `l.launch_status IN ('failed', 'partially_failed')`
export const EXECUTIONS_ENDED_BADLY = `e.finished_at IS NOT NULL AND e.status <> 'succeeded'`
const ALL = '1 = 1'

/** The index that serves a list, and the conditions of its rows. */
interface Path {
  readonly list: Pick<KeysetList, 'where' | 'range' | 'key'>
  readonly conditions: readonly Condition[]
  readonly visitedMax: number
}

export function* launchOfAny(
  tx: Transaction,
  group: number,
  names: NameFilter,
): Query<LaunchView | null> {
  const conditions = [isOfVisibleJob(tx, 'l'), isShownName('l.job_name', names)]
  const {where, values} = allOf(conditions)
  const row = yield* one<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches l WHERE l.group_id = ? AND ${where}`,
    [group, ...values],
  )
  if (row === null) return null
  const [view] = yield* launchViews(tx, [row])
  return view!
}

export function* launchList(
  tx: Transaction,
  query: LaunchListQuery,
): Query<KeysetPage<LaunchView>> {
  const {reason, cause, status, node} = query
  const path = yield* launchPath(query)
  const conditions = [
    ...path.conditions,
    ...(cause === null ? [] : [condition('l.cause = ?', cause)]),
    ...(status === null ? [] : [condition('l.launch_status = ?', status)]),
    ...(reason === null
      ? []
      : [
          condition(
            `(l.reason = ? OR l.reason LIKE ? ESCAPE '\\')`,
            reason,
            `${likePattern(reason)}:%`,
          ),
        ]),
    ...ofJobs(tx, 'l', query),
    ...query.metadata.map((filter) => hasMetadata(filter)),
    ...(node === null
      ? []
      : [
          condition(
            `(SELECT count(*) FROM executions e WHERE e.group_id = l.group_id AND e.node_name = ?) > 0`,
            node,
          ),
        ]),
  ]
  const page = yield* keysetPage<LaunchRow>(
    {
      columns: LAUNCH_COLUMNS,
      from: 'launches l',
      ...path.list,
      filter: {...allOf(conditions), visitedMax: path.visitedMax},
      order: 'desc',
    },
    query,
  )
  return {...page, items: yield* launchViews(tx, page.items)}
}

export function* executionList(
  tx: Transaction,
  query: ExecutionListQuery,
): Query<KeysetPage<ExecutionView>> {
  const {status, reason, exitCode, minDurationMs, node, outputBytes} = query
  const path = yield* executionPath(query)
  const conditions = [
    ...path.conditions,
    ...(status === null
      ? []
      : status === 'not_pending'
        ? [condition(`e.status <> 'pending'`)]
        : [condition('e.status = ?', status)]),
    ...(node === null ? [] : [condition('e.node_name = ?', node)]),
    ...(reason === null ? [] : [condition('e.reason = ?', reason)]),
    ...(exitCode === null ? [] : [condition('e.exit_code = ?', exitCode)]),
    ...(minDurationMs === null
      ? []
      : [condition('coalesce(e.finished_at, ?) - e.started_at >= ?', tx.now, minDurationMs)]),
    ...ofJobs(tx, 'e', query),
  ]
  const page = yield* keysetPage<ExecutionRow>(
    {
      columns: EXECUTION_COLUMNS_E,
      from: 'executions e',
      ...path.list,
      filter: {...allOf(conditions), visitedMax: path.visitedMax},
      order: 'desc',
    },
    query,
  )
  return {...page, items: yield* withOutput(tx, page.items.map(executionOf), outputBytes)}
}

function* launchPath(query: LaunchListQuery): Query<Path> {
  const {decision, since, until, endedSince} = query
  const isDecision = decision === null ? [] : [condition('l.decision = ?', decision)]
  if (endedSince !== null) {
    const key = ['l.closed_at', 'l.group_id']
    const list = {where: ENDED_BADLY, key, range: upTo(endedSince)}
    const conditions = isWithin('l.group_id', yield* numbers(query))
    return {
      list,
      conditions: [...conditions, ...isDecision],
      visitedMax: VISITED_SCATTERED_MAX,
    }
  }
  if (decision === 'skipped' || decision === 'missed') {
    const key = ['l.decided_at', 'l.group_id']
    const list = {where: NOT_RUN, key, range: upTo(since)}
    const conditions = [
      // An equality makes PostgreSQL expect hardly any row, and sort all of them.
      condition('l.decision <> ?', decision === 'skipped' ? 'missed' : 'skipped'),
      ...(until === null ? [] : [condition('l.stored_at < ?', until)]),
    ]
    return {list, conditions, visitedMax: VISITED_SCATTERED_MAX}
  }
  const list = {where: ALL, key: ['l.group_id'], range: rangeOf(yield* numbers(query))}
  return {list, conditions: isDecision, visitedMax: VISITED_MAX}
}

function* executionPath(query: ExecutionListQuery): Query<Path> {
  const {endedSince} = query
  const key = ['e.group_id', 'e.node_name', 'e.attempt']
  const launches = yield* numbers(query)
  if (endedSince === null)
    return {
      list: {where: ALL, key, range: rangeOf(launches)},
      conditions: [],
      visitedMax: VISITED_MAX,
    }
  const ends = ['e.finished_at', ...key]
  return {
    list: {where: EXECUTIONS_ENDED_BADLY, key: ends, range: upTo(endedSince)},
    conditions: isWithin('e.group_id', launches),
    visitedMax: VISITED_SCATTERED_MAX,
  }
}

/** Numbers of the launches that were recorded from `since` to before `until`; `null` = no bound. */
interface Numbers {
  readonly first: number | null
  readonly before: number | null
}

function* numbers({since, until}: Pick<LaunchListQuery, 'since' | 'until'>): Query<Numbers> {
  const first = since === null ? null : yield* firstRecorded(since)
  const before = until === null ? null : yield* firstRecorded(until)
  return {first, before}
}

function rangeOf({first, before}: Numbers): NonNullable<KeysetList['range']> {
  return {begin: before === null ? null : [before], end: first === null ? null : [first]}
}

export function upTo(at: number | null): NonNullable<KeysetList['range']> {
  return {begin: null, end: at === null ? null : [at]}
}

function isWithin(column: string, {first, before}: Numbers): Condition[] {
  return [
    ...(first === null ? [] : [condition(`${column} >= ?`, first)]),
    ...(before === null ? [] : [condition(`${column} < ?`, before)]),
  ]
}

export function ofJobs(
  tx: Transaction,
  table: string,
  query: Pick<LaunchListQuery, 'names' | 'job'>,
): Condition[] {
  return [...ofNames(table, query), isOfVisibleJob(tx, table)]
}

export function ofNames(
  table: string,
  {names, job}: Pick<LaunchListQuery, 'names' | 'job'>,
): Condition[] {
  const name = `${table}.job_name`
  return [
    ...(names === null ? [] : [isShownName(name, names)]),
    ...(job === null ? [] : [isShownName(name, [{pattern: job.toLowerCase(), shown: true}])]),
  ]
}

/** The condition for rows of `jobs`, as `j`. */
export function isOfJobs({
  names,
  job,
  metadata,
}: Pick<LaunchListQuery, 'names' | 'job' | 'metadata'>): Condition[] {
  return [
    isShownName('j.name', names),
    ...(job === null ? [] : [isShownName('j.name', [{pattern: job.toLowerCase(), shown: true}])]),
    ...metadata.map((filter) => hasMetadata(filter, 'j.id')),
  ]
}

/**
 * A live job, or the last launch of an ephemeral one. The counts of this file are single values on purpose: a
 * planner must not turn them into a join over all jobs.
 */
export function isOfVisibleJob({now}: Transaction, table: string): Condition {
  return condition(
    `(SELECT count(*) FROM jobs j WHERE j.id = ${table}.job_id AND (j.deleted_at IS NULL
      OR j.kept_group = ${table}.group_id AND j.deleted_at > ?)) > 0`,
    now - EPHEMERAL_KEPT_MS,
  )
}

export function hasMetadata(filter: MetadataFilter, jobId = 'l.job_id'): Condition {
  const [isPair, values] =
    'either' in filter
      ? ['(m.key = ? OR m.value = ?)', [filter.either, filter.either]]
      : ['m.key = ? AND m.value = ?', [filter.key, filter.value]]
  return condition(
    `(SELECT count(*) FROM job_metadata m WHERE m.job_id = ${jobId} AND ${isPair}) > 0`,
    ...values,
  )
}

export function condition(sql: string, ...values: readonly Value[]): Condition {
  return {sql, values}
}

export function allOf(conditions: readonly Condition[]): {where: string; values: readonly Value[]} {
  return {
    where: conditions.map(({sql}) => sql).join(' AND '),
    values: conditions.flatMap(({values}) => values),
  }
}
