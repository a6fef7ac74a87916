/** The store's part for nodes: membership, claiming, output, finishing. An agent has it over the wire. */
import type {ExecutionKey, ExecutionRecord, FinalStatus} from '../core/execution.ts'
import type {JobSpec} from '../core/job.ts'
import type {LaunchCause} from '../core/launch-record.ts'
import type {MemberRecord, MemberStatus} from '../core/node.ts'

export interface JoinRequest {
  readonly member: Omit<MemberRecord, 'heartbeatAt' | 'status' | 'startedAt'>
}

export interface ClaimRequest {
  readonly nodeId: string
  readonly incarnation: string
  /** Minted by the node for this batch: repeating a claim with it answers the same executions again. */
  readonly token: string
  /** Free slots. */
  readonly room: number
  /**
   * `newest` of the last answer this life had. Another one there by now means that the question was long on
   * its way and the node has claimed by another way since: it takes nothing, for nobody waits for the answer.
   * Absent = not compared.
   */
  readonly after?: string
}

/** A claimed execution with the definition as it stood at the claim. */
export interface ClaimedExecution {
  readonly execution: ExecutionRecord
  readonly token: string
  readonly spec: JobSpec
  readonly cause: LaunchCause
  readonly scheduledAt: number
}

export interface ClaimResult {
  readonly claimed: readonly ClaimedExecution[]
  /** Pending executions of this node that are due and found no room. */
  readonly waiting: number
  /**
   * Earliest `notBefore` of a pending execution of this node that is not due yet, as a length from now;
   * `null` = none.
   */
  readonly nextDueInMs: number | null
  /** Token of the newest claim of this node that took something; `''` = none. */
  readonly newest?: string
}

export interface OutputAppend {
  readonly key: ExecutionKey
  readonly token: string
  /** Absolute position of `bytes[0]` in what the command wrote. A repeated append changes nothing. */
  readonly offset: number
  readonly bytes: Uint8Array
}

export interface FinishItem {
  readonly key: ExecutionKey
  readonly token: string
  readonly status: FinalStatus
  /** By the node's monotonic clock, from the claim on; `finishedAt` = `startedAt` + this. */
  readonly durationMs: number
  readonly exitCode: number | null
  readonly reason: string
  readonly outputHead: string
  readonly outputFoot: string
  /**
   * The last stretch of output not appended yet (it may skip bytes that no longer count), and how many
   * there were in all.
   */
  readonly output: {
    readonly offset: number
    readonly bytes: Uint8Array
    readonly totalBytes: number
  }
  /** Processors took the output elsewhere: drop what was appended, keep only head and foot. */
  readonly dropOutput: boolean
  /** [0, 1): jitter of a retry's backoff. */
  readonly jitter: number
}

/**
 * What the store says about a claim.
 *
 * `active`: the execution is `running` under this claim.
 * `lost_may_continue`: the execution is `lost`, but its process may keep running and its result is stored as
 * `late_result`. Requires `on_disconnect: keep`, an existing job, no cancellation, and no later attempt.
 * `revoked`: anything else; the process started under this claim must be stopped.
 */
export type ClaimStatus = 'active' | 'lost_may_continue' | 'revoked'

/** What finishing one execution did. */
export type FinishOutcome =
  | {
      readonly kind: 'finished'
      readonly execution: ExecutionRecord
      /** The attempt that follows, if the rule owes one. */
      readonly retry: {readonly key: ExecutionKey; readonly notBefore: number} | null
      /** Set when this closed the launch. */
      readonly closed: {
        readonly status: 'success' | 'failed' | 'partially_failed'
        readonly dependents: readonly string[]
      } | null
      /** The job was disabled, or deleted because it was ephemeral. */
      readonly jobDisabled: boolean
      readonly jobDeleted: boolean
      /** Attempts of the launch that waited for their backoff and ended `cancelled` too; absent = none. */
      readonly endedRetries?: readonly ExecutionRecord[]
    }
  /** It had ended already: noted as a late result if it was `lost`, nothing else changed. */
  | {readonly kind: 'already'; readonly key: ExecutionKey; readonly status: FinalStatus}
  /** Never existed, its job is gone, or the token is not the claim's. */
  | {readonly kind: 'unknown'; readonly key: ExecutionKey}

export interface Heartbeat {
  readonly nodeId: string
  readonly incarnation: string
  readonly status: MemberStatus
}

/**
 * What the store says to a heartbeat. Only after `ok` was it stored.
 *
 * `fenced`: another life of this node has joined since; this one must end.
 * `taken`: the node was given up for silent, and another identity is present under its name; this one must
 * end. Not said to a node that leaves.
 * `unknown`: no such member (any more); the node may join again.
 */
export type BeatReply = 'ok' | 'fenced' | 'taken' | 'unknown'

