/**
 * Ends of executions: finished by their node, lost with their node, cancelled. `core/end-requests.ts` decides
 * in one batch, in one transaction: the end, counters, statistics, retries and follow-ups are stored together
 * or not at all.
 */
import type {Actor} from '../../../core/audit.ts'
import {
  cancelEnd,
  endUnreported,
  type FinishOutcome,
  noteDrains,
  reportEnd,
  type UnreportedEnd,
  unrequestedStops,
} from '../../../core/end-requests.ts'
import {
  executionId,
  type ExecutionKey,
  type ExecutionStatus,
  type FinalStatus,
} from '../../../core/execution.ts'
import type {BatchExecution} from '../../../core/finish-batch.ts'
import {isNodeDeath} from '../../../core/finish.ts'
import type {LeaderStore} from '../../../ports/leader-store.ts'
import type {CancelResult, FinishItem} from '../../../ports/node-store.ts'
import {recordChange} from '../access/audit.ts'
import {loadFinishBatch, writeFinishBatch} from './finish-batch.ts'
import {fence} from '../cluster/lease.ts'
import {dropOutput, extendOutput, type OutputRange} from './output.ts'
import {all, one, oneEach, type Query, type Transaction} from '../query.ts'
import {type ExecutionRow, keyOf, keyValues, type MemberRow} from '../rows.ts'

export function* finish(
  tx: Transaction,
  items: readonly FinishItem[],
): Query<readonly FinishOutcome[]> {
  const loaded = yield* loadFinishBatch(tx, items)
  const {batch} = loaded
  const stops = unrequestedStops(batch, items)
  noteDrains(stops, yield* drainDeadlines(stops), tx.now)
  const ranges: OutputRange[] = []
  const dropped: ExecutionKey[] = []
  const outcomes = items.map((item) => {
    const knownBytes = batch.find(item.key)?.record.outputBytes ?? 0
    const outcome = reportEnd(batch, item, tx.now)
    if (outcome.kind === 'finished') {
      if (item.dropOutput) dropped.push(item.key)
      else if (item.output.bytes.length > 0)
        ranges.push({key: item.key, knownBytes, ...item.output})
    }
    return outcome
  })
  yield* extendOutput(tx, ranges)
  yield* dropOutput(dropped)
  yield* writeFinishBatch(tx, loaded)
  return yield* withPending(outcomes)
}

/** Says whether any launch is pending. Under load most ends close a launch, and none needs the launcher. */
function* withPending(outcomes: readonly FinishOutcome[]): Query<readonly FinishOutcome[]> {
  const isAnyClosed = outcomes.some((outcome) => outcome.kind === 'finished' && outcome.closed)
  if (!isAnyClosed) return outcomes
  const pending = yield* one(`SELECT group_id FROM launches WHERE decision = 'pending' LIMIT 1`)
  const wakesLauncher = pending !== null
  return outcomes.map((outcome) => {
    if (outcome.kind !== 'finished' || outcome.closed === null) return outcome
    return {...outcome, closed: {...outcome.closed, wakesLauncher}}
  })
}

/** Deadlines of the drains of these executions' nodes. */
function* drainDeadlines(
  stops: readonly BatchExecution[],
): Query<ReadonlyMap<string, number | null>> {
  const nodes = [...new Set(stops.map(({nodeId}) => nodeId))]
  const rows = yield* oneEach<{id: string; drain_until: number | null}>(
    `SELECT id, drain_until FROM members WHERE id = ?`,
    nodes.map((id) => [id]),
  )
  return new Map(rows.flatMap((row) => (row === null ? [] : [[row.id, row.drain_until]])))
}

type MarkLostRequest = Parameters<LeaderStore['markLost']>[0]
type MarkLostResult = Awaited<ReturnType<LeaderStore['markLost']>>

