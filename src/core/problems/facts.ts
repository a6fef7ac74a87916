/** The facts from which problems are made: rows of what went wrong in a range of time, from one snapshot. */
import type {ClusterEvent} from '../cluster-event.ts'
import type {ExecutionRecord} from '../execution.ts'
import type {Fact} from '../explain/facts.ts'
import type {FiringPause} from '../firing.ts'
import type {JobSpec} from '../job.ts'
import type {LaunchRecord} from '../launch-record.ts'
import type {MemberRecord} from '../node.ts'

/** An attempt of a launch. */
export type AttemptFacts = Pick<
  ExecutionRecord,
  'group' | 'node' | 'attempt' | 'jobId' | 'jobName' | 'status' | 'reason' | 'exitCode'
> & {
  readonly startedAt: number | null
  readonly finishedAt: number | null
  /** Earliest time of its start. */
  readonly notBefore: number
  /** The planned time, or that of the request. */
  readonly scheduledAt: number
}

export interface RunningFacts extends AttemptFacts {
  readonly typicalMs: number | null
}

/** A launch that shows that earlier rows of its job are over. */
export interface LaterLaunch {
  readonly group: number
  readonly scheduledAt: number
  /** When it was launched, or ended. */
  readonly at: number
}

/**
 * Later launches of a job, up to the end of the range: the first one after its newest row that did not run,
 * and the first success after its newest failure; without one, the newest launch and the newest success.
 */
export interface LaterFacts {
  readonly launched: LaterLaunch | null
  readonly success: LaterLaunch | null
}

/** A channel that delivers nothing. */
export interface SilentChannel {
  readonly name: string
  readonly since: number
  readonly error: string
}

export interface ProblemFacts {
  readonly now: number
  /** The range: `to` is `now`, or a time before. */
  readonly from: number
  readonly to: number
  /** The zone of times in sentences. */
  readonly zone: string
  /** The store has more rows than were read. */
  readonly isPartial: boolean
  /** Launches that did not run. Spans of disabled jobs are counted from `from` on. */
  readonly notRun: readonly LaunchRecord[]
  /** Numbers of the rows among them of spans that have not ended. */
  readonly openSpans: ReadonlySet<number>
  /** Launches that ended `failed` or `partially_failed`. */
  readonly failed: readonly LaunchRecord[]
  /** Attempts that ended badly. */
  readonly ends: readonly AttemptFacts[]
  /** How the launches of lost attempts are now, by number. */
  readonly endsOf: ReadonlyMap<number, Pick<LaunchRecord, 'open' | 'status' | 'closedAt'>>
  /** Launches without a decision that have waited for some time, and attempts that have not started. */
  readonly pending: readonly LaunchRecord[]
  readonly queued: readonly AttemptFacts[]
  /** Attempts that run for long, or started late. */
  readonly running: readonly RunningFacts[]
  /** Launches that were decided after a span without decisions, and were planned in it. */
  readonly late: readonly LaunchRecord[]
  /** Jobs whose planned time is due and not decided. */
  readonly due: readonly {readonly jobName: string; readonly at: number}[]
  readonly later: ReadonlyMap<number, LaterFacts>
  /** Definitions of jobs that found no node, or wait for one: the oldest first, the current one last. */
  readonly specs: ReadonlyMap<number, readonly DatedSpec[]>
  /** Newest first; also the term that began before the range. */
  readonly events: readonly ClusterEvent[]
  /** End of the leader's lease; `null` = no server leads. */
  readonly leaseUntil: number | null
  readonly members: readonly MemberRecord[]
  /** Pauses of firing in force. */
  readonly pauses: readonly FiringPause[]
  readonly silentChannels: readonly SilentChannel[]
  /** The history of these jobs is kept from then on; a job that is not named has all of the range. */
  readonly keptFrom: ReadonlyMap<number, number>
}

export interface DatedSpec {
  readonly spec: JobSpec
  /** When it was replaced; `Infinity` = it is the current one. */
  readonly until: number
}

export const PROBLEM_KINDS = [
  'failed',
  'lost',
  'skipped',
  'missed',
  'late',
  'long',
  'waiting',
  'cluster',
] as const
export type ProblemKind = (typeof PROBLEM_KINDS)[number]

/** Rows with one cause. Instants in ms since the epoch. */
export interface Problem {
  /** Identity within a list: equal in each read. */
  readonly key: string
  readonly kind: ProblemKind | 'on_purpose'
  /** Reason of the launches or attempts, or kind of the event. */
  readonly code: string
  readonly cause: Readonly<Record<string, Fact>>
  readonly isOver: boolean
  readonly since: number
  /** `null` = it is not over. */
  readonly until: number | null
  /** The first names; `jobsTotal` counts all. */
  readonly jobs: readonly string[]
  readonly jobsTotal: number
  readonly plannedTimes: number
  /** Numbers, newest first. */
  readonly launches: readonly number[]
  readonly sentence: string
  /** `''` = none. */
  readonly advice: string
  /** The attempt whose output says more; `null` = none. */
  readonly output: Pick<AttemptFacts, 'group' | 'node' | 'attempt' | 'jobName'> | null
}

export interface Problems {
  readonly from: number
  readonly to: number
  readonly isPartial: boolean
  /** The history of all jobs of the problems is complete since then. */
  readonly oldest: number
  /** Number of those that are not over, on all pages. */
  readonly notOver: number
  /** Problems that are not over come first; among them those of the cluster, then by their newest row. */
  readonly problems: readonly Problem[]
  /** Only on the first page. */
  readonly onPurpose: readonly Problem[]
  /** Place of the last problem, if more follow. */
  readonly next: ProblemPlace | null
}

/**
 * Place of a problem in the list, by its newest row: it does not change while rows are added after the end of
 * the range, and the oldest are deleted.
 */
export type ProblemPlace = readonly [isOver: number, isOfJobs: number, before: number, key: string]

export interface ProblemPage {
  /** Only what is not over. */
  readonly open: boolean
  /** Place of the last problem of the page before; `null` = this is the first page. */
  readonly after: readonly (string | number)[] | null
  readonly limit: number
}
