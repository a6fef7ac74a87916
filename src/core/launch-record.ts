/**
 * The launch records: one row per planned time or request, with its decision. Every row is called a
 * launch, also when it was skipped or missed. The row is the launch's identity: unique by (job, planned
 * time), or by request.
 */

export const LAUNCH_CAUSES = ['schedule', 'manual', 'create', 'parent'] as const
export type LaunchCause = (typeof LAUNCH_CAUSES)[number]
/**
 * `pending` = stored but undecided: a request, or a planned time that waits for a node or for the
 * previous launch.
 */
export type LaunchDecision = 'pending' | 'launched' | 'skipped' | 'missed'

/** How a launch ended. `cancelled`: a person cancelled every slot that did not succeed. */
export type LaunchStatus = 'success' | 'failed' | 'partially_failed' | 'cancelled'

/** Instants in ms since the epoch, by the store's clock. */
export interface LaunchRecord {
  /** The launch number: below 2^53, increasing, never reused. */
  readonly group: number
  readonly jobId: number
  readonly jobName: string
  readonly cause: LaunchCause
  readonly decision: LaunchDecision
  readonly reason: string
  /** The planned time; for a request, the time of the request. */
  readonly scheduledAt: number
  /**
   * Last planned time of a merged row (same decision and reason, not launched); else equal to
   * `scheduledAt`.
   */
  readonly scheduledUntil: number
  /** Number of planned times that the row covers. */
  readonly count: number
  /** Time the row was written or its wait changed; waits are measured from here. */
  readonly storedAt: number
  readonly decidedAt: number | null
  /** Term of the leader that decided; `null` = pending. */
  readonly term: number | null
  /** Requested with `force`: ignores `forbid`. */
  readonly forced: boolean
  /** The parent's launch, for cause `parent`. */
  readonly parentGroup: number | null
  /** True while the row, one of its executions or a retry is pending or running. */
  readonly open: boolean
  /** Set by a cancel: this launch gets no more retries. */
  readonly retriesEnded: boolean
  /** Number of its executions lost because their node died. */
  readonly nodeDeaths: number
  /** `null` = open, not launched, or closed by an earlier release. */
  readonly status: LaunchStatus | null
  /** When the store closed it; `null` as for `status`. */
  readonly closedAt: number | null
  /** The launch that began the chain; `null` = this one. */
  readonly rootGroup: number | null
}

/** The node for one slot of a launch. */
export interface Target {
  readonly nodeId: string
  readonly nodeName: string
}

/** A row that the leader writes for planned times of a job. */
export interface StoredLaunch {
  readonly scheduledAt: number
  readonly scheduledUntil: number
  readonly count: number
  readonly decision: LaunchDecision
  readonly reason: string
  /** Nodes with one execution each; empty unless launched. */
  readonly targets: readonly Target[]
}

/** Decision for one due job; applied only if the job still has this revision and this `next`. */
export interface DueDecision {
  readonly jobId: number
  readonly revision: number
  readonly expectedNextAt: number
  /** First planned time not decided by `rows`; `null` when there is none. */
  readonly nextAt: number | null
  /**
   * Oldest first; together they cover every undecided planned time from `expectedNextAt` up to (not
   * including) `nextAt`. Empty if all of them were decided before.
   */
  readonly rows: readonly StoredLaunch[]
  /**
   * The job forbids overlap. A row with decision `launched` is applied only while the job's name has no
   * open launch that is launched or is a waiting planned time (pending, cause `schedule`). Otherwise the
   * whole decision conflicts. Undecided requests of other causes do not count.
   */
  readonly forbid: boolean
}

/**
 * Decision for one pending launch row; applied only if its job still has this revision. `stay` only updates
 * the displayed reason. `launch` with `forbid` is applied only while the job's name has no other open
 * launch that is launched, or is pending with cause `schedule` and a smaller number.
 */
export type RequestDecision = {readonly group: number; readonly revision: number} & (
  | {readonly kind: 'launch'; readonly targets: readonly Target[]; readonly forbid: boolean}
  | {
      readonly kind: 'skip'
      readonly decision: 'skipped' | 'missed'
      readonly reason: string
    }
  | {readonly kind: 'stay'; readonly reason: string}
)

/** A job that cannot be decided: its due times stay undecided, and a row of its launch history says why. */
export interface JobFault {
  readonly jobId: number
  readonly reason: string
}
