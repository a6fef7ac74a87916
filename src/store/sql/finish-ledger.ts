/**
 * The launches and jobs a batch of ends touches, held in memory while the batch is worked through: each end
 * sees what the ends before it did, and all of it is written once. Decisions are the core's; this only
 * keeps what they change.
 */
import type {ExecutionKey, ExecutionRecord, FinalStatus} from '../../core/execution.ts'
import {countFinish, decideFinish, launchStatus} from '../../core/finish.ts'
import type {JobCounters, JobStatus} from '../../core/job.ts'
import type {LaunchRecord} from '../../core/launch-record.ts'
import type {FinishOutcome} from '../../ports/node-store.ts'
import {assert} from '../../lib/assert.ts'
import {keyText} from './rows.ts'

const DAY_MS = 86_400_000

export interface BatchExecution {
  record: ExecutionRecord
  readonly nodeId: string
  readonly token: string
  readonly incarnation: string
  change: 'none' | 'update' | 'insert' | 'remove'
}

export interface BatchLaunch {
  record: LaunchRecord
  readonly executions: BatchExecution[]
  changed: boolean
}

export interface BatchJob {
  readonly id: number
  readonly name: string
  readonly retries: number
  readonly ephemeral: boolean
  readonly disabled: boolean
  counters: JobCounters
  status: JobStatus
  statusGroup: number
  /** False once deleted, also by this batch. */
  live: boolean
  changed: boolean
  /** Launch after whose success an ephemeral job goes. */
  keptGroup: number | null
  /** Launch that killed its nodes. */
  quarantinedBy: number | null
}

/** A launch that ended well: its job's dependents are owed a launch each. */
export interface Success {
  readonly jobName: string
  readonly group: number
  /** Filled when the dependents are known; the outcome shares it. */
  readonly dependents: string[]
}

export interface End {
  readonly status: FinalStatus
  readonly reason: string
  readonly finishedAt: number
  readonly jitter: number
  /** What else becomes of the record. */
  readonly with: Partial<ExecutionRecord>
}

export class FinishBatch {
  readonly launches = new Map<number, BatchLaunch>()
  readonly jobs = new Map<number, BatchJob>()
  readonly successes: Success[] = []
  readonly removed: ExecutionKey[] = []
  /** Midnight UTC to counts. */
  readonly days = new Map<number, {success: number; failed: number}>()
  readonly #now: number

  constructor(now: number) {
    this.#now = now
  }

  find(key: ExecutionKey): BatchExecution | null {
    const launch = this.launches.get(key.group)
    const wanted = keyText(key)
    return launch?.executions.find(({record}) => keyText(record) === wanted) ?? null
  }

  /** The live job of a launch, or `null`. */
  jobOf(launch: BatchLaunch): BatchJob | null {
    const job = this.jobs.get(launch.record.jobId)
    return job?.live === true ? job : null
  }

  /** Ends an execution of a live job, and whatever follows from it. */
  end(held: BatchExecution, end: End): Extract<FinishOutcome, {kind: 'finished'}> {
    const launch = this.launches.get(held.record.group)!
    const job = this.jobOf(launch)
    assert(job !== null, `execution ${keyText(held.record)} ends under a live job`)
    const decision = decideFinish({
      execution: held.record,
      launch: launch.record,
      others: launch.executions.filter((other) => other !== held).map(({record}) => record),
      job,
      status: end.status,
      reason: end.reason,
      now: this.#now,
      jitter: end.jitter,
    })
    const {nodeDeaths} = decision
    const retriesEnded = launch.record.retriesEnded || decision.endsRetries
    launch.record = {...launch.record, nodeDeaths, retriesEnded}
    launch.changed = true
    this.#settle(job, held, end)
    const endedRetries = decision.endsRetries ? this.endRetries(launch, job) : []
    const retry = decision.retry === null ? null : this.#retry(launch, held, decision.retry)
    const quarantined = decision.quarantined && !job.disabled && job.quarantinedBy === null
    if (quarantined) job.quarantinedBy = launch.record.group
    const closed = this.close(launch)
    return {
      kind: 'finished',
      execution: held.record,
      retry,
      closed,
      jobDisabled: quarantined,
      jobDeleted: job.keptGroup === launch.record.group,
      ...(endedRetries.length === 0 ? {} : {endedRetries}),
    }
  }

  #settle(job: BatchJob, held: BatchExecution, end: End): void {
    const {status, reason, finishedAt} = end
    held.record = {...held.record, ...end.with, status, reason, finishedAt}
    if (held.change !== 'insert') held.change = 'update'
    job.counters = countFinish(job.counters, status, finishedAt)
    job.changed = true
    const day = finishedAt - (finishedAt % DAY_MS)
    const counts = this.days.get(day) ?? {success: 0, failed: 0}
    counts[status === 'succeeded' ? 'success' : 'failed'] += 1
    this.days.set(day, counts)
  }

  /** Attempts that wait for their backoff end without having run; answers them. */
  endRetries(launch: BatchLaunch, job: BatchJob): ExecutionRecord[] {
    const ended: ExecutionRecord[] = []
    launch.record = {...launch.record, retriesEnded: true}
    launch.changed = true
    for (const other of launch.executions) {
      if (other.record.status !== 'pending' || other.record.attempt === 1) continue
      const end = {
        status: 'cancelled',
        reason: '',
        finishedAt: this.#now,
        jitter: 0,
        with: {},
      } as const
      this.#settle(job, other, end)
      ended.push(other.record)
    }
    return ended
  }

  #retry(
    launch: BatchLaunch,
    held: BatchExecution,
    {attempt: owed, notBefore}: {attempt: number; notBefore: number},
  ): {key: ExecutionKey; notBefore: number} {
    const {group, node, slot, jobId, jobName} = held.record
    let attempt = owed
    // Another target of the launch may have been moved to this node: its attempts have the same names.
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
    const {nodeId} = held
    launch.executions.push({record, nodeId, token: '', incarnation: '', change: 'insert'})
    return {key, notBefore}
  }

  /** Closes the launch when nothing of it is pending or running, and gives the job its status. */
  close(launch: BatchLaunch): Extract<FinishOutcome, {kind: 'finished'}>['closed'] {
    const job = this.jobOf(launch)
    const status = launchStatus(launch.executions.map(({record}) => record))
    if (status === null || !launch.record.open || job === null) return null
    launch.record = {...launch.record, open: false}
    launch.changed = true
    const {group} = launch.record
    if (group >= job.statusGroup) {
      job.status = status
      job.statusGroup = group
      job.changed = true
    }
    const dependents: string[] = []
    if (status === 'success') {
      this.successes.push({jobName: job.name, group, dependents})
      if (job.ephemeral) {
        job.keptGroup = group
        job.live = false
      }
    }
    return {status, dependents}
  }

  /** A deleted job's execution has ended: it leaves no trace, and the last one closes the launch. */
  remove(held: BatchExecution): void {
    const launch = this.launches.get(held.record.group)!
    held.change = 'remove'
    launch.executions.splice(launch.executions.indexOf(held), 1)
    this.removed.push(held.record)
    const alive = launch.executions.some(({record: {status}}) => {
      return status === 'pending' || status === 'running'
    })
    if (!alive) launch.record = {...launch.record, open: false}
    launch.changed = true
  }
}