/** The node's part of the store; an agent has the same over the wire. */
export interface NodeStore {
  /**
   * Due pending executions of this node, oldest first, at most `room`. A node that is no member gets none;
   * one that failed or left gets nothing new, only what it had claimed under the same token.
   */
  claim(requests: readonly ClaimRequest[]): Promise<readonly ClaimResult[]>
  /** How each stands. */
  verifyClaims(
    claims: readonly {readonly key: ExecutionKey; readonly token: string}[],
  ): Promise<readonly ClaimStatus[]>
  /** False for an execution that is not running under the token (its output is to be given up). */
  appendOutput(items: readonly OutputAppend[]): Promise<readonly boolean[]>
  /** Applies in order; one refused item never hinders the others. */
  finish(items: readonly FinishItem[]): Promise<readonly FinishOutcome[]>
  /** Running executions of this node that are to be ended: cancelled, or their job deleted. */
  cancelled(nodeId: string): Promise<readonly ExecutionKey[]>
  beat(heartbeats: readonly Heartbeat[]): Promise<readonly BeatReply[]>
}

export type CancelResult =
  /** `ended` at once, being pending: the execution itself, and attempts that waited for their backoff. */
  | {
      readonly kind: 'requested'
      readonly execution: ExecutionRecord
      readonly ended: readonly FinishOutcome[]
    }
  | {readonly kind: 'over'; readonly status: FinalStatus}
  | {readonly kind: 'unknown'}

/** A claim as the store knows it. */
export interface ActiveClaim {
  readonly key: ExecutionKey
  readonly token: string
  /** How long ago it was made. */
  readonly ageMs: number
}

/**
 * What a node can prove of an earlier life of its own: an execution that life had claimed, of a launch above
 * `upTo` and not among the begun, was never handed to an executor.
 */
export interface PreviousIncarnation {
  readonly incarnation: string
  /** Number of a launch. */
  readonly upTo: number
  /** Ids of executions. */
  readonly begun: ReadonlySet<string>
}

/** What became of removing a member. */
export type RemoveResult =
  | {
      readonly kind: 'removed'
      /** As it was. */
      readonly member: MemberRecord
      readonly finished: readonly FinishOutcome[]
    }
  /** It still had more to run than one call ends; it is a member until another call has ended the rest. */
  | {readonly kind: 'ending'; readonly finished: readonly FinishOutcome[]}
  /** Alive or leaving: it takes its leave itself. Nothing was changed. */
  | {readonly kind: 'present'; readonly member: MemberRecord}
  | {readonly kind: 'unknown'}

export interface MemberStore {
  /** Executions running under claims of this life of the node. */
  activeClaims(life: {
    readonly nodeId: string
    readonly incarnation: string
  }): Promise<readonly ActiveClaim[]>
  /**
   * Executions that a life of the node had claimed and never started, and that are still running under these
   * claims, are pending again as if they had not been claimed, and due at once. Said by the node's next life
   * after it joined: until then its earlier one might claim still. Those that are to be cancelled, that are
   * retries of a launch whose retries have ended, or whose job is deleted are left for a rescue. Answers what
   * was given back; repeatable.
   */
  releaseClaims(
    claims: readonly {readonly key: ExecutionKey; readonly token: string}[],
  ): Promise<readonly ExecutionRecord[]>
  /** `taken`: another identity holds the name and its heartbeat is fresh (`freshMs`). */
  join(
    request: JoinRequest,
    freshMs: number,
  ): Promise<{readonly kind: 'joined'} | {readonly kind: 'taken'; readonly by: string}>
  members(): Promise<readonly MemberRecord[]>
  /**
   * A leader's verdict that a node is `failed`. False, and nothing changed, when it was heard again since,
   * has left, or has come back as another life. Throws `TermOver`.
   */
  failMember(request: {
    readonly term: number
    readonly nodeId: string
    readonly observed: {readonly incarnation: string; readonly heartbeatAt: number}
  }): Promise<boolean>
  /**
   * Forgets members that left, or failed, and were not heard of for so long by the store's clock, the longest
   * silent first; at most `limit`. Those with an execution pending or running stay. Answers whom it forgot.
   * Throws `TermOver`.
   */
  pruneMembers(request: {
    readonly term: number
    readonly leftAfterMs: number
    readonly failedAfterMs: number
    readonly limit: number
  }): Promise<readonly MemberRecord[]>
  /**
   * Removes a member that left or failed, on somebody's word. What it still runs is ended as `lost` by the
   * rule of `finish`, at most `limit` a call, and the member goes with the last of it. What is pending for it
   * is a stray from then on, and nobody waits for the node.
   */
  removeMember(request: {
    readonly nodeId: string
    readonly limit: number
    readonly jitter: number
  }): Promise<RemoveResult>
  /**
   * A pending execution ends `cancelled` at once, a running one is flagged for its node; either way the
   * launch's other retries end. Repeatable.
   */
  cancelExecution(name: string, key: ExecutionKey): Promise<CancelResult>
}
