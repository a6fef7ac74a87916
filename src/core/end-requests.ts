/**
 * Requests to end executions: reports of nodes, ends without a report, cancels, and releases of claims.
 * Decides whether a request applies to a loaded batch. finish-batch.ts applies the consequences.
 */
import {
  type ExecutionClaim,
  type ExecutionKey,
  type ExecutionRecord,
  type ExecutionStatus,
  type FinalStatus,
  lostLine,
} from './execution.ts'
import type {BatchExecution, ExecutionEnd, FinishBatch, FinishedExecution} from './finish-batch.ts'
import {
  isReleasable,
  isStoppedByDrain,
  lateResultOf,
  type Lifesign,
  type Outage,
  outageOf,
  reportedTimes,
} from './finish.ts'

/** The end of an execution as its node reports it. */
export interface ReportedEnd extends ExecutionClaim {
  readonly status: FinalStatus
  /** Time from the claim to the end by the node's monotonic clock. */
  readonly durationMs: number
  /**
   * Time from the claim to the actual start, at most `durationMs`: the execution may have waited for a slot
   * or for the helper.
   */
  readonly startedAfterMs: number
  readonly exitCode: number | null
  readonly reason: string
  readonly outputHead: string
  readonly outputFoot: string
  readonly output: {readonly totalBytes: number}
  /** [0, 1): jitter of the backoff of a retry. */
  readonly jitter: number
  /**
   * Id of the agent that reports the end. It may end only its own executions, and not at a time that the
   * store's clock has not reached. Absent = a server.
   */
  readonly reporter?: string
}

/** The result of finishing one execution. */
export type FinishOutcome =
  | FinishedExecution
  /** The execution had ended already: noted as a late result if it was `lost`, nothing else changed. */
  | {readonly kind: 'already'; readonly key: ExecutionKey; readonly status: FinalStatus}
  /** The execution never existed, its job is deleted, or the token is not that of its claim. */
  | {readonly kind: 'unknown'; readonly key: ExecutionKey}

/** Ends an execution as its node reports. `now` is the store's clock. */
export function reportEnd(batch: FinishBatch, reported: ReportedEnd, now: number): FinishOutcome {
  const {key, token, status, reason, reporter, exitCode, jitter, outputHead, outputFoot} = reported
  const execution = claimedIn(batch, reported)
  if (execution === null || token === '') return {kind: 'unknown', key}
  if (reporter !== undefined && execution.nodeId !== reporter) return {kind: 'unknown', key}
  const {record} = execution
  if (record.status === 'pending') return {kind: 'unknown', key}
  if (record.status !== 'running') {
    const lateResult = lateResultOf(record, reported)
    if (lateResult !== null) {
      execution.record = {...record, lateResult}
      execution.change = 'update'
    }
    return {kind: 'already', key, status: record.status}
  }
  const times = reportedTimes(record, reported, reporter === undefined ? null : now)
  const {startedAt, finishedAt} = times
  const outputBytes = Math.max(record.outputBytes, reported.output.totalBytes)
  return endOrRemove(batch, execution, {
    status,
    reason,
    finishedAt,
    jitter,
    with: {startedAt, exitCode, outputHead, outputFoot, outputBytes},
  })
}

/** Executions that their nodes report as cancelled without a request: a drain may have stopped them. */
export function unrequestedStops(
  batch: FinishBatch,
  reports: readonly Pick<ReportedEnd, 'key' | 'status'>[],
): BatchExecution[] {
  return reports.flatMap(({key, status}) => {
    const execution = status === 'cancelled' ? batch.find(key) : null
    return execution === null || execution.record.cancelRequestedAt !== null ? [] : execution
  })
}

/**
 * Notes which executions were stopped by a drain whose deadline is over. A later change of the node's
 * scheduling has noted it in the row. `deadlines`: by node.
 */
export function noteDrains(
  stops: readonly BatchExecution[],
  deadlines: ReadonlyMap<string, number | null>,
  now: number,
): void {
  for (const execution of stops) {
    const deadline = deadlines.get(execution.nodeId) ?? null
    if (isStoppedByDrain(execution.record.startedAt, deadline, now))
      execution.cancelReason ??= 'node_drained'
  }
}

export interface UnreportedEnd {
  readonly status: FinalStatus
  readonly reason: string
  /** [0, 1) */
  readonly jitter: number
  /** Only executions in these states end: one that was found running may have been released meanwhile. */
  readonly from: readonly ExecutionStatus[]
  /** Members of the cluster, if the node died; `null` = it did not. */
  readonly members: readonly (Lifesign & {readonly id: string})[] | null
}

/** Spreads the retries of one batch evenly from a single random jitter. */
const GOLDEN_RATIO = 0.618_033_988_75

