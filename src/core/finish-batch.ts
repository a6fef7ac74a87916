/**
 * The launches and jobs that a batch of finished executions changes, in memory. Each end sees the
 * effects of the ends before it, and the store writes the result once. The rules for a single end
 * are in finish.ts; this file applies them.
 */
import {assert} from '../lib/assert.ts'
import {
  type ExecutionKey,
  executionId,
  type ExecutionRecord,
  type FinalStatus,
  lostLine,
} from './execution.ts'
import {
  countFinish,
  countLaunch,
  decideFinish,
  type FinishDecision,
  isNodeDeath,
  type JobTrend,
  launchStatus,
  wasCancelled,
} from './finish.ts'
import type {JobCounters, JobStatus} from './job.ts'
import type {LaunchRecord, LaunchStatus} from './launch-record.ts'

const DAY_MS = 86_400_000

export interface BatchExecution {
  record: ExecutionRecord
  readonly nodeId: string
  /** Claim token; `''` = not claimed. */
  readonly token: string
  readonly incarnation: string
  /** Reason as in `FinishInput`. */
  cancelReason: string | null
  change: 'none' | 'update' | 'insert' | 'remove'
}

/** The part of a launch that decides its end and follows from it. Each end loads it, so it is no more. */
export type EndingLaunch = Pick<
  LaunchRecord,
  | 'group'
  | 'jobId'
  | 'jobName'
  | 'decision'
  | 'reason'
  | 'open'
  | 'retriesEnded'
  | 'nodeDeaths'
  | 'status'
  | 'closedAt'
  | 'rootGroup'
>

export interface BatchLaunch {
  record: EndingLaunch
  /** All of a small launch; of a large one, at least those that this batch may change. */
  readonly executions: BatchExecution[]
  /** Executions that are not in `executions` are pending or running; false = the others have ended. */
  readonly hasOpenRest: boolean
  changed: boolean
}

export interface BatchJob {
  readonly id: number
  readonly name: string
  readonly retries: number
  readonly ephemeral: boolean
  readonly disabled: boolean
  /** An incident of the job is open, so its next success is a fact for notices. */
  readonly watched: boolean
  counters: JobCounters
  status: JobStatus
  /** Launch that set `status`. */
  statusGroup: number
  trend: JobTrend
  /** False once deleted, also by this batch. */
  live: boolean
  changed: boolean
  /** Launch whose success deletes an ephemeral job; its history is kept. `null` = the job stays. */
  keptGroup: number | null
  /** Launch whose executions killed their nodes; `null` = none. */
  quarantinedBy: number | null
}

/** A launch that closed: every dependent of its job is launched, or gets a row that says why it is not. */
export interface LaunchEnd {
  readonly launch: EndingLaunch
  readonly status: LaunchStatus
  /** Launches of the job in a row that failed, with this one. */
  readonly streak: number
  /** Jobs that launch next. Filled in when they are loaded; the returned outcome shares this list. */
  readonly dependents: string[]
}

/** How one execution ends, as reported. */
export interface ExecutionEnd {
  readonly status: FinalStatus
  readonly reason: string
  readonly finishedAt: number
  /** [0, 1): jitter of a retry's backoff. */
  readonly jitter: number
  /** Other fields of the record to set. */
  readonly with: Partial<ExecutionRecord>
  /** See `FinishInput`; absent = true. */
  readonly isOnlySuspect?: boolean
}

/** Effects of one finished execution. */
export interface FinishedExecution {
  readonly kind: 'finished'
  readonly execution: ExecutionRecord
  /** The next attempt, if the rules allow one. */
  readonly retry: {readonly key: ExecutionKey; readonly notBefore: number} | null
  /** Set when this end closed the launch. */
  readonly closed: ClosedLaunch | null
  /** The job was disabled by quarantine. */
  readonly jobDisabled: boolean
  /** The job was ephemeral and was deleted after this success. */
  readonly jobDeleted: boolean
  /** Attempts of the launch that were waiting for their backoff and ended `cancelled` too; absent = none. */
  readonly endedRetries?: readonly ExecutionRecord[]
}

