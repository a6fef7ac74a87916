/**
 * Loads the executions that a batch of ends needs. A small launch is loaded whole, in one statement. Only
 * the executions that the ends change are loaded and locked in a large one: else the ends of a launch on N
 * nodes would lock N rows each. The rest is read, without a lock, when the launch may close. The caller has
 * locked the launches.
 */
import {type ExecutionKey, executionId, type FinalStatus} from '../../../core/execution.ts'
import type {BatchExecution} from '../../../core/finish-batch.ts'
import {each, type Query, type Transaction} from '../query.ts'
import {EXECUTION_COLUMNS, EXECUTION_COLUMNS_BARE, executionOf, type ExecutionRow} from '../rows.ts'

/** Executions of a launch up to which all are loaded: locking them costs less than further statements. */
const LOADED_WHOLE_MAX = 32

/** An end for which a batch is loaded. */
export interface BatchEnd {
  readonly key: ExecutionKey
  /** Absent = the execution may not end in this batch. */
  readonly status?: FinalStatus
}

export interface LoadedExecutions {
  readonly executions: BatchExecution[]
  /** Executions that were not loaded are pending or running. */
  readonly hasOpenRest: boolean
}

/** Results per group, in order. */
export function* loadExecutions(
  tx: Transaction,
  groups: readonly number[],
  ends: readonly BatchEnd[],
): Query<LoadedExecutions[]> {
  const rows = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE group_id = ?
      ORDER BY node_name, attempt LIMIT ${LOADED_WHOLE_MAX + 1}${tx.dialect.forUpdate}`,
    groups.map((group) => [group]),
  )
  const large = groups.filter((_group, index) => rows[index]!.length > LOADED_WHOLE_MAX)
  const parts = large.length === 0 ? new Map() : yield* loadParts(tx, large, ends)
  return groups.map(
    (group, index) =>
      parts.get(group) ?? {executions: rows[index]!.map(batchExecution), hasOpenRest: false},
  )
}

/**
 * Loads the ended executions with all attempts on their nodes, pending retries that the ends cancel, and all
 * executions of launches that close.
 */
function* loadParts(
  tx: Transaction,
  groups: readonly number[],
  ends: readonly BatchEnd[],
): Query<Map<number, LoadedExecutions>> {
  const loaded = new Map(groups.map((group) => [group, new Map<string, BatchExecution>()]))
  const take = (rows: readonly ExecutionRow[]) => {
    for (const row of rows) {
      const execution = batchExecution(row)
      const known = loaded.get(row.group_id)!
      const id = executionId(execution.record)
      if (!known.has(id)) known.set(id, execution)
    }
  }
  const own = ends.filter(({key}) => loaded.has(key.group))
  const nodes = new Map(own.map(({key: {group, node}}) => [`${group} ${node}`, [group, node]]))
  const onNodes = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE group_id = ? AND node_name = ?
      ORDER BY attempt${tx.dialect.forUpdate}`,
    [...nodes.values()].toSorted(byGroupAndNode),
  )
  take(onNodes.flat())
  // A cancellation ends the retries of the launch, and so may a node that died.
  const ending = own.filter(({status}) => status === 'cancelled' || status === 'lost')
  const retries = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE group_id = ? AND status = 'pending' AND attempt > 1
      ORDER BY node_name, attempt${tx.dialect.forUpdate}`,
    groupsOf(ending).map((group) => [group]),
  )
  take(retries.flat())
  const open = yield* openRest(loaded)
  // Final executions do not change, so they need no lock.
  const closing = groups.filter((group) => open.get(group) !== true)
  const died = groupsOf(own.filter(({status}) => status === 'lost'))
  const rest = yield* each<ExecutionRow>(
    // The rest of a launch is only read: its output lines are never written back.
    `SELECT ${EXECUTION_COLUMNS_BARE} FROM executions WHERE group_id = ?
      ORDER BY node_name, attempt`,
    [...new Set([...closing, ...died])].map((group) => [group]),
  )
  take(rest.flat())
  return new Map(
    groups.map((group) => {
      const executions = [...loaded.get(group)!.values()]
      return [group, {executions, hasOpenRest: open.get(group) === true}]
    }),
  )
}

/** True for each launch with pending or running executions that are not loaded. */
function* openRest(
  loaded: ReadonlyMap<number, ReadonlyMap<string, BatchExecution>>,
): Query<Map<number, boolean>> {
  const counts = [...loaded].map(([group, executions]) => {
    return {group, known: [...executions.values()].filter(isOpen).length}
  })
  // The scan stops at the first execution that is not loaded.
  const found = yield* each(
    `SELECT attempt FROM executions WHERE group_id = ? AND status IN ('pending', 'running') LIMIT ?`,
    counts.map(({group, known}) => [group, known + 1]),
  )
  return new Map(counts.map(({group, known}, index) => [group, found[index]!.length > known]))
}

/** True if it has not ended. */
export function isOpen({record: {status}}: BatchExecution): boolean {
  return status === 'pending' || status === 'running'
}

function groupsOf(ends: readonly BatchEnd[]): number[] {
  return [...new Set(ends.map(({key}) => key.group))].toSorted((a, b) => a - b)
}

type GroupAndNode = (string | number)[]

/** The order in which all transactions lock executions. */
function byGroupAndNode([aGroup, aNode]: GroupAndNode, [bGroup, bNode]: GroupAndNode): number {
  if (aGroup !== bGroup) return Number(aGroup) - Number(bGroup)
  return aNode! < bNode! ? -1 : 1
}

function batchExecution(row: ExecutionRow): BatchExecution {
  return {
    record: executionOf(row),
    nodeId: row.node_id,
    token: row.claim_token,
    incarnation: row.incarnation,
    cancelReason: row.cancel_reason,
    change: 'none',
  }
}
