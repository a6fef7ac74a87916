/**
 * Ends of executions: finished by their node, lost with their node, cancelled. Every end goes through one
 * batch and the rules of the core, in one transaction: the end, counters, statistics, retries and follow-ups
 * are stored together or not at all.
 */
import type {Actor} from '../../../core/audit.ts'
import {
  executionId,
  type ExecutionKey,
  type ExecutionRecord,
  type ExecutionStatus,
  type FinalStatus,
  lostLine,
} from '../../../core/execution.ts'
import type {LeaderStore} from '../../../ports/leader-store.ts'
import type {CancelResult, FinishItem, FinishOutcome} from '../../../ports/node-store.ts'
import {
  isNodeDeath,
  isSameEnd,
  isStoppedByDrain,
  outageOf,
  reportedTimes,
} from '../../../core/finish.ts'
import type {FinishBatch, BatchExecution} from '../../../core/finish-batch.ts'
import {recordChange} from '../access/audit.ts'
import {loadFinishBatch, writeFinishBatch} from './finish-batch.ts'
import {fence} from '../cluster/lease.ts'
import {dropOutput, extendOutput, type OutputRange} from './output.ts'
import {all, one, oneEach, type Query, type Transaction} from '../query.ts'
import {BY_KEY, type ExecutionRow, keyOf, keyValues, type MemberRow} from '../rows.ts'

