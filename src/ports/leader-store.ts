/**
 * The leader: lease, due work, decisions, lost executions, retention. Every write carries the leader's term
 * as fencing token and throws `TermOver` if another leader has a newer one.
 */
import type {BackupState} from '../core/backup.ts'
import type {ExecutionKey} from '../core/execution.ts'
import type {FiringPause, LaunchSettings} from '../core/firing.ts'
import type {PlannedJob} from '../core/job.ts'
import type {DueDecision, JobFault, LaunchRecord, RequestDecision} from '../core/launch-record.ts'
import type {PendingWork} from '../core/launch.ts'
import type {Candidate} from '../core/node.ts'
import type {StuckExecution} from '../core/reassign.ts'
import type {FinishOutcome} from '../core/end-requests.ts'
import type {ChannelUse} from './notice-store.ts'
import type {Position} from './page.ts'

export interface Lease {
  readonly term: number
  readonly expiresAt: number
}

/** The lease as last written; acquiring and every renewal change it. */
export interface HeldLease extends Lease {
  readonly holder: string
}

export interface ObservedLease extends HeldLease {
  /**
   * True if the connection on which the holder acquired or renewed the lease is open. `null` = the engine
   * cannot tell. False also for a holder of a release that does not mark its connection.
   */
  readonly isConnected: boolean | null
}

export interface DueJob {
  readonly job: PlannedJob
  /** Oldest open launch of the job's name, for `forbid`; `null` = none. */
  readonly openGroup: number | null
  /** Launches of the job of which no execution has started, up to `queuedMax`; 0 if not counted. */
  readonly queued: number
}

/** Cursor of `loadDue`: a due job in the order in which they are loaded. */
export interface DuePosition {
  readonly nextAt: number
  readonly id: number
}

export interface DueWork {
  /** The store's clock; decisions refer to this instant. */
  readonly now: number
  readonly settings: LaunchSettings
  readonly jobs: readonly DueJob[]
  /** Due jobs whose stored definition is damaged. */
  readonly damaged: readonly {
    readonly id: number
    readonly name: string
    readonly problem: string
  }[]
  /** Earliest `next` after `now`; `null` = nothing is planned. Valid only on the last page. */
  readonly nextDueAt: number | null
  /** More than `burstMin` jobs are due, this page included. */
  readonly isBurst: boolean
  /** Start of the next page; `null` = this was the last page. */
  readonly next: DuePosition | null
}

export interface DecidedLaunch {
  readonly launch: LaunchRecord
  readonly targets: readonly string[]
}

export interface PruneRequest {
  readonly term: number
  /** Rows of launches of a job. */
  readonly keepLaunches: number
  /** Launches of a job whose executions are kept, with their output. */
  readonly keepExecutions: number
  /** Rows of a job that did not launch. */
  readonly keepUnlaunched: number
  /** Checked in the round over all jobs. `null` = no limit by age. */
  readonly keepMs: number | null
  readonly keepOutputBytes: number
  /**
   * Jobs of this round: all, or those with launches above a number. Most jobs launch seldom, and history
   * grows only by launches. `other`: deleted jobs, output beyond its limit, and rows that belong to no job.
   */
  readonly round: 'all' | 'launched' | 'other'
  /**
   * Cursor: internal id of a job (`all`), or launch number (`launched`), that this call continues after.
   * `other` has none.
   */
  readonly after: number
  /** Jobs, or launches whose jobs, are read in this call. */
  readonly jobLimit: number
  /** Maximum number of rows that this call deletes. */
  readonly rowLimit: number
}

export interface PruneResult {
  /** `after` of the next call of this round or, of a round `launched`, of the next round. */
  readonly next: number
  readonly isRoundOver: boolean
  /** Largest launch number: a round `launched` that follows a round `all` starts after it. */
  readonly newestGroup: number
  readonly rowsDeleted: number
  readonly outputBytesCut: number
  /** `rowLimit` was reached: more rows remain at the same cursor. */
  readonly more: boolean
}

