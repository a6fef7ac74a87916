/**
 * Rules for the end of one execution: retry, quarantine, launch status and job counters. Decided
 * inside the store's transaction with the launch and then the job locked. Otherwise two nodes that
 * finish together could each believe that the other still runs.
 */
import {reasonText} from './launch-reasons.ts'
import {backoffMs} from '../lib/backoff.ts'
import type {ExecutionRecord, FinalStatus} from './execution.ts'
import type {JobCounters, JobSpec, JobStatus} from './job.ts'
import type {LaunchRecord, LaunchStatus} from './launch-record.ts'
import type {MemberRecord} from './node.ts'

/**
 * Reasons of `lost` that mean the node died by itself. A graceful shutdown, `node_stopped`, and an outage of
 * several nodes, `node_outage`, are none of them.
 */
const NODE_DEATH_REASONS: ReadonlySet<string> = new Set(['node_lost', 'node_restarted'])

/** Why the executions of a member that is gone are `lost`. */
export function lostReason({status}: Pick<MemberRecord, 'status'>): 'node_stopped' | 'node_lost' {
  return status === 'left' ? 'node_stopped' : 'node_lost'
}

/** Nodes that die within this time die together; longer than the time until a node's work is lost. */
const OUTAGE_MS = 90_000
/** A node that sends no heartbeats for this long may be dead too; it sends one every 2 s. */
const SILENT_MS = 5_000

/** An execution that ended because its node died. */
export function isNodeDeath({status, reason}: Pick<ExecutionRecord, 'status' | 'reason'>): boolean {
  return status === 'lost' && NODE_DEATH_REASONS.has(reason)
}

/** A member as `outageOf` sees it. */
export type Lifesign = Pick<MemberRecord, 'status' | 'startedAt' | 'heartbeatAt'>

/** `possible`: no job is blamed, and the reason of the end names no outage. */
export type Outage = 'none' | 'possible' | 'certain'

/**
 * Decides whether a node died together with one of the others: that one has failed, has started since, or is
 * silent. Then the cause is an outage of a rack or a zone, or a restart of all, and no job. `dead` = `null`:
 * not a member any more.
 */
export function outageOf(dead: Lifesign | null, others: readonly Lifesign[], now: number): Outage {
  const diedAt = dead?.status === 'failed' ? dead.heartbeatAt : null
  const since = diedAt ?? now - OUTAGE_MS
  const isAny = others.some(({status, startedAt, heartbeatAt}) => {
    if (status === 'left') return false
    if (startedAt > since) return true
    return status === 'failed' ? heartbeatAt > since - OUTAGE_MS : heartbeatAt < now - SILENT_MS
  })
  if (!isAny) return 'none'
  // A node that has joined again has overwritten its last heartbeat: when it died is not known.
  return diedAt === null ? 'possible' : 'certain'
}

/** The clock of an agent and that of the store may drift apart by this much in a long execution. */
const REPORTED_SLACK_MS = 60_000

/**
 * Start and end of an execution by the report of its node, which has lengths only. Until then `startedAt` of
 * the record is that of the claim. `now` of the store bounds what an agent reports; `null` = its own node.
 */
export function reportedTimes(
  {startedAt}: Pick<ExecutionRecord, 'startedAt'>,
  reported: {readonly durationMs: number; readonly startedAfterMs: number},
  now: number | null,
): {readonly startedAt: number; readonly finishedAt: number} {
  const claimedAt = startedAt ?? 0
  const longestMs = now === null ? Infinity : now + REPORTED_SLACK_MS - claimedAt
  const durationMs = Math.max(0, Math.min(Math.round(reported.durationMs), longestMs))
  const startedAfterMs = Math.max(0, Math.round(reported.startedAfterMs))
  return {
    startedAt: claimedAt + Math.min(durationMs, startedAfterMs),
    finishedAt: claimedAt + durationMs,
  }
}

/** Result to add to a lost execution, e.g. `failed, exit status 1`; its status stays. `null` = none. */
export function lateResultOf(
  stored: Pick<ExecutionRecord, 'status' | 'reason' | 'lateResult'>,
  {status, exitCode}: {readonly status: FinalStatus; readonly exitCode: number | null},
): string | null {
  if (stored.status !== 'lost' || stored.lateResult !== '' || isSameEnd(stored, status)) return null
  return exitCode === null ? status : `${status}, exit status ${exitCode}`
}

