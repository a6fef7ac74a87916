/**
 * The one durable thing. Methods are named after the flow's steps and are whole transactions: they take
 * data and give data, never closures, and decide by the pure core inside their transaction where a
 * decision must see what it changes. What is expected is a return value; a store that cannot be reached
 * or written throws `StoreUnavailable`, a commit whose outcome is unknown throws `OutcomeUnknown`.
 * Instants are ms since the epoch by the store's own clock.
 */
import type {
  ExecutionKey,
  ExecutionRecord,
  ExecutionStatus,
  FinalStatus,
} from '../core/execution.ts'
import type {JobCounters, JobRecord, JobSpec} from '../core/job.ts'
import type {
  DueDecision,
  LaunchCause,
  LaunchDecision,
  LaunchRecord,
  RequestDecision,
} from '../core/ledger.ts'
import type {Candidate, MemberRecord, MemberStatus} from '../core/node.ts'

/** Nothing was changed; trying again later may work. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable'
}

/** The commit may or may not have happened: re-read by identity, never repeat blindly. */
export class OutcomeUnknown extends Error {
  override readonly name = 'OutcomeUnknown'
}

/** A leader write under a term that is over. The caller steps down. */
export class TermOver extends Error {
  override readonly name = 'TermOver'
}

// ---------------------------------------------------------------- jobs

/** Makes a repeated call answer what the first one did. Unique by (scope, key), kept 24 h. */
export interface Idempotency {
  readonly key: string
  /** Who asked (token name) and for what; the same key of another caller is another key. */
  readonly scope: string
  /** Digest of the request; the same key with another one is a mismatch. */
  readonly fingerprint: string
}

export interface SubmitRequest {
  readonly spec: JobSpec
  /** Revision the caller believes stored; anything else is `precondition`. `'*'` = any, but it must exist. */
  readonly ifMatch: number | '*' | null
  /** `If-None-Match: *`: the job must not exist. */
  readonly createOnly: boolean
  /** Write a request row with cause `create` in the same transaction. */
  readonly runOnCreate: boolean
  readonly idempotency: Idempotency | null
}

export type SubmitResult =
  | {
      readonly kind: 'stored'
      readonly job: JobRecord
      readonly created: boolean
      /** False when the definition was the same already: nothing was touched. */
      readonly changed: boolean
      /** Launch number of the run on create, `null` without one. */
      readonly group: number | null
    }
  | {readonly kind: 'paused'}
  | {readonly kind: 'parent_unknown'; readonly parent: string}
  | {readonly kind: 'cycle'; readonly path: readonly string[]}
  /** `ephemeral` together with dependents: of this job, or of the parent it names. */
  | {
      readonly kind: 'ephemeral_parent'
      readonly parent: string
      readonly dependents: readonly string[]
    }
  | {readonly kind: 'precondition'; readonly revision: number | null}
  | {readonly kind: 'idempotency_mismatch'}

export interface RestoreEntry {
  readonly spec: JobSpec
  /** Used only for jobs that do not exist yet. */
  readonly counters: JobCounters
}

export type RestoreResult =
  /** In the order of the file. */
  | {
      readonly kind: 'restored'
      readonly lines: readonly {readonly name: string; readonly created: boolean}[]
    }
  | {
      readonly kind: 'refused'
      readonly problems: readonly {readonly name: string; readonly problem: string}[]
    }
  | {readonly kind: 'paused'}

export interface RunRequest {
  readonly name: string
  readonly forced: boolean
  readonly idempotency: Idempotency | null
}

export type RunResult =
  | {readonly kind: 'accepted'; readonly job: JobRecord; readonly group: number}
  | {readonly kind: 'unknown'}
  /** `forbid` and a launch of the job is open. Advice: the leader decides again. */
  | {readonly kind: 'forbidden'; readonly openGroup: number}
  | {readonly kind: 'idempotency_mismatch'}

