/**
 * The store's part for the leader: the lease, what is due, writing decisions, rescue, retention. Every
 * write is made under a term and refused when the term is over.
 */
import type {ExecutionKey} from '../core/execution.ts'
import type {JobRecord} from '../core/job.ts'
import type {DueDecision, LaunchRecord, RequestDecision} from '../core/launch-record.ts'
import type {Candidate} from '../core/node.ts'
import type {StuckExecution} from '../core/reassign.ts'
import type {FinishOutcome} from './node-store.ts'

export interface Lease {
  readonly term: number
  readonly expiresAt: number
}

/** The lease as its holder last wrote it; taking it and every renewal change it. */
export interface HeldLease extends Lease {
  readonly holder: string
}

/** A due job with what a decision needs. */
export interface DueJob {
  readonly job: JobRecord
  /** A launch of the job's name that is open (for `forbid`), the oldest; `null` when there is none. */
  readonly openGroup: number | null
}

export interface DueWork {
  /** The store's clock; the decisions are about this instant. */
  readonly now: number
  readonly jobs: readonly DueJob[]
  /**
   * Earliest `next` later than `now`; `null` when nothing is planned. Meaningful when `jobs` was not
   * cut by the limit.
   */
  readonly nextDueAt: number | null
}

export interface PendingRequest {
  readonly launch: LaunchRecord
  readonly job: JobRecord
  /**
   * Another launch of the job's name that is open and already launched, or pending with a smaller
   * number and cause `schedule`.
   */
  readonly openGroup: number | null
}

export interface DecidedLaunch {
  readonly launch: LaunchRecord
  readonly targets: readonly string[]
}

/** A place in the order in which strays are read: that of launches and their targets. */
export interface StuckPosition {
  readonly group: number
  readonly slot: number
  readonly attempt: number
}

export interface PruneRequest {
  readonly term: number
  readonly keepLaunches: number
  readonly keepUnlaunched: number
  /** `null` = no limit by age. */
  readonly keepMs: number | null
  readonly keepOutputBytes: number
  /**
   * Which jobs the round is about: all, or those with launches above a number. Most jobs launch seldom, and
   * history only grows by launches.
   */
  readonly round: 'all' | 'launched'
  /** Where this call begins: after that internal id of a job (`all`), or launch number (`launched`). */
  readonly after: number
  /** Jobs, or launches whose jobs are looked at in this call. */
  readonly jobLimit: number
  /** Rows deleted at most in this call. */
  readonly rowLimit: number
}

export interface PruneResult {
  /** Give back as `after`, to go on with the round or, of a round `launched`, to begin the next one. */
  readonly next: number
  readonly isRoundOver: boolean
  /** The largest launch number there is: a round `launched` that follows a round `all` begins after it. */
  readonly newestGroup: number
  readonly rowsDeleted: number
  readonly outputBytesCut: number
  /** The row limit was reached: more is waiting in the same place. */
  readonly more: boolean
}

export interface LeaderStore {
  /**
   * Takes the lease if it is free or over, or still what `unchanged` says, under a new, larger term; `null`
   * when another holds it.
   */
  acquireLease(request: {
    readonly holder: string
    readonly nodeId: string
    readonly ttlMs: number
    /** The caller has seen the lease stay like this for longer than it lasts. */
    readonly unchanged?: HeldLease | null
  }): Promise<Lease | null>
  /** What somebody holds, in force or over; `null` when nobody took it since it was let go. */
  heldLease(): Promise<HeldLease | null>
  /** False when the term is over. */
  renewLease(request: {
    readonly term: number
    readonly holder: string
    readonly ttlMs: number
  }): Promise<boolean>
  resignLease(request: {readonly term: number; readonly holder: string}): Promise<void>
  /** Who leads now; `null` when no lease is in force. */
  leader(): Promise<{
    readonly term: number
    readonly nodeId: string
    readonly expiresAt: number
  } | null>
  /** Jobs with `next` <= now, oldest first, at most `limit`. */
  loadDue(request: {readonly limit: number}): Promise<DueWork>
  /**
   * Pending rows with a number above `afterGroup`, in order; also the store's now. Numbers are taken before
   * the commit: a row may appear below one that was there before, so every reader begins anew at 0 at times.
   */
  loadRequests(request: {
    readonly afterGroup: number
    readonly limit: number
  }): Promise<{readonly now: number; readonly requests: readonly PendingRequest[]}>
  /** Alive nodes that run jobs, with their load. */
  candidates(): Promise<readonly Candidate[]>
  /**
   * Writes decisions in one transaction under the term. Each applies only if the job still has its
   * revision and `next` (a request: is still pending, its job still there); others are `conflict` and
   * change nothing. Moves `next`, writes launch and execution rows, merges neighbouring rows that did
   * not launch. Throws `TermOver`.
   */
  applyLaunches(request: {
    readonly term: number
    readonly dues: readonly DueDecision[]
    readonly requests: readonly RequestDecision[]
  }): Promise<{
    readonly now: number
    readonly dues: readonly Applied[]
    readonly requests: readonly Applied[]
    /** Rows written or decided by what applied (for events), in order. */
    readonly decided: readonly DecidedLaunch[]
  }>
  /** Pending executions due for longer than `unclaimedMs`, or whose node is not alive. */
  loadStuck(request: {
    readonly unclaimedMs: number
    /** Where this page begins: after `next` of the page before; `null` = with the first. */
    readonly after: StuckPosition | null
    readonly limit: number
  }): Promise<{
    readonly now: number
    readonly strays: readonly StuckExecution[]
    /** `null` = the round is over. */
    readonly next: StuckPosition | null
  }>
  /** Gives pending executions to other nodes. Throws `TermOver`. */
  applyReassignments(request: {
    readonly term: number
    readonly moves: readonly {
      readonly key: ExecutionKey
      readonly to: {readonly nodeId: string; readonly nodeName: string}
    }[]
  }): Promise<readonly Applied[]>
  /**
   * Ends pending executions as `lost` for want of a node, by the rule of `finish`: those that are still
   * pending for the given node, while that takes no work (it is no member, or not alive, or runs no jobs).
   * Answers what it ended; repeatable. Throws `TermOver`.
   */
  endStuck(request: {
    readonly term: number
    readonly strays: readonly {readonly key: ExecutionKey; readonly nodeId: string}[]
  }): Promise<readonly FinishOutcome[]>
  /**
   * Ends every running execution claimed by the given lives of nodes as `lost` by the rule of `finish`,
   * at most `limit`. Called by the leader for nodes judged dead, and by a starting node for its own
   * earlier lives (`term` null).
   */
  rescue(request: {
    readonly term: number | null
    readonly nodeId: string
    /** Executions of this life of the node are left alone; `null` = all lives are over. */
    readonly exceptIncarnation: string | null
    /**
     * What the judge saw of the node. If the node was heard again or returned since, nothing is ended:
     * the verdict is no longer about it. `null` = not a verdict but the node's own word.
     */
    readonly observed: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
    readonly limit: number
    readonly jitter: number
  }): Promise<{readonly finished: readonly FinishOutcome[]; readonly more: boolean}>
  prune(request: PruneRequest): Promise<PruneResult>
}

export type Applied = 'applied' | 'conflict'