/** A report of the stored end is no late result. A stop without a request was reported as `cancelled`. */
function isSameEnd(
  {status, reason}: Pick<ExecutionRecord, 'status' | 'reason'>,
  reported: FinalStatus,
): boolean {
  const wasStopped = reason === 'node_drained' || reason === 'not_requested'
  return reported === status || (reported === 'cancelled' && wasStopped)
}

/**
 * True if the drain of its node stopped an execution: its deadline is over, and the execution started before.
 * `startedAt` `null`: at `now`.
 */
export function isStoppedByDrain(
  startedAt: number | null,
  drainUntil: number | null,
  now: number,
): boolean {
  return drainUntil !== null && drainUntil <= now && (startedAt ?? now) <= drainUntil
}

/** A claimed execution that never started waits again, unless its end was requested meanwhile. */
export function isReleasable(
  {status, attempt, cancelRequestedAt}: ExecutionRecord,
  {retriesEnded}: Pick<LaunchRecord, 'retriesEnded'>,
): boolean {
  const isRetryEnded = attempt > 1 && retriesEnded
  return status === 'running' && !isRetryEnded && cancelRequestedAt === null
}

export interface FinishInput {
  /** State before the end: running, or pending when it is cancelled or no node can run it. */
  readonly execution: ExecutionRecord
  /** Attempt before this one on the same slot; `null` = this is the first. */
  readonly previous: Pick<ExecutionRecord, 'status' | 'reason'> | null
  readonly launch: Pick<LaunchRecord, 'retriesEnded' | 'nodeDeaths'>
  /** `null` when the job was deleted meanwhile: then nothing follows. */
  readonly job: {readonly retries: number} | null
  /** Status that the node reported. */
  readonly status: FinalStatus
  readonly reason: string
  /** Reason code why the node had to stop it without a cancel request; `null` = it had not. */
  readonly cancelReason: string | null
  /**
   * True if this job alone may have killed the node. False if suspects of other jobs ended too, or other
   * nodes may have died at the same time: then no job is blamed.
   */
  readonly isOnlySuspect: boolean
  /** The store's clock. */
  readonly now: number
  /** [0, 1): jitter of the retry's backoff. */
  readonly jitter: number
}

export interface FinishDecision {
  /** A cancel that was not requested is `lost`: it never is final without a retry. */
  readonly status: FinalStatus
  readonly reason: string
  /** Attempt number and due time of the next attempt on the same slot; `null` = no retry. */
  readonly retry: {readonly attempt: number; readonly notBefore: number} | null
  /** This launch gets no more retries, and attempts waiting for their backoff end `cancelled`. */
  readonly endsRetries: boolean
  readonly nodeDeaths: number
  /** The job kills its nodes: disable it and record why. */
  readonly quarantined: boolean
}

/** Decides one end, before its effects on the launch are counted. */
export function decideFinish(input: FinishInput): FinishDecision {
  const {execution, previous, launch, job} = input
  const isUnrequested =
    input.status === 'cancelled' &&
    execution.status === 'running' &&
    execution.cancelRequestedAt === null
  const status = isUnrequested ? 'lost' : input.status
  const reason = isUnrequested ? (input.cancelReason ?? 'not_requested') : input.reason
  const died = isNodeDeath({status, reason})
  const nodeDeaths = launch.nodeDeaths + (died ? 1 : 0)
  const diedTwice = died && previous !== null && isNodeDeath(previous)
  const quarantined = diedTwice && input.isOnlySuspect && job !== null
  const endsRetries = status === 'cancelled' || quarantined
  const isRetryDue =
    job !== null &&
    isRetried(status) &&
    // An execution lost while pending had no node to run on: another attempt would have none either.
    execution.status === 'running' &&
    !endsRetries &&
    !launch.retriesEnded &&
    execution.cancelRequestedAt === null &&
    execution.attempt <= job.retries
  const retry = isRetryDue
    ? {
        attempt: execution.attempt + 1,
        notBefore: input.now + retryDelayMs(execution.attempt, input.jitter),
      }
    : null
  return {status, reason, retry, endsRetries, nodeDeaths, quarantined}
}

/**
 * The final status of a launch, by the last attempt of each slot; `null` while any execution is
 * pending or running. `executions` are all executions of the launch, after the end was applied.
 */