export function* finish(
  tx: Transaction,
  items: readonly FinishItem[],
): Query<readonly FinishOutcome[]> {
  const loaded = yield* loadFinishBatch(tx, items)
  const {batch} = loaded
  yield* noteDrains(tx, batch, items)
  const ranges: OutputRange[] = []
  const dropped: ExecutionKey[] = []
  const outcomes = items.map((item) => {
    const knownBytes = batch.find(item.key)?.record.outputBytes ?? 0
    const outcome = finishOne(batch, item, tx.now)
    if (outcome.kind === 'finished') {
      if (item.dropOutput) dropped.push(item.key)
      else ranges.push({key: item.key, knownBytes, ...item.output})
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

/**
 * Notes that executions were stopped by a drain whose deadline is over. A later change of the node's
 * scheduling has noted it in the row.
 */
function* noteDrains(
  tx: Transaction,
  batch: FinishBatch,
  items: readonly FinishItem[],
): Query<void> {
  const stopped = items.flatMap(({key, status}) => {
    const entry = status === 'cancelled' ? batch.find(key) : null
    return entry === null || entry.record.cancelRequestedAt !== null ? [] : entry
  })
  const nodes = [...new Set(stopped.map(({nodeId}) => nodeId))]
  const rows = yield* oneEach<{id: string; drain_until: number | null}>(
    `SELECT id, drain_until FROM members WHERE id = ?`,
    nodes.map((id) => [id]),
  )
  const deadlines = new Map(
    rows.flatMap((row) => (row === null ? [] : [[row.id, row.drain_until]])),
  )
  for (const entry of stopped) {
    const deadline = deadlines.get(entry.nodeId) ?? null
    if (isStoppedByDrain(entry.record.startedAt, deadline, tx.now))
      entry.cancelReason ??= 'node_drained'
  }
}

function finishOne(batch: FinishBatch, item: FinishItem, now: number): FinishOutcome {
  const {key, token, status, reporter} = item
  const entry = batch.find(key)
  if (entry === null || entry.token === '' || entry.token !== token) return {kind: 'unknown', key}
  if (reporter !== undefined && entry.nodeId !== reporter) return {kind: 'unknown', key}
  const launch = batch.launches.get(key.group)!
  const {record} = entry
  if (record.status === 'pending') return {kind: 'unknown', key}
  if (record.status !== 'running') return lateResult(entry, record.status, item)
  if (batch.jobOf(launch) === null) {
    batch.remove(entry)
    return {kind: 'unknown', key}
  }
  const {startedAt, finishedAt} = reportedTimes(record, item, reporter === undefined ? null : now)
  return batch.end(entry, {
    status,
    reason: item.reason,
    finishedAt,
    jitter: item.jitter,
    with: {
      startedAt,
      exitCode: item.exitCode,
      outputHead: item.outputHead,
      outputFoot: item.outputFoot,
      outputBytes: Math.max(record.outputBytes, item.output.totalBytes),
    },
  })
}

/** Stores the result on a lost execution as `late_result`; its final status stays. */
function lateResult(entry: BatchExecution, status: FinalStatus, item: FinishItem): FinishOutcome {
  if (
    status === 'lost' &&
    !isSameEnd(entry.record, item.status) &&
    entry.record.lateResult === ''
  ) {
    const code = item.exitCode === null ? '' : `, exit status ${item.exitCode}`
    entry.record = {...entry.record, lateResult: `${item.status}${code}`}
    entry.change = 'update'
  }
  return {kind: 'already', key: item.key, status}
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

/** Spreads the retries of one batch evenly from a single random jitter. */
const GOLDEN_RATIO = 0.618_033_988_75

/**
 * Ends executions without a report of their node. Only those still in a status of `from` under the lock: one
 * that was found running may have been released meanwhile, and then stays pending.
 */
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
  const {batch} = loaded
  const blame = isNodeDeath({status, reason}) ? yield* findBlame(tx, batch, keys) : null
  const actual = blame?.isCertainOutage === true ? 'node_outage' : reason
  const outcomes = keys.map((key, index): FinishOutcome => {
    const entry = batch.find(key)
    if (entry === null || !from.includes(entry.record.status)) return {kind: 'unknown', key}
    if (batch.jobOf(batch.launches.get(key.group)!) === null) {
      batch.remove(entry)
      return {kind: 'unknown', key}
    }
    const lostOutput = status === 'lost' ? {outputFoot: lostLine(actual)} : {}
    return batch.end(entry, {
      status,
      reason: actual,
      finishedAt: tx.now,
      jitter: (jitter + index * GOLDEN_RATIO) % 1,
      with: lostOutput,
      isOnlySuspect: blame?.isOnlySuspect ?? true,
    })
  })
  yield* writeFinishBatch(tx, loaded)
  return outcomes
}

/**
 * True if the executions of one dead node may be the cause: not if other nodes died with it, and not if
 * several jobs are equally suspect.
 */
function* findBlame(
  tx: Transaction,
  batch: FinishBatch,
  keys: readonly ExecutionKey[],
): Query<{readonly isCertainOutage: boolean; readonly isOnlySuspect: boolean}> {
  const nodeId = keys.map((key) => batch.find(key)?.nodeId).find((id) => id !== undefined)
  const rows = yield* all<Pick<MemberRow, 'id' | 'status' | 'started_at' | 'heartbeat_at'>>(
    `SELECT id, status, started_at, heartbeat_at FROM members`,
  )
  const members = rows.map(({id, status, started_at: startedAt, heartbeat_at: heartbeatAt}) => {
    return {id, status, startedAt, heartbeatAt}
  })
  const dead = members.find(({id}) => id === nodeId) ?? null
  const others = members.filter((member) => member !== dead)
  const outage = outageOf(dead, others, tx.now)
  const isOnlySuspect = outage === 'none' && batch.suspects(keys).size <= 1
  return {isCertainOutage: outage === 'certain', isOnlySuspect}
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
  const {batch} = loaded
  const entry = batch.find(key)
  const launch = batch.launches.get(key.group)
  const job = launch === undefined ? null : batch.jobOf(launch)
  if (entry === null || launch === undefined || job === null) return {kind: 'unknown'}
  const {status, cancelRequestedAt: askedAt} = entry.record
  let ended: FinishOutcome[]
  if (status === 'pending') {
    const end = {status: 'cancelled', reason: '', finishedAt: tx.now, jitter: 0, with: {}} as const
    ended = [batch.end(entry, end)]
  } else if (status === 'running') {
    const cancelRequestedAt = askedAt ?? tx.now
    entry.record = {...entry.record, cancelRequestedAt}
    ended = batch.endRetries(launch, job).map(endedAlone)
    yield* all(`UPDATE executions SET cancel_requested_at = ? WHERE ${BY_KEY}`, [
      cancelRequestedAt,
      ...keyValues(key),
    ])
  } else {
    return {kind: 'over', status}
  }
  yield* writeFinishBatch(tx, loaded)
  const what = {action: 'execution.cancel', targetType: 'job', target: name} as const
  const detail = `execution ${executionId(key)}`
  if (askedAt === null) yield* recordChange(tx, {actor, ...what, detail})
  return {kind: 'requested', execution: entry.record, ended}
}

/** A cancelled retry. Another execution of the launch still runs, so nothing follows from this end. */
function endedAlone(execution: ExecutionRecord): FinishOutcome {
  const nothing = {retry: null, closed: null, jobDisabled: false, jobDeleted: false} as const
  return {kind: 'finished', execution, ...nothing}
}
