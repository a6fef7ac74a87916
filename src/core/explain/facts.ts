/**
 * The facts from which sentences are made: plain data. An absent fact is not known, or the caller may not
 * read it; then the sentence is shorter.
 */
import type {ExecutionRecord} from '../execution.ts'
import type {FiringPause, LaunchSettings} from '../firing.ts'
import type {JobRecord, JobSpec} from '../job.ts'
import type {LaunchRecord, LaunchStatus} from '../launch-record.ts'
import type {MemberRecord} from '../node.ts'

/** A row of the launch history. */
export type LaunchFacts = Pick<
  LaunchRecord,
  | 'group'
  | 'jobName'
  | 'cause'
  | 'decision'
  | 'reason'
  | 'scheduledAt'
  | 'scheduledUntil'
  | 'count'
  | 'decidedAt'
> &
  Partial<Pick<LaunchRecord, 'storedAt'>>

/** An attempt of a launch. */
export type ExecutionFacts = Pick<
  ExecutionRecord,
  | 'node'
  | 'attempt'
  | 'slot'
  | 'status'
  | 'reason'
  | 'startedAt'
  | 'finishedAt'
  | 'notBefore'
  | 'exitCode'
  | 'lateResult'
>

/** Another launch that a reason is about. */
export interface RelatedLaunch {
  readonly group: number
  readonly jobName: string
  readonly launch: LaunchFacts
  readonly executions: readonly ExecutionFacts[]
  /** `null` = it has not ended. */
  readonly status: LaunchStatus | null
}

/** The nodes as they are now, for the tags of the job. */
export interface NodeFacts {
  /** Alive nodes that take work and have the tags. */
  readonly matching: number
  /** Names of alive nodes with the tags that take no new work. */
  readonly cordoned: readonly string[]
  /** Nodes with the tags that are not there any more. */
  readonly gone: readonly {readonly name: string; readonly since: number}[]
  /** A tag of some node that is spelt nearly as one that no node has. */
  readonly nearest: {readonly tag: string; readonly nodes: number} | null
}

/** A change of the definition. */
export interface ChangeFacts {
  readonly at: number
  /** Name of the token; `belfry` = Belfry itself. */
  readonly actor: string
  /** `''` = none. */
  readonly address: string
}

/** A span in which the cluster decided nothing. */
export interface ClusterSpan {
  readonly kind: string
  readonly from: number
  /** `null` = it is not over. */
  readonly until: number | null
}

/** Facts around a launch, or around a time that has none. */
export interface Around {
  /** The definition as it is now. */
  readonly spec?: JobSpec | undefined
  /** The launch that the reason names: the open one, the one whose nodes died. */
  readonly related?: RelatedLaunch | undefined
  /** The parent's launch. */
  readonly parent?: RelatedLaunch | undefined
  readonly nodes?: NodeFacts | undefined
  /** The change that disabled or moved the job. */
  readonly change?: ChangeFacts | undefined
  /** The pause of firing that covers it. */
  readonly pause?: FiringPause | undefined
  /** The newer launch that ran instead. */
  readonly instead?: Pick<LaunchFacts, 'group' | 'scheduledAt'> | undefined
  readonly span?: ClusterSpan | undefined
  /** Typical length of a successful launch. */
  readonly typicalMs?: number | undefined
  /** Last line of the output of the last attempt that ended badly. */
  readonly lastLine?: string | undefined
  /** Launches of a job that may wait for a slot. */
  readonly queuedMax?: number | undefined
  /** Fields that the change changed. */
  readonly changed?: readonly string[] | undefined
  /** Names of tokens that cancelled executions, by the id of the execution. */
  readonly cancels?: ReadonlyMap<string, string> | undefined
}

export type Fact =
  string | number | boolean | null | readonly string[] | Readonly<Record<string, string>>

/** A part of an explanation. */
export interface Told {
  readonly sentences: readonly string[]
  /** A sentence that says what to do; absent = nothing. */
  readonly advice?: string
  /** Commands that work when typed. */
  readonly commands?: readonly string[]
  /** Instants end in `_at` and are RFC 3339, lengths end in `_ms`. */
  readonly facts?: Readonly<Record<string, Fact>>
}

/** A launch as it is stored, with its attempts. */
export interface StoredLaunchFacts {
  readonly launch: LaunchRecord
  /** `null` = it has not ended, or its executions are not read. */
  readonly status: LaunchStatus | null
  /** Empty unless it is explained, or open, or named by the reason of the explained one. */
  readonly executions: readonly ExecutionRecord[]
}

/** The subject of an explanation. `at`: a date, a wall time of the job's zone, or an instant. */
export type ExplainSubject =
  | {readonly kind: 'now'}
  | {readonly kind: 'at'; readonly text: string}
  | {readonly kind: 'launch'; readonly group: number}

/** An entry of the audit log about the job. */
export interface AuditedChange extends ChangeFacts {
  /** The definition that it replaced, as stored; `null` = none, or it is long. */
  readonly replaced: string | null
  readonly action: string
  readonly detail: string
}

/** All that is stored about a job around one time, from one snapshot. */
export interface ExplainFacts {
  readonly now: number
  readonly job: JobRecord
  readonly typicalMs: number | null
  /** The parent is disabled: it has no launches for this job to follow, and its times leave no rows here. */
  readonly isParentDisabled: boolean
  readonly settings: LaunchSettings
  /** The store was put back from a backup, and firing is not resumed. */
  readonly isPutBack: boolean
  /** End of the leader's lease; `null` = no server leads. */
  readonly leaseUntil: number | null
  readonly members: readonly MemberRecord[]
  /** Number of launches of the time in question. */
  readonly rowsTotal: number
  /** The one of them to explain; `null` = there is none. */
  readonly chosen: StoredLaunchFacts | null
  /** The end of the output of its last attempt that ended badly; `''` = none. */
  readonly outputEnd: string
  /** The launch of this job or of the parent that the chosen one is about. */
  readonly related: StoredLaunchFacts | null
  /** The launches before and after the time, and the oldest that is kept. */
  readonly before: StoredLaunchFacts | null
  readonly after: StoredLaunchFacts | null
  readonly oldest: StoredLaunchFacts | null
  /** Open launches of the job, oldest first. */
  readonly open: readonly StoredLaunchFacts[]
  /** Newest first. */
  readonly changes: readonly AuditedChange[]
  readonly spans: readonly ClusterSpan[]
}