/** Ends as `lost` the running executions of a failed node, or of its previous incarnations. */
export function* markLost(tx: Transaction, request: MarkLostRequest): Query<MarkLostResult> {
  const {term, nodeId, exceptIncarnation, limit} = request
  if (term !== null) yield* fence(tx, term)
  else if (!(yield* isCurrent(tx, nodeId, exceptIncarnation))) return {finished: [], more: false}
  if (request.observed !== null && !(yield* isAsObserved(tx, nodeId, request.observed))) {
    return {finished: [], more: false}
  }
  const rows = yield* all<ExecutionRow>(
    `SELECT group_id, node_name, attempt FROM executions
      WHERE node_id = ? AND status = 'running' AND incarnation <> ?
      ORDER BY started_at, group_id, attempt, node_name LIMIT ?`,
    [nodeId, exceptIncarnation ?? '', limit],
  )
  const finished = yield* endAll(tx, rows.map(keyOf), 'lost', request.reason, request.jitter)
  return {finished, more: rows.length === limit}
}

/**
 * False if another incarnation has joined since: a delayed request would end the successor's executions. The
 * lock makes a join wait.
 */
function* isCurrent(tx: Transaction, nodeId: string, incarnation: string | null): Query<boolean> {
  const member = yield* one(
    `SELECT id FROM members WHERE id = ? AND incarnation = ?${tx.dialect.forKeyShare}`,
    [nodeId, incarnation ?? ''],
  )
  return member !== null
}

/**
 * Compare-and-set on the observed heartbeat: `false` = the node sent another one. The lock makes a later one
 * wait.
 */
function* isAsObserved(
  tx: Transaction,
  nodeId: string,
  observed: NonNullable<MarkLostRequest['observed']>,
): Query<boolean> {
  const member = yield* one(
    `SELECT id FROM members WHERE id = ? AND incarnation = ? AND heartbeat_at = ?${tx.dialect.forUpdate}`,
    [nodeId, observed.incarnation, observed.heartbeatAt],
  )
  return member !== null
}

/** Ends executions of one node without its report; only those in a status of `from` under the lock. */
export function* endAll(
  tx: Transaction,
  keys: readonly ExecutionKey[],
  status: FinalStatus,
  reason: string,
  jitter: number,
  from: readonly ExecutionStatus[] = ['running'],
): Query<FinishOutcome[]> {
  const loaded = yield* loadFinishBatch(
    tx,
    keys.map((key) => ({key, status})),
  )
  const members = isNodeDeath({status, reason}) ? yield* lifesigns() : null
  const end = {status, reason, jitter, from, members}
  const outcomes = endUnreported(loaded.batch, keys, end, tx.now)
  yield* writeFinishBatch(tx, loaded)
  return outcomes
}

function* lifesigns(): Query<NonNullable<UnreportedEnd['members']>> {
  const rows = yield* all<Pick<MemberRow, 'id' | 'status' | 'started_at' | 'heartbeat_at'>>(
    `SELECT id, status, started_at, heartbeat_at FROM members`,
  )
  return rows.map(({id, status, started_at: startedAt, heartbeat_at: heartbeatAt}) => {
    return {id, status, startedAt, heartbeatAt}
  })
}

export function* cancelExecution(
  tx: Transaction,
  name: string,
  key: ExecutionKey,
  actor?: Actor,
): Query<CancelResult> {
  const owner = yield* one<{id: number}>(
    `SELECT j.id FROM jobs j JOIN executions e ON e.job_id = j.id
      WHERE j.name = ? AND j.deleted_at IS NULL AND e.group_id = ? AND e.node_name = ? AND e.attempt = ?`,
    [name, ...keyValues(key)],
  )
  if (owner === null) return {kind: 'unknown'}
  const loaded = yield* loadFinishBatch(tx, [{key, status: 'cancelled'}])
  const decision = cancelEnd(loaded.batch, key, tx.now)
  if (decision.kind !== 'requested') return decision
  yield* writeFinishBatch(tx, loaded)
  const {isNew, ...requested} = decision
  const what = {action: 'execution.cancel', targetType: 'job', target: name} as const
  const detail = `execution ${executionId(key)}`
  if (isNew) yield* recordChange(tx, {actor, ...what, detail})
  return requested
}
