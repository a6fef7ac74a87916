/**
 * Ends of executions: by their node, by a rescue, by a cancel. All go through one ledger and the core's one
 * rule, so counters, status, statistics, retries and follow-ups are written by the transaction that earned
 * them.
 */
import {
  type ExecutionKey,
  type ExecutionRecord,
  type ExecutionStatus,
  type FinalStatus,
  lostLine,
} from '../../core/execution.ts'
import type {LeaderStore} from '../../ports/leader-store.ts'
import type {CancelResult, FinishItem, FinishOutcome} from '../../ports/node-store.ts'
import type {FinishBatch, BatchExecution} from '../../core/finish-batch.ts'
import {loadFinishBatch, writeFinishBatch} from './finish-rows.ts'
import {fence} from './lease.ts'
import {dropOutput, extendOutput, type Stretch} from './output.ts'
import {all, one, type Query, type Transaction} from './query.ts'
import {BY_KEY, type ExecutionRow, keyOf, keyValues} from './rows.ts'

export function* finish(
  tx: Transaction,
  items: readonly FinishItem[],
): Query<readonly FinishOutcome[]> {
  const ledger = yield* loadFinishBatch(
    tx,
    items.map(({key}) => key.group),
  )
  const stretches: Stretch[] = []
  const dropped: ExecutionKey[] = []
  const outcomes = items.map((item) => {
    const knownBytes = ledger.find(item.key)?.record.outputBytes ?? 0
    const outcome = finishOne(ledger, item)
    if (outcome.kind === 'finished') {
      if (item.dropOutput) dropped.push(item.key)
      else stretches.push({key: item.key, knownBytes, ...item.output})
    }
    return outcome
  })
  yield* extendOutput(tx, stretches)
  yield* dropOutput(dropped)
  yield* writeFinishBatch(tx, ledger)
  return outcomes
}

function finishOne(ledger: FinishBatch, item: FinishItem): FinishOutcome {
  const {key, token, status} = item
  const held = ledger.find(key)
  if (held === null || held.token === '' || held.token !== token) return {kind: 'unknown', key}
  const launch = ledger.launches.get(key.group)!
  const {record} = held
  if (record.status === 'pending') return {kind: 'unknown', key}
  if (record.status !== 'running') return lateResult(held, record.status, item)
  if (ledger.jobOf(launch) === null) {
    ledger.remove(held)
    return {kind: 'unknown', key}
  }
  return ledger.end(held, {
    status,
    reason: item.reason,
    finishedAt: (record.startedAt ?? 0) + Math.max(0, Math.round(item.durationMs)),
    jitter: item.jitter,
    with: {
      exitCode: item.exitCode,
      outputHead: item.outputHead,
      outputFoot: item.outputFoot,
      outputBytes: Math.max(record.outputBytes, item.output.totalBytes),
    },
  })
}

/** Kept as a note on an execution that was given up; the state it ended in stays. */
function lateResult(held: BatchExecution, status: FinalStatus, item: FinishItem): FinishOutcome {
  // Its own end said again is no other result.
  if (status === 'lost' && item.status !== 'lost' && held.record.lateResult === '') {
    const code = item.exitCode === null ? '' : `, exit status ${item.exitCode}`
    held.record = {...held.record, lateResult: `${item.status}${code}`}
    held.change = 'update'
  }
  return {kind: 'already', key: item.key, status}
}

type RescueRequest = Parameters<LeaderStore['rescue']>[0]
type RescueResult = Awaited<ReturnType<LeaderStore['rescue']>>

export function* rescue(tx: Transaction, request: RescueRequest): Query<RescueResult> {
  const {term, nodeId, exceptIncarnation, limit} = request
  if (term !== null) yield* fence(tx, term)
  if (request.observed !== null && !(yield* isAsJudged(tx, nodeId, request.observed))) {
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

/** Locks the member, so that a node that returns meanwhile waits for the verdict or makes it void. */
function* isAsJudged(
  tx: Transaction,
  nodeId: string,
  observed: NonNullable<RescueRequest['observed']>,
): Query<boolean> {
  const member = yield* one(
    `SELECT id FROM members WHERE id = ? AND incarnation = ? AND heartbeat_at = ?${tx.dialect.forUpdate}`,
    [nodeId, observed.incarnation, observed.heartbeatAt],
  )
  return member !== null
}

/** Retries of one batch are spread by the golden ratio, so that one roll of the jitter serves many. */
const GOLDEN_RATIO = 0.618_033_988_75

/**
 * Ends executions now, without a word from their node: those still in a state of `from` once they are locked,
 * so that one that was found running and has been given back meanwhile waits on.
 */
export function* endAll(
  tx: Transaction,
  keys: readonly ExecutionKey[],
  status: FinalStatus,
  reason: string,
  jitter: number,
  from: readonly ExecutionStatus[] = ['running'],
): Query<FinishOutcome[]> {
  const ledger = yield* loadFinishBatch(
    tx,
    keys.map(({group}) => group),
  )
  const outcomes = keys.map((key, index): FinishOutcome => {
    const held = ledger.find(key)
    if (held === null || !from.includes(held.record.status)) return {kind: 'unknown', key}
    if (ledger.jobOf(ledger.launches.get(key.group)!) === null) {
      ledger.remove(held)
      return {kind: 'unknown', key}
    }
    const told = status === 'lost' ? {outputFoot: lostLine(reason)} : {}
    return ledger.end(held, {
      status,
      reason,
      finishedAt: tx.now,
      jitter: (jitter + index * GOLDEN_RATIO) % 1,
      with: told,
    })
  })
  yield* writeFinishBatch(tx, ledger)
  return outcomes
}

export function* cancelExecution(
  tx: Transaction,
  name: string,
  key: ExecutionKey,
): Query<CancelResult> {
  const owner = yield* one<{id: number}>(
    `SELECT j.id FROM jobs j JOIN executions e ON e.job_id = j.id
      WHERE j.name = ? AND j.deleted_at IS NULL AND e.group_id = ? AND e.node_name = ? AND e.attempt = ?`,
    [name, ...keyValues(key)],
  )
  if (owner === null) return {kind: 'unknown'}
  const ledger = yield* loadFinishBatch(tx, [key.group])
  const held = ledger.find(key)
  const launch = ledger.launches.get(key.group)
  const job = launch === undefined ? null : ledger.jobOf(launch)
  if (held === null || launch === undefined || job === null) return {kind: 'unknown'}
  const {status} = held.record
  let ended: FinishOutcome[]
  if (status === 'pending') {
    const end = {status: 'cancelled', reason: '', finishedAt: tx.now, jitter: 0, with: {}} as const
    ended = [ledger.end(held, end)]
  } else if (status === 'running') {
    const cancelRequestedAt = held.record.cancelRequestedAt ?? tx.now
    held.record = {...held.record, cancelRequestedAt}
    ended = ledger.endRetries(launch, job).map(endedAlone)
    yield* all(`UPDATE executions SET cancel_requested_at = ? WHERE ${BY_KEY}`, [
      cancelRequestedAt,
      ...keyValues(key),
    ])
  } else {
    return {kind: 'over', status}
  }
  yield* writeFinishBatch(tx, ledger)
  return {kind: 'requested', execution: held.record, ended}
}

/** Beside an execution that still runs, so that nothing follows from it. */
function endedAlone(execution: ExecutionRecord): FinishOutcome {
  const nothing = {retry: null, closed: null, jobDisabled: false, jobDeleted: false} as const
  return {kind: 'finished', execution, ...nothing}
}
