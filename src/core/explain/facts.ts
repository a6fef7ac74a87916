/**
 * The facts from which sentences are made: plain data. An absent fact is not known, or the caller may not
 * read it; then the sentence is shorter.
 */
import type {ExecutionRecord} from '../execution.ts'
import type {FiringPause} from '../firing.ts'
import type {JobSpec} from '../job.ts'
import type {LaunchRecord} from '../launch-record.ts'

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

/** How a launch ended; `''` = it has not. */
export type LaunchEnd = '' | 'success' | 'failed' | 'partially_failed' | 'cancelled'

/** Another launch that a reason is about. */
export interface RelatedLaunch {
  readonly group: number
  readonly jobName: string
  readonly launch: LaunchFacts
  readonly executions: readonly ExecutionFacts[]
  readonly status: LaunchEnd
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
  readonly spec?: JobSpec
  /** The launch that the reason names: the open one, the one whose nodes died. */
  readonly related?: RelatedLaunch
  /** The parent's launch. */
  readonly parent?: RelatedLaunch
  readonly nodes?: NodeFacts
  /** The change that disabled or moved the job. */
  readonly change?: ChangeFacts
  /** The pause of firing that covers it. */
  readonly pause?: FiringPause
  /** The newer launch that ran instead. */
  readonly instead?: Pick<LaunchFacts, 'group' | 'scheduledAt'>
  readonly span?: ClusterSpan
  /** Typical length of a successful launch. */
  readonly typicalMs?: number
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
