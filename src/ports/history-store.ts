/** History: executions and their output, launches, statistics. Reads only. */
import type {NameFilter} from '../core/access/authorization.ts'
import type {ClusterEvent} from '../core/cluster-event.ts'
import type {ExecutionKey, ExecutionRecord, ExecutionStatus} from '../core/execution.ts'
import type {ExplainFacts, ExplainSubject} from '../core/explain/facts.ts'
import type {
  LaunchCause,
  LaunchDecision,
  LaunchRecord,
  LaunchStatus,
} from '../core/launch-record.ts'
import type {Reason} from '../core/launch-reasons.ts'
import type {MemberStatus} from '../core/node.ts'
import type {ProblemFacts} from '../core/problems/facts.ts'
import type {TracedLaunch} from '../core/trace.ts'
import type {MetadataFilter} from './job-store.ts'
import type {KeysetPage, KeysetSlice, Order, Page, Slice} from './page.ts'

/** An execution with the requested number of last output bytes. */
export interface ExecutionView extends ExecutionRecord {
  /** Last bytes that the command wrote, without head and foot. A cut is at the start of a UTF-8 character. */
  readonly output: Uint8Array
  /** First bytes of an output of which the middle is not kept. Absent = it is, or only the end was read. */
  readonly outputStart?: Uint8Array
  /** True: the command wrote more than `output` and `outputStart` contain. */
  readonly outputTruncated: boolean
}

/**
 * A launch with its executions, by attempt and node; empty unless the decision is `launched`. Their
 * `outputHead` and `outputFoot` are not read: they are `''`.
 */
export interface LaunchView extends LaunchRecord {
  readonly executions: readonly ExecutionRecord[]
  /** The parent's launch; `null` = it has none, or its row is not kept. */
  readonly parent: RelatedLaunch | null
  /** Launches of dependents, in the order of their numbers; at most `CHILDREN_MAX`. */
  readonly children: readonly RelatedLaunch[]
}

export type RelatedLaunch = Pick<LaunchRecord, 'group' | 'jobName' | 'decision' | 'status'>

/** Which launches, over all jobs. Absent filters of jobs and instants in ms = all. */
interface AcrossJobs extends KeysetSlice {
  readonly names: NameFilter
  /** Name of a job, in which `*` is any text. */
  readonly job: string | null
  readonly node: string | null
  /** When the launch was recorded: not before `since`, and before `until`. */
  readonly since: number | null
  readonly until: number | null
  /** Only what ended then or later: the list is in the order of ends, and has bad ends only. */
  readonly endedSince: number | null
}

export interface LaunchListQuery extends AcrossJobs {
  readonly metadata: readonly MetadataFilter[]
  /**
   * `skipped` and `missed` are in the order of their last decision: a row that covers days is found by its
   * last planned time.
   */
  readonly decision: LaunchDecision | null
  readonly reason: Reason | null
  readonly cause: LaunchCause | null
  readonly status: LaunchStatus | null
}

export interface ExecutionListQuery extends AcrossJobs {
  readonly status: ExecutionStatus | 'not_pending' | null
  readonly reason: string | null
  readonly exitCode: number | null
  readonly minDurationMs: number | null
  readonly outputBytes: number
}

/** An execution of the job of this name. */
export interface NamedExecution {
  readonly jobName: string
  readonly key: ExecutionKey
}

/** A range of time, and which jobs. */
export interface ProblemQuery {
  readonly names: NameFilter
  /** Name of a job, in which `*` is any text; `null` = all. */
  readonly job: string | null
  readonly metadata: readonly MetadataFilter[]
  /** An instant, or a length of time before the end of the range. */
  readonly since: {readonly at: number} | {readonly agoMs: number}
  /** `null`, or a time to come = now. */
  readonly until: number | null
  /** End of the range of the first page: later rows are left out. `null` = this is the first page. */
  readonly firstUntil: number | null
  /** Launches of each job that the servers keep. */
  readonly keepLaunches: number
}

export type ExecutionSort = 'id' | 'started_at' | 'finished_at' | 'attempt'

export interface ExecutionQuery extends Slice {
  readonly sort: ExecutionSort
  readonly order: Order
  /** `not_pending` = all that have been claimed or have ended; `null` = all. */
  readonly status: ExecutionStatus | 'not_pending' | null
  /** Last bytes of output in each row; 0 = none. */
  readonly outputBytes: number
}

export interface BusyQuery extends Slice {
  /** Last bytes of output in each row; 0 = none. */
  readonly outputBytes: number
  /** Filter of the jobs; absent = all. */
  readonly names?: NameFilter
}

/** Kept output from absolute position `offset`, which is later than requested if older bytes are deleted. */
export interface OutputStretch {
  readonly offset: number
  readonly bytes: Uint8Array
  /** Bytes that the command has written so far. */
  readonly totalBytes: number
  readonly execution: ExecutionRecord
}