export function launchStatus(
  executions: readonly Pick<ExecutionRecord, 'slot' | 'attempt' | 'status'>[],
): Exclude<JobStatus, ''> | null {
  if (executions.some(({status}) => status === 'pending' || status === 'running')) return null
  const last = lastAttempts(executions)
  const succeeded = last.filter(({status}) => status === 'succeeded').length
  if (succeeded === last.length) return 'success'
  return succeeded === 0 ? 'failed' : 'partially_failed'
}

/** True for a launch that a person cancelled: each slot that did not succeed ended so. */
export function wasCancelled(
  executions: readonly Pick<ExecutionRecord, 'slot' | 'attempt' | 'status'>[],
): boolean {
  const unsuccessful = lastAttempts(executions).filter(({status}) => status !== 'succeeded')
  return unsuccessful.length > 0 && unsuccessful.every(({status}) => status === 'cancelled')
}

/** The last attempt of each slot. */
function lastAttempts<Attempt extends Pick<ExecutionRecord, 'slot' | 'attempt'>>(
  executions: readonly Attempt[],
): readonly Attempt[] {
  // Most launches have a single execution.
  if (executions.length === 1) return executions
  const last = new Map<number, Attempt>()
  for (const execution of executions) {
    const known = last.get(execution.slot)
    if (known === undefined || known.attempt < execution.attempt)
      last.set(execution.slot, execution)
  }
  return [...last.values()]
}

/** The newest launches of a job, in three numbers. */
export interface JobTrend {
  /** Launches in a row that ended `failed` or `partially_failed`. */
  readonly failStreak: number
  /** When the first of them closed; `null` = the streak is 0. */
  readonly failingSince: number | null
  /** Moving mean of the durations of successful launches; `null` = none succeeded yet. */
  readonly typicalMs: number | null
}

/** Weight of the newest duration: five launches of a new length make most of the mean. */
const TYPICAL_WEIGHT = 0.2

/** Adds a closed launch. A launch that a person cancelled says nothing about the job. */
export function countLaunch(
  trend: JobTrend,
  status: LaunchStatus,
  executions: readonly Pick<ExecutionRecord, 'startedAt' | 'finishedAt'>[],
  now: number,
): JobTrend {
  if (status === 'cancelled') return trend
  if (status !== 'success') {
    return {
      ...trend,
      failStreak: trend.failStreak + 1,
      failingSince: trend.failingSince ?? now,
    }
  }
  let began = Infinity
  let ended = 0
  for (const {startedAt, finishedAt} of executions) {
    began = Math.min(began, startedAt ?? now)
    ended = Math.max(ended, finishedAt ?? now)
  }
  const tookMs = Math.max(0, ended - began)
  const {typicalMs} = trend
  const mean = typicalMs === null ? tookMs : typicalMs + (tookMs - typicalMs) * TYPICAL_WEIGHT
  return {failStreak: 0, failingSince: null, typicalMs: Math.round(mean)}
}

/** Adds one finished execution to the job's counters. Times only move forward. */
export function countFinish(
  counters: JobCounters,
  status: FinalStatus,
  finishedAt: number,
): JobCounters {
  const latest = (known: number | null) => Math.max(known ?? finishedAt, finishedAt)
  return status === 'succeeded'
    ? {
        ...counters,
        successCount: counters.successCount + 1,
        lastSuccess: latest(counters.lastSuccess),
      }
    : {...counters, errorCount: counters.errorCount + 1, lastError: latest(counters.lastError)}
}

/**
 * Backoff of retries. The first delay is short, so that a brief failure costs a second. The cap is long,
 * so that a broken dependency is not overloaded. Jitter keeps many failed jobs from returning at once.
 */
const RETRY_BACKOFF = {firstMs: 1_000, maxMs: 5 * 60_000, jitter: {min: 0.8, max: 1.2}}

/** Delay before the attempt that follows attempt number `attempt` (from 1). `jitter` in [0, 1). Whole ms. */
export function retryDelayMs(attempt: number, jitter: number): number {
  return Math.round(backoffMs(RETRY_BACKOFF, attempt, jitter))
}

/** Cancels are intended and successes need no retry; every other end is retried. */
export function isRetried(status: FinalStatus): boolean {
  return status === 'failed' || status === 'timed_out' || status === 'lost'
}

/** Quarantine of a job whose launch killed nodes: its definition, and what launch row and audit log say. */
export function quarantine(spec: JobSpec, group: number) {
  const sentence = `nodes died while executing launch ${group}; the job was disabled`
  return {
    spec: {...spec, disabled: true},
    reason: reasonText('quarantined', sentence),
    detail: 'disabled: its launches kill nodes',
  }
}