export type JobSort =
  | 'name'
  | 'displayname'
  | 'schedule'
  | 'success_count'
  | 'error_count'
  | 'last_success'
  | 'last_error'
  | 'next'
  | 'status'
export type Order = 'asc' | 'desc'

/** A metadata filter: an exact pair, or a text that matches a key or a value. All must match. */
export type MetadataFilter =
  {readonly key: string; readonly value: string} | {readonly either: string}

/** Rows `start` (inclusive) to `end` (exclusive); `end` `null` = to the last. */
export interface Slice {
  readonly start: number
  readonly end: number | null
}

export interface JobQuery extends Slice {
  readonly metadata: readonly MetadataFilter[]
  /** Case-insensitive substring of name or displayname; `''` = all. */
  readonly text: string
  readonly status: 'success' | 'failed' | 'partially_failed' | 'untriggered' | null
  readonly disabled: boolean | null
  /** Ties are broken by name, ascending. Unset times sort first ascending. */
  readonly sort: JobSort
  readonly order: Order
}

/** `total` is the count before slicing; both are of one snapshot. */
export interface Page<Row> {
  readonly total: number
  readonly rows: readonly Row[]
}

export interface JobStore {
  submit(request: SubmitRequest): Promise<SubmitResult>
  /**
   * All or nothing; parents may stand anywhere in the list. `disabled` imports every job disabled.
   * Never plans the past.
   */
  restore(
    entries: readonly RestoreEntry[],
    options: {readonly disabled: boolean},
  ): Promise<RestoreResult>
  /** Flips `disabled`. A due undecided time it moves past is recorded `missed` with reason `disabled`. */
  toggle(name: string): Promise<JobRecord | null>
  deleteJob(
    name: string,
  ): Promise<
    | {readonly kind: 'deleted'; readonly job: JobRecord}
    | {readonly kind: 'unknown'}
    | {readonly kind: 'dependents'; readonly names: readonly string[]}
  >
  /** Stores a request to run (cause `manual`); the launch number is taken here. */
  requestRun(request: RunRequest): Promise<RunResult>
  /**
   * Deletes finished executions and resets counters and status; open launches stay, daily statistics
   * stay.
   */
  resetHistory(name: string): Promise<JobRecord | null>
  job(name: string): Promise<JobRecord | null>
  jobs(query: JobQuery): Promise<Page<JobRecord>>
  paused(): Promise<boolean>
  setPaused(paused: boolean): Promise<void>
}

// ---------------------------------------------------------------- history

/** An execution with as much of its output's tail as was asked for. */
export interface ExecutionView extends ExecutionRecord {
  /**
   * The last kept bytes of what the command wrote, without head and foot; starts on a UTF-8 character
   * where it was cut.
   */
  readonly output: Uint8Array
  /** True when the command wrote more than `output` holds. */
  readonly outputTruncated: boolean
}

export type ExecutionSort = 'id' | 'started_at' | 'finished_at' | 'attempt'

export interface ExecutionQuery extends Slice {
  readonly sort: ExecutionSort
  readonly order: Order
  readonly status: ExecutionStatus | null
  /** Last bytes of output each row carries; 0 = none. */
  readonly outputBytes: number
}

/**
 * A stretch of kept output: bytes from absolute position `offset` on (later than asked when older ones
 * are gone).
 */
export interface OutputStretch {
  readonly offset: number
  readonly bytes: Uint8Array
  /** How many bytes the command has written so far. */
  readonly totalBytes: number
  readonly execution: ExecutionRecord
}

export interface DayStatistics {
  /** Midnight UTC. */
  readonly date: number
  readonly successCount: number
  readonly failedCount: number
}