export interface ClosedLaunch {
  readonly status: Exclude<JobStatus, ''>
  /** Names of the jobs that launch next. */
  readonly dependents: readonly string[]
  /**
   * False = no launch is pending: neither of a dependent, nor a planned time that waited for this launch to
   * close. Absent = not known.
   */
  readonly wakesLauncher?: boolean
}

export class FinishBatch {
  readonly launches = new Map<number, BatchLaunch>()
  readonly jobs = new Map<number, BatchJob>()
  readonly ended: LaunchEnd[] = []
  readonly removed: ExecutionKey[] = []
  /** Finished executions by day; the key is midnight UTC. */
  readonly days = new Map<number, {success: number; failed: number}>()
  readonly #now: number

  /** `now` is the store's clock. */
  constructor(now: number) {
    this.#now = now
  }

  find(key: ExecutionKey): BatchExecution | null {
    const launch = this.launches.get(key.group)
    const isMeant = ({record: {node, attempt}}: BatchExecution) =>
      node === key.node && attempt === key.attempt
    return launch?.executions.find(isMeant) ?? null
  }

  /** The job of a launch; `null` = it was deleted. */
  jobOf(launch: BatchLaunch): BatchJob | null {
    const job = this.jobs.get(launch.record.jobId)
    return job?.live === true ? job : null
  }

  /** Jobs whose attempts before these also ended because their node died. */
  suspects(keys: readonly ExecutionKey[]): ReadonlySet<number> {
    const suspects = new Set<number>()
    for (const key of keys) {
      const execution = this.find(key)
      const previous = execution === null ? null : this.#previousOf(execution)
      if (previous !== null && isNodeDeath(previous)) suspects.add(previous.jobId)
    }
    return suspects
  }

  /** Ends an execution of a live job and applies the consequences for its launch and job. */
  end(execution: BatchExecution, end: ExecutionEnd): FinishedExecution {
    const launch = this.launches.get(execution.record.group)!
    const job = this.jobOf(launch)
    assert(job !== null, `the job of execution ${executionId(execution.record)} must be live`)
    const decision = decideFinish({
      execution: execution.record,
      previous: this.#previousOf(execution),
      launch: launch.record,
      job,
      status: end.status,
      reason: end.reason,
      cancelReason: execution.cancelReason,
      isOnlySuspect: end.isOnlySuspect ?? true,
      now: this.#now,
      jitter: end.jitter,
    })
    const {status, reason, nodeDeaths} = decision
    if (nodeDeaths !== launch.record.nodeDeaths) launch.record = {...launch.record, nodeDeaths}
    launch.changed = true
    if (status === end.status) this.#recordEnd(job, execution, end)
    else {
      const outputFoot = `${end.with.outputFoot ?? execution.record.outputFoot}${lostLine(reason)}`
      this.#recordEnd(job, execution, {...end, status, reason, with: {...end.with, outputFoot}})
    }
    const endedRetries = decision.endsRetries ? this.endRetries(launch, job) : []
    const retry = decision.retry === null ? null : this.#addRetry(launch, execution, decision.retry)
    const quarantined = decision.quarantined && !job.disabled && job.quarantinedBy === null
    if (quarantined) job.quarantinedBy = launch.record.group
    const closed = this.#closeIfDone(launch, job)
    return {
      kind: 'finished',
      execution: execution.record,
      retry,
      closed,
      jobDisabled: quarantined,
      jobDeleted: job.keptGroup === launch.record.group,
      ...(endedRetries.length === 0 ? {} : {endedRetries}),
    }
  }