export interface DayStatistics {
  /** Midnight UTC. */
  readonly date: number
  readonly successCount: number
  readonly failedCount: number
}

/** Counts for metrics and the status page. */
export interface Totals {
  readonly jobs: number
  readonly running: number
  readonly pending: number
  readonly undecided: number
  /** 1 if planned times of some jobs do not run, else 0. */
  readonly firingPaused: number
  /** How late the oldest undecided planned time is; 0 = none is due. */
  readonly lateMs: number
  /** How long the launch that waits longest for a node has waited; 0 = none waits for one. */
  readonly waitingMs: number
}

export interface UsageRequest {
  readonly nodesMax: number
  /** Names of jobs, in which `*` stands for any text. Empty = no job. */
  readonly jobPatterns: readonly string[]
  readonly jobsMax: number
}

/** State of the store that metrics show besides its totals. Lists are sorted by name. */
export interface Usage {
  readonly disabled: number
  readonly outputBytes: number
  /** Size of the database file, or of all files of a PostgreSQL database. */
  readonly storeBytes: number
  /** Messages that are due and not delivered yet: quiet hours may hold others. */
  readonly noticesWaiting: number
  readonly incidentsOpen: number
  readonly members: Readonly<Record<MemberStatus, number>>
  /** Members that run jobs and are alive or leaving. */
  readonly nodes: readonly {
    readonly name: string
    readonly slots: number
    readonly isCordoned: boolean
    readonly running: number
    readonly pending: number
  }[]
  /** Further ones, beyond `nodesMax`. */
  readonly nodesOmitted: number
  /** Enabled jobs. */
  readonly listedJobs: readonly JobUsage[]
  /** Further ones, beyond `jobsMax`. */
  readonly jobsOmitted: number
}

export interface JobUsage {
  readonly name: string
  readonly createdAt: number
  readonly lastSuccessAt: number | null
  /** Duration of its last launch that ended, from the first start to the last end. `null` = unknown. */
  readonly lastDurationMs: number | null
  /** Result of the same launch; `null` = none has ended. */
  readonly hasSucceeded: boolean | null
}

export interface HistoryStore {
  /** Newest first by default (sort `id`, order `desc`). `null` = no such job. */
  executions(name: string, query: ExecutionQuery): Promise<Page<ExecutionView> | null>
  /**
   * `null` = no such job, or no such execution of it. Also finds executions of the last launch of an
   * ephemeral job, which is deleted by then.
   */
  execution(name: string, key: ExecutionKey, outputBytes: number): Promise<ExecutionView | null>
  /** `execution` of each of a few, from one snapshot. */
  executionOfEach(
    wanted: readonly NamedExecution[],
    outputBytes: number,
  ): Promise<readonly (ExecutionView | null)[]>
  /** Kept output from absolute position `from`, at most `limit` bytes, to follow a run. `null`: as above. */
  outputSince(
    name: string,
    key: ExecutionKey,
    from: number,
    limit: number,
  ): Promise<OutputStretch | null>
  /** Running executions of all jobs, earliest start first. */
  busy(query: BusyQuery): Promise<Page<ExecutionView>>
  /** Newest first. `null` = no such job. */
  launches(
    name: string,
    query: Slice & {readonly decision: LaunchDecision | null},
  ): Promise<Page<LaunchView> | null>
  /** `null` = no such job, or no such launch of it. */
  launch(name: string, group: number): Promise<LaunchView | null>
  /** Facts about a job around a time, from one snapshot. `null` = no such job. */
  explainFacts(name: string, subject: ExplainSubject): Promise<ExplainFacts | null>
  /** `null` = no such launch, or none of these jobs. */
  launchOfAny(group: number, names: NameFilter): Promise<LaunchView | null>
  /** The chain of the launch from its root, by number: at most `limit`. Empty = no such launch. */
  trace(group: number, limit: number): Promise<readonly TracedLaunch[]>
  /** Newest first. */
  launchList(query: LaunchListQuery): Promise<KeysetPage<LaunchView>>
  /** Newest first. */
  executionList(query: ExecutionListQuery): Promise<KeysetPage<ExecutionView>>
  /** Rows from which problems are made, from one snapshot. Bounded: `isPartial` = there are more. */
  problemFacts(query: ProblemQuery): Promise<ProblemFacts>
  /** A row a day for the last `days` days including today, oldest first. Days without runs have zeros. */
  statistics(days: number): Promise<readonly DayStatistics[]>
  /** Events that began in [from, to), or lasted into it, newest first. */
  clusterEvents(query: {
    readonly from: number
    readonly to: number
    readonly limit: number
  }): Promise<readonly ClusterEvent[]>
  /** Cheap. */
  totals(): Promise<Totals>
  /** Sizes, load by node, and the last runs of the jobs that match a pattern. For metrics. */
  usage(request: UsageRequest): Promise<Usage>
}