export interface HistoryStore {
  /** Newest first by default (sort `id`, order `desc`). `null` = no such job. */
  executions(name: string, query: ExecutionQuery): Promise<Page<ExecutionView> | null>
  /**
   * `null` = no such job, or no such execution of it. Also finds executions of an ephemeral job's last
   * launch.
   */
  execution(name: string, key: ExecutionKey, outputBytes: number): Promise<ExecutionView | null>
  /** Kept output from absolute byte `from` on, at most `limit` bytes; for following a run. */
  outputSince(
    name: string,
    key: ExecutionKey,
    from: number,
    limit: number,
  ): Promise<OutputStretch | null>
  /** Running executions of all jobs, oldest start first. */
  busy(query: Slice & {readonly outputBytes: number}): Promise<Page<ExecutionView>>
  /** Newest first. `null` = no such job. */
  launches(
    name: string,
    query: Slice & {readonly decision: LaunchDecision | null},
  ): Promise<Page<LaunchRecord> | null>
  launch(
    name: string,
    group: number,
  ): Promise<{
    readonly launch: LaunchRecord
    readonly executions: readonly ExecutionRecord[]
  } | null>
  /** One row a day of the last `days` days (today included), oldest first, zeros included. */
  statistics(days: number): Promise<readonly DayStatistics[]>
  /** Figures for metrics and the status page; cheap. */
  totals(): Promise<{
    readonly jobs: number
    readonly running: number
    readonly pending: number
    readonly undecided: number
  }>
}

// ---------------------------------------------------------------- leader

export interface Lease {
  readonly term: number
  readonly expiresAt: number
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

export type Applied = 'applied' | 'conflict'

export interface DecidedLaunch {
  readonly launch: LaunchRecord
  readonly targets: readonly string[]
}

/** A pending execution that its node has not claimed, or whose node is not there any more. */
export interface StrayExecution {
  readonly execution: ExecutionRecord
  readonly nodeId: string
  readonly job: JobRecord
  readonly cause: LaunchCause
  readonly scheduledAt: number
  /** Names of nodes the launch already uses. */
  readonly usedNodes: readonly string[]
}

export interface PruneRequest {
  readonly term: number
  readonly keepLaunches: number
  readonly keepUnlaunched: number
  /** `null` = no limit by age. */
  readonly keepMs: number | null
  readonly keepOutputBytes: number
  /** Jobs to look at in this call, by internal id after `afterJobId`. */
  readonly afterJobId: number
  readonly jobLimit: number
  /** Rows deleted at most in this call. */
  readonly rowLimit: number
}

export interface PruneResult {
  /** Give back as `afterJobId`; 0 = the round is complete. */
  readonly nextJobId: number
  readonly rowsDeleted: number
  readonly outputBytesCut: number
  /** The row limit was reached: more is waiting in the same place. */
  readonly more: boolean
}

export interface LeaderStore {
  /** Takes the lease if it is free or over, under a new, larger term; `null` when another holds it. */
  acquireLease(request: {
    readonly holder: string
    readonly nodeId: string
    readonly ttlMs: number
  }): Promise<Lease | null>
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
  /** Pending rows with a number above `afterGroup`, in order; also the store's now. */
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
  loadStray(request: {
    readonly unclaimedMs: number
    /** Only launches with a larger number: a round over many goes page by page. */
    readonly afterGroup: number
    readonly limit: number
  }): Promise<{readonly now: number; readonly strays: readonly StrayExecution[]}>
  /** Gives pending executions to other nodes. Throws `TermOver`. */
  applyMoves(request: {
    readonly term: number
    readonly moves: readonly {
      readonly key: ExecutionKey
      readonly to: {readonly nodeId: string; readonly nodeName: string}
    }[]
  }): Promise<readonly Applied[]>
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
    readonly judged: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
    readonly limit: number
    readonly dice: number
  }): Promise<{readonly finished: readonly FinishOutcome[]; readonly more: boolean}>
  prune(request: PruneRequest): Promise<PruneResult>
}