export interface FutureWaits {
  /** Waits that were ended. */
  readonly ended: number
  /**
   * Number of jobs whose planned times are decided up to an instant in the future, among the thousand whose
   * `next` is latest. They do not fire before it.
   */
  readonly aheadJobs: number
  /** Latest of those instants; `null` = there is none. */
  readonly aheadUntil: number | null
}

export interface LeaderStore {
  /**
   * Acquires the lease, with a new, larger term, if it is free, expired, or still equal to `unchanged`.
   * `null` = another node holds it.
   */
  acquireLease(request: {
    readonly holder: string
    readonly nodeId: string
    readonly ttlMs: number
    /**
     * The caller has seen this lease without a renewal for longer than its TTL, or its holder's connection
     * closed for a while.
     */
    readonly unchanged?: HeldLease | null
    /** Earlier requests of the caller failed: the store is the cause of a time without a leader. */
    readonly storeFailed?: boolean
  }): Promise<Lease | null>
  /** The lease, in force or expired; `null` = resigned, and not acquired since. */
  heldLease(): Promise<ObservedLease | null>
  /** False: the term is over. */
  renewLease(request: {
    readonly term: number
    readonly holder: string
    readonly ttlMs: number
  }): Promise<boolean>
  resignLease(request: {readonly term: number; readonly holder: string}): Promise<void>
  /** The current leader; `null` = no lease is in force. */
  leader(): Promise<{
    readonly term: number
    readonly nodeId: string
    readonly expiresAt: number
  } | null>
  /** Jobs with `next` <= now, earliest first, at most `limit`. None while firing is paused. */
  loadDue(request: {
    readonly limit: number
    /** Absent or `null` = first page. */
    readonly after?: DuePosition | null
    /** Limit of `queued` of jobs under `allow`; absent = not counted. */
    readonly queuedMax?: number
    /** Limit for `isBurst`; absent or `null` = there is none. */
    readonly burstMin?: number | null
  }): Promise<DueWork>
  /**
   * Undecided requests with a launch number above `afterGroup`, in order. Numbers are taken before the
   * commit: a row may appear with a smaller number than an earlier one, so readers must restart at 0 from
   * time to time.
   */
  loadRequests(request: {
    readonly afterGroup: number
    readonly limit: number
    /** Limits for `newerMissed`; absent = it is not counted. */
    readonly catchUp?: {readonly lateAfterMs: number; readonly catchUpMax: number}
  }): Promise<{
    readonly now: number
    readonly settings: LaunchSettings
    readonly requests: readonly PendingWork[]
  }>
  /** Alive nodes that run jobs, with their load; cordoned ones too. */
  candidates(): Promise<readonly Candidate[]>
  /**
   * Writes decisions in one transaction. Compare-and-set: a decision applies only if the job still has its
   * revision and `next` (a request: is still pending, and its job has that revision); others are `conflict`
   * and change nothing. All are, if the settings have changed since: no job fires after an acknowledged
   * pause. Advances `next`, writes launch and execution rows, merges adjacent rows that did
   * not launch. Throws `TermOver`.
   */
  applyLaunches(request: {
    readonly term: number
    readonly dues: readonly DueDecision[]
    readonly requests: readonly RequestDecision[]
    readonly faults?: readonly JobFault[]
    /** Revision of the settings that the decisions depend on; absent = not compared. */
    readonly settings?: number
  }): Promise<{
    readonly now: number
    readonly dues: readonly Applied[]
    readonly requests: readonly Applied[]
    /** Launches written or decided by the applied decisions, in order, for events. */
    readonly decided: readonly DecidedLaunch[]
  }>
  /**
   * Plans a page of jobs again, if the stored version of the time zone data differs from `zoneData`; the last
   * page stores it. Returns the cursor of the next page; `null` = done. Idempotent. Throws `TermOver`.
   */
  replan(request: {
    readonly term: number
    /** Version of the time zone data of this process. */
    readonly zoneData: string
    /** Cursor; 0 = first page. */
    readonly after: number
    readonly limit: number
  }): Promise<number | null>
  /**
   * Plans a page of the jobs without a zone of their own, after a change of the default zone. Throws
   * `TermOver`, and errors about one job.
   */
  planZone(request: {
    readonly term: number
    readonly limit: number
    /** The next job is left as it is; absent = false. */
    readonly isFaulty?: boolean
  }): Promise<{
    /** No job is left. */
    readonly isDone: boolean
    /** The faulty job; `null` = none was skipped. */
    readonly skipped: {
      readonly jobId: number
      readonly job: string
      readonly revision: number
    } | null
  }>
  /**
   * Records that planned times wait because the store's clock stepped ahead by `heldMs`; `null` = they do not
   * wait any more. Throws `TermOver`.
   */
  noteClockHeld(request: {readonly term: number; readonly heldMs: number | null}): Promise<void>
  /** Records outcomes of pings for the cluster with their channels. Throws `TermOver`, also without any. */
  recordPings(request: {readonly term: number; readonly uses: readonly ChannelUse[]}): Promise<void>
  /**
   * Ends waits that a wrong clock began in the future: pending executions may be claimed, and pending
   * launches wait from now on. Throws `TermOver`.
   */
  endFutureWaits(request: {readonly term: number}): Promise<FutureWaits>
  /**
   * Deletes the pauses that have ended, once all planned times before their end are decided. Returns those
   * that ended by themselves. Throws `TermOver`.
   */
  removeEndedPauses(request: {readonly term: number}): Promise<readonly FiringPause[]>
  /**
   * Pending executions that are due for longer than `unclaimedMs`, or whose node is cordoned or not alive.
   */
  loadStuck(request: {
    readonly unclaimedMs: number
    /** False = without those of alive members that run jobs; absent = true. */
    readonly canMove?: boolean
    /** `next` of the previous page; `null` = first page. */
    readonly after: Position | null
    readonly limit: number
    /** Only those of members that are cordoned or not alive; absent = all. */
    readonly of?: 'gone_nodes' | 'all'
  }): Promise<{
    readonly now: number
    readonly executions: readonly StuckExecution[]
    /** `null` = last page. */
    readonly next: Position | null
  }>
  /** Reassigns pending executions to other nodes. Throws `TermOver`. */
  applyReassignments(request: {
    readonly term: number
    readonly moves: readonly {
      readonly key: ExecutionKey
      readonly to: {readonly nodeId: string; readonly nodeName: string}
    }[]
  }): Promise<readonly Applied[]>
  /**
   * Ends pending executions as `lost` for lack of a node, by the rules of `finish`: those still pending for
   * the given node, if it takes no work (not a member, not alive, cordoned, or runs no jobs). Returns the
   * ended ones. Idempotent. Throws `TermOver`.
   */
  endStuck(request: {
    readonly term: number
    readonly executions: readonly {readonly key: ExecutionKey; readonly nodeId: string}[]
  }): Promise<readonly FinishOutcome[]>
  /**
   * Ends running executions claimed by earlier incarnations of a node as `lost`, by the rules of `finish`, at
   * most `limit`. Called by the leader for failed nodes, and by a starting node for its own earlier
   * incarnations (`term` `null`). `more`: `limit` was reached.
   */
  markLost(request: {
    readonly term: number | null
    readonly nodeId: string
    /**
     * Executions of this incarnation are kept; `null` = all incarnations have ended. If the request has no
     * term, it must be the current incarnation of the node: a delayed request of an earlier one ends
     * nothing.
     */
    readonly exceptIncarnation: string | null
    /**
     * Heartbeat and incarnation that the failure detector saw. Compare-and-set: if the node sent a heartbeat
     * or joined again since, nothing is ended. `null` = called by the node itself.
     */
    readonly observed: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
    readonly limit: number
    readonly jitter: number
  }): Promise<{readonly finished: readonly FinishOutcome[]; readonly more: boolean}>
  prune(request: PruneRequest): Promise<PruneResult>
  /** State of the scheduled backups; `null` = none was planned yet. `now`: the store's clock. */
  backupState(): Promise<{readonly now: number; readonly state: BackupState | null}>
  /** Stores the state of the scheduled backups. Throws `TermOver`. */
  recordBackup(request: {readonly term: number; readonly state: BackupState}): Promise<void>
}

export type Applied = 'applied' | 'conflict'