/** Ends executions of one node without its report. If other nodes died too, no job is blamed for it. */
export function endUnreported(
  batch: FinishBatch,
  keys: readonly ExecutionKey[],
  {status, reason, jitter, from, members}: UnreportedEnd,
  now: number,
): FinishOutcome[] {
  const outage = members === null ? 'none' : outageAround(batch, keys, members, now)
  const isOnlySuspect = outage === 'none' && batch.suspects(keys).size <= 1
  const actual = outage === 'certain' ? 'node_outage' : reason
  return keys.map((key, index) => {
    const execution = batch.find(key)
    if (execution === null || !from.includes(execution.record.status)) return {kind: 'unknown', key}
    return endOrRemove(batch, execution, {
      status,
      reason: actual,
      finishedAt: now,
      jitter: (jitter + index * GOLDEN_RATIO) % 1,
      with: status === 'lost' ? {outputFoot: lostLine(actual)} : {},
      isOnlySuspect,
    })
  })
}

function outageAround(
  batch: FinishBatch,
  keys: readonly ExecutionKey[],
  members: NonNullable<UnreportedEnd['members']>,
  now: number,
): Outage {
  const nodeId = keys.map((key) => batch.find(key)?.nodeId).find((id) => id !== undefined)
  const dead = members.find(({id}) => id === nodeId) ?? null
  const others = members.filter((member) => member !== dead)
  return outageOf(dead, others, now)
}

/** Ends a pending execution for which there is no node; `null` = it does not wait on this node any more. */
export function endWithoutNode(
  batch: FinishBatch,
  {key, nodeId}: {readonly key: ExecutionKey; readonly nodeId: string},
  now: number,
): FinishOutcome | null {
  const execution = batch.find(key)
  if (execution?.record.status !== 'pending' || execution.nodeId !== nodeId) return null
  if (batch.jobOf(batch.launches.get(key.group)!) === null) return null
  const reason = 'no_target'
  const foot = {outputFoot: lostLine(reason)}
  // No retry follows, so no jitter is needed.
  return batch.end(execution, {status: 'lost', reason, jitter: 0, finishedAt: now, with: foot})
}

export type CancelDecision =
  | {
      readonly kind: 'requested'
      readonly execution: ExecutionRecord
      /** Ended by it: the execution if it was pending, and attempts that waited for their backoff. */
      readonly ended: readonly FinishOutcome[]
      /** The cancel had not been requested before. */
      readonly isNew: boolean
    }
  | {readonly kind: 'over'; readonly status: FinalStatus}
  | {readonly kind: 'unknown'}

/** Ends a pending execution. A running one gets a request, and its launch no more retries. */
export function cancelEnd(batch: FinishBatch, key: ExecutionKey, now: number): CancelDecision {
  const execution = batch.find(key)
  const launch = batch.launches.get(key.group)
  const job = launch === undefined ? null : batch.jobOf(launch)
  if (execution === null || launch === undefined || job === null) return {kind: 'unknown'}
  const {status, cancelRequestedAt} = execution.record
  const isNew = cancelRequestedAt === null
  if (status === 'pending') {
    const end = {status: 'cancelled', reason: '', finishedAt: now, jitter: 0, with: {}} as const
    const ended = [batch.end(execution, end)]
    return {kind: 'requested', execution: execution.record, ended, isNew}
  }
  if (status !== 'running') return {kind: 'over', status}
  if (isNew) {
    execution.record = {...execution.record, cancelRequestedAt: now}
    execution.change = 'update'
  }
  const ended = batch.endRetries(launch, job).map(endedAlone)
  return {kind: 'requested', execution: execution.record, ended, isNew}
}

/** A cancelled retry. Another execution of the launch still runs, so nothing follows from this end. */
function endedAlone(execution: ExecutionRecord): FinishOutcome {
  const nothing = {retry: null, closed: null, jobDisabled: false, jobDeleted: false} as const
  return {kind: 'finished', execution, ...nothing}
}

/** An execution as if it had never been claimed; `null` = it stays as it is and must be ended. */
export function releasedOf(
  batch: FinishBatch,
  claim: ExecutionClaim,
  now: number,
): ExecutionRecord | null {
  const execution = claimedIn(batch, claim)
  const launch = batch.launches.get(claim.key.group)
  if (execution === null || launch === undefined || batch.jobOf(launch) === null) return null
  if (!isReleasable(execution.record, launch.record)) return null
  return {...execution.record, status: 'pending', notBefore: now, startedAt: null, revision: 0}
}

/** The execution, if this is its claim. */
function claimedIn(batch: FinishBatch, {key, token}: ExecutionClaim): BatchExecution | null {
  const execution = batch.find(key)
  return execution?.token === token ? execution : null
}

/** Ends an execution, or removes it if its job was deleted. */
function endOrRemove(
  batch: FinishBatch,
  execution: BatchExecution,
  end: ExecutionEnd,
): FinishOutcome {
  const {group, node, attempt} = execution.record
  if (batch.jobOf(batch.launches.get(group)!) !== null) return batch.end(execution, end)
  batch.remove(execution)
  return {kind: 'unknown', key: {group, node, attempt}}
}