// ---------------------------------------------------------------- node

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
  readonly dice: number
}

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
    }
  /** It had ended already: noted as a late result if it was `lost`, nothing else changed. */
  | {readonly kind: 'already'; readonly key: ExecutionKey; readonly status: FinalStatus}
  /** Never existed, its job is gone, or the token is not the claim's. */
  | {readonly kind: 'unknown'; readonly key: ExecutionKey}

/** The node's part of the store; an agent has the same over the wire. */
export interface NodeStore {
  /** Due pending executions of this node, oldest first, at most `room`. */
  claim(request: ClaimRequest): Promise<ClaimResult>
  /** Whether each is still running under this token. */
  verifyClaims(
    claims: readonly {readonly key: ExecutionKey; readonly token: string}[],
  ): Promise<readonly boolean[]>
  /** False for an execution that is not running under the token (its output is to be given up). */
  appendOutput(items: readonly OutputAppend[]): Promise<readonly boolean[]>
  /** Applies in order; one refused item never hinders the others. */
  finish(items: readonly FinishItem[]): Promise<readonly FinishOutcome[]>
  /** Running executions of this node that are to be ended: cancelled, or their job deleted. */
  cancelled(nodeId: string): Promise<readonly ExecutionKey[]>
  /** `fenced`: another life of this node has joined since; this one must end. */
  beat(request: {
    readonly nodeId: string
    readonly incarnation: string
    readonly status: MemberStatus
  }): Promise<'ok' | 'fenced' | 'unknown'>
}

export type CancelResult =
  | {readonly kind: 'requested'; readonly execution: ExecutionRecord}
  | {readonly kind: 'over'; readonly status: FinalStatus}
  | {readonly kind: 'unknown'}

export interface MemberStore {
  /** `taken`: another identity holds the name and its heartbeat is fresh (`freshMs`). */
  join(
    request: JoinRequest,
    freshMs: number,
  ): Promise<{readonly kind: 'joined'} | {readonly kind: 'taken'; readonly by: string}>
  members(): Promise<readonly MemberRecord[]>
  /**
   * A leader's verdict about one life of a node; changes nothing when another life has joined. Throws
   * `TermOver`.
   */
  setMemberStatus(request: {
    readonly term: number
    readonly nodeId: string
    readonly incarnation: string
    readonly status: MemberStatus
  }): Promise<void>
  /**
   * A pending execution ends `cancelled` at once, a running one is flagged for its node; either way the
   * launch's other retries end. Repeatable.
   */
  cancelExecution(name: string, key: ExecutionKey): Promise<CancelResult>
}

// ---------------------------------------------------------------- the rest

export interface Policy {
  readonly name: string
  readonly rules: string
}

export interface PolicyStore {
  policies(): Promise<readonly Policy[]>
  policy(name: string): Promise<Policy | null>
  putPolicy(policy: Policy): Promise<void>
  deletePolicy(name: string): Promise<Policy | null>
}

export interface StoreFacts {
  readonly engine: 'sqlite' | 'postgres'
  readonly engineVersion: string
  readonly schemaVersion: number
  readonly clusterId: string
  /** Changes when the store is restored from a backup. */
  readonly incarnation: string
  /** Read back from the engine, e.g. `{journal_mode: 'wal', synchronous: 'full'}`. */
  readonly durability: Readonly<Record<string, string>>
  /** Sentences about what could be lost; empty when nothing acknowledged can be. */
  readonly warnings: readonly string[]
}

export interface Store
  extends JobStore, HistoryStore, LeaderStore, NodeStore, MemberStore, PolicyStore {
  facts(): Promise<StoreFacts>
  /** Stores the cluster's default zone if none is stored yet; answers the one in force. */
  agreeTimezone(zone: string): Promise<string>
  /** Resolves when the store could be read and written just now; else throws. */
  probe(): Promise<void>
  /**
   * Writes a consistent image of everything but secrets, a SQLite database, to a file that does not
   * exist yet.
   */
  backup(file: string): Promise<void>
  close(): Promise<void>
}