  /** Cancels the attempts of a launch that are waiting for their backoff; returns them. */
  endRetries(launch: BatchLaunch, job: BatchJob): ExecutionRecord[] {
    const ended: ExecutionRecord[] = []
    launch.record = {...launch.record, retriesEnded: true}
    launch.changed = true
    for (const execution of launch.executions) {
      const {status, attempt} = execution.record
      if (status !== 'pending' || attempt === 1) continue
      this.#recordEnd(job, execution, {
        status: 'cancelled',
        reason: '',
        finishedAt: this.#now,
        jitter: 0,
        with: {},
      })
      ended.push(execution.record)
    }
    return ended
  }

  /** Removes an execution of a deleted job without a trace. The last one closes the launch. */
  remove(execution: BatchExecution): void {
    const launch = this.launches.get(execution.record.group)!
    execution.change = 'remove'
    launch.executions.splice(launch.executions.indexOf(execution), 1)
    this.removed.push(execution.record)
    const isUnfinished = launch.executions.some(({record: {status}}) => {
      return status === 'pending' || status === 'running'
    })
    if (!isUnfinished && !launch.hasOpenRest) launch.record = {...launch.record, open: false}
    launch.changed = true
  }

  /** The attempt before this one on the same slot. */
  #previousOf({record: {group, slot, attempt}}: BatchExecution): ExecutionRecord | null {
    const executions = this.launches.get(group)?.executions ?? []
    const earlier = executions.filter(
      ({record}) => record.slot === slot && record.attempt < attempt,
    )
    return earlier.toSorted((a, b) => b.record.attempt - a.record.attempt)[0]?.record ?? null
  }

  #recordEnd(job: BatchJob, execution: BatchExecution, end: ExecutionEnd): void {
    const {status, reason, finishedAt} = end
    execution.record = {...execution.record, ...end.with, status, reason, finishedAt}
    if (execution.change !== 'insert') execution.change = 'update'
    job.counters = countFinish(job.counters, status, finishedAt)
    job.changed = true
    const day = finishedAt - (finishedAt % DAY_MS)
    const counts = this.days.get(day) ?? {success: 0, failed: 0}
    counts[status === 'succeeded' ? 'success' : 'failed'] += 1
    this.days.set(day, counts)
  }

  #addRetry(
    launch: BatchLaunch,
    failed: BatchExecution,
    {attempt: firstFree, notBefore}: NonNullable<FinishDecision['retry']>,
  ): NonNullable<FinishedExecution['retry']> {
    const {group, node, slot, jobId, jobName} = failed.record
    let attempt = firstFree
    // Another slot of the launch may have been moved to this node and then used the same attempt numbers.
    while (this.find({group, node, attempt}) !== null) attempt += 1
    const key = {group, node, attempt}
    const record: ExecutionRecord = {
      ...key,
      jobId,
      jobName,
      slot,
      status: 'pending',
      revision: 0,
      createdAt: this.#now,
      notBefore,
      startedAt: null,
      finishedAt: null,
      cancelRequestedAt: null,
      exitCode: null,
      reason: '',
      outputHead: '',
      outputFoot: '',
      outputBytes: 0,
      lateResult: '',
    }
    const {nodeId} = failed
    launch.executions.push({
      record,
      nodeId,
      token: '',
      incarnation: '',
      cancelReason: null,
      change: 'insert',
    })
    return {key, notBefore}
  }

  /** Closes a launch without pending or running executions, and sets the status and trend of its job. */
  #closeIfDone(launch: BatchLaunch, job: BatchJob): ClosedLaunch | null {
    if (launch.hasOpenRest) return null
    const executions = launch.executions.map(({record}) => record)
    const jobStatus = launchStatus(executions)
    if (jobStatus === null || !launch.record.open) return null
    const isCancelled = jobStatus !== 'success' && wasCancelled(executions)
    const status = isCancelled ? 'cancelled' : jobStatus
    launch.record = {...launch.record, open: false, status, closedAt: this.#now}
    launch.changed = true
    const {group} = launch.record
    // An older launch that ends late does not replace the status of a newer one.
    if (group >= job.statusGroup) {
      job.status = jobStatus
      job.statusGroup = group
      job.trend = countLaunch(job.trend, status, executions, this.#now)
      job.changed = true
    }
    const dependents: string[] = []
    this.ended.push({launch: launch.record, status, streak: job.trend.failStreak, dependents})
    if (status === 'success' && job.ephemeral) {
      job.keptGroup = group
      job.live = false
    }
    return {status: jobStatus, dependents}
  }
}
