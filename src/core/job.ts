/**
 * What a job is: the spec (what the user wrote, normalised) and the state (what was learnt by running it).
 * The decisions about jobs stand in the files named after the step that makes them.
 */

export type Concurrency = 'allow' | 'forbid'
export type CatchUp = 'latest' | 'skip' | 'all'
export type OnDisconnect = 'keep' | 'stop'
/** `''` = no launch of the job has finished yet. */
export type JobStatus = '' | 'success' | 'failed' | 'partially_failed'

export type StringMap = Readonly<Record<string, string>>

/**
 * What the user wrote, normalised: every field present, `''`/`null` = not set. Instants in ms since the
 * epoch.
 */
export interface JobSpec {
  readonly name: string
  readonly displayname: string
  readonly schedule: string
  /** IANA zone; `''` = the cluster's default zone. */
  readonly timezone: string
  readonly owner: string
  readonly ownerEmail: string
  readonly disabled: boolean
  readonly tags: StringMap
  readonly metadata: StringMap
  readonly retries: number
  /** Name of the job whose success launches this one; `''` = none. A child's own schedule never fires. */
  readonly parentJob: string
  /** In the order of the definition, which is the order they run in. */
  readonly processors: Readonly<Record<string, StringMap>>
  readonly concurrency: Concurrency
  readonly executor: string
  readonly executorConfig: StringMap
  readonly ephemeral: boolean
  readonly startsAt: number | null
  /** Exclusive. */
  readonly expiresAt: number | null
  readonly catchUp: CatchUp
  /** A duration as written, e.g. `24h`. */
  readonly maxLateness: string
  /** `''` = by concurrency: `stop` for `forbid`, else `keep`. */
  readonly onDisconnect: OnDisconnect | ''
}

/**
 * Whether a node that the cluster does not hear of ends its runs of the job: by the job's word, or because it
 * must not overlap with a run elsewhere.
 */
export function endsWhenDisconnected({
  onDisconnect,
  concurrency,
}: Pick<JobSpec, 'onDisconnect' | 'concurrency'>): boolean {
  return onDisconnect === 'stop' || (onDisconnect === '' && concurrency === 'forbid')
}

/** The fold of the finished executions since the last reset or restore. */
export interface JobCounters {
  readonly successCount: number
  readonly errorCount: number
  readonly lastSuccess: number | null
  readonly lastError: number | null
}

/** One stored job. */
export interface JobRecord {
  /** Internal and never re-used: a job deleted and created again under the same name is another job. */
  readonly id: number
  readonly spec: JobSpec
  /** Grows by one with each accepted change of the definition; the `ETag`. */
  readonly revision: number
  /** The next undecided planned time; `null` when nothing is planned. */
  readonly nextAt: number | null
  /** Newest planned time a decision was made about; `next` never goes back to it or before. */
  readonly decidedUntil: number | null
  /** Phase of `@every`: `startsAt`, or the second the schedule was accepted. */
  readonly anchorAt: number
  readonly counters: JobCounters
  readonly status: JobStatus
  readonly createdAt: number
  readonly updatedAt: number
  /** Names of the jobs that name this one as parent, sorted. */
  readonly dependentJobs: readonly string[]
}
