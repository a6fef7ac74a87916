/** Job definitions: submitting, changing, restoring and reading jobs, and requesting runs. */
import type {Actor} from '../core/audit.ts'
import type {NameFilter} from '../core/access/authorization.ts'
import type {FiringPause, PauseEnd} from '../core/firing.ts'
import type {StorePermission} from '../core/access/job-permission.ts'
import type {JobCounters, JobRecord, JobSpec, JobStatus, ShownJob} from '../core/job.ts'
import type {RestoreProblem} from '../core/parents.ts'
import type {PreconditionFailed, RevisionMatch, Submission, SubmitRefusal} from '../core/submit.ts'
import type {Order, Page, Slice} from './page.ts'

/** A repeated request returns the result of the first one. Unique by (scope, key), kept for 24 h. */
export interface Idempotency {
  readonly key: string
  /** Principal and kind of request: equal keys in different scopes are different keys. */
  readonly scope: string
  /** Digest of the request; the same key with another digest is a mismatch. */
  readonly fingerprint: string
}

export interface SubmitRequest extends Submission {
  /** Requests a run with cause `create` in the same transaction. */
  readonly runOnCreate: boolean
  readonly idempotency: Idempotency | null
}

export type SubmitResult =
  | {
      readonly kind: 'stored'
      readonly job: JobRecord
      readonly created: boolean
      /** False: the stored definition was equal, and nothing was written. */
      readonly changed: boolean
      /** Launch number of the run on create; `null` = none was requested. */
      readonly group: number | null
    }
  | {readonly kind: 'paused'}
  | {readonly kind: 'idempotency_mismatch'}
  | SubmitRefusal

/** Result that a submit would have now. Nothing is stored. */
export interface SubmitPreview {
  readonly paused: boolean
  readonly created: boolean
  readonly changed: boolean
  /** Anchor of the definition, if it was stored now. */
  readonly anchorAt: number
  readonly nextAt: number | null
  /** Why it would not be stored; `null` = it would. */
  readonly refusal: SubmitRefusal | null
}

export type ToggleResult =
  | {readonly kind: 'toggled' | 'unchanged'; readonly job: JobRecord}
  | {readonly kind: 'unknown'}
  | PreconditionFailed

export type DeleteResult =
  | {readonly kind: 'deleted'; readonly job: JobRecord}
  | {readonly kind: 'unknown'}
  | {readonly kind: 'dependents'; readonly names: readonly string[]}
  | PreconditionFailed

export interface RestoreEntry {
  readonly spec: JobSpec
  /** Ignored for jobs that exist already. */
  readonly counters: JobCounters
  /** Ignored for jobs that exist already; absent = never finished. */
  readonly status?: JobStatus
  /** Changes that the caller may make to this job; absent = both. */
  readonly may?: StorePermission
}

export interface RestoreOptions {
  /** Disables every job. */
  readonly disabled: boolean
  /** See `Submission`. */
  readonly defaultOwner?: string
  /** Absent = Belfry itself, here and below. */
  readonly actor?: Actor
}

export type RestoreResult =
  /** `lines`: one an entry, in their order. */
  | {
      readonly kind: 'restored'
      readonly lines: readonly {readonly name: string; readonly created: boolean}[]
    }
  | {readonly kind: 'refused'; readonly problems: readonly RestoreProblem[]}
  | {
      readonly kind: 'not_allowed'
      readonly names: readonly {readonly name: string; readonly capability: 'create' | 'update'}[]
    }
  | {readonly kind: 'paused'}

export interface RunRequest {
  readonly name: string
  readonly forced: boolean
  readonly idempotency: Idempotency | null
  readonly actor?: Actor
}

export type RunResult =
  | {readonly kind: 'accepted'; readonly job: JobRecord; readonly group: number}
  | {readonly kind: 'unknown'}
  /**
   * Concurrency is `forbid` and a launch of the job is open. `null`: no launch of its own, but processes of a
   * deleted job with the same name are still ending. Advisory: the leader decides again at launch.
   */
  | {readonly kind: 'forbidden'; readonly openGroup: number | null}
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

/** An exact pair, or a text that matches a key or a value. A job must match all filters. */
export type MetadataFilter =
  {readonly key: string; readonly value: string} | {readonly either: string}

export interface JobQuery extends Slice {
  readonly metadata: readonly MetadataFilter[]
  /** Case-insensitive substring of name or displayname; `''` = all. */
  readonly text: string
  readonly status: 'success' | 'failed' | 'partially_failed' | 'untriggered' | null
  readonly disabled: boolean | null
  /** Which jobs; absent = all. */
  readonly names?: NameFilter
  /** Ties are sorted by name, ascending. Unset times come first in ascending order. */
  readonly sort: JobSort
  readonly order: Order
}

export interface JobStore {
  submit(request: SubmitRequest): Promise<SubmitResult>
  /** Says what `submit` would do with this request. */
  previewSubmit(request: SubmitRequest): Promise<SubmitPreview>
  /** Result of the submit that used this key in the last 24 h, or a mismatch; `null` = the key is new. */
  earlierSubmit(idempotency: Idempotency): Promise<SubmitResult | null>
  /**
   * Creates or changes all jobs, or none. Parents may be anywhere in the list. Planned times before now are
   * not launched.
   */
  restore(entries: readonly RestoreEntry[], options: RestoreOptions): Promise<RestoreResult>
  /**
   * Sets `disabled`, or flips it when `disabled` is absent. A due planned time without decision is recorded
   * `missed` with reason `disabled`.
   */
  toggle(
    name: string,
    ifMatch?: RevisionMatch,
    actor?: Actor,
    disabled?: boolean,
  ): Promise<ToggleResult>
  /**
   * Soft delete: pending executions and requests are deleted, running executions are flagged for their nodes
   * to end.
   */
  deleteJob(name: string, ifMatch?: RevisionMatch, actor?: Actor): Promise<DeleteResult>
  /** Stores a request to run (cause `manual`) under a new launch number; the leader decides it. */
  requestRun(request: RunRequest): Promise<RunResult>
  /** The same as `earlierSubmit`, for `requestRun`. */
  earlierRun(idempotency: Idempotency): Promise<RunResult | null>
  /**
   * Deletes finished executions and resets counters and status. Open launches and daily statistics stay.
   * `null` = no such job.
   */
  resetHistory(name: string, actor?: Actor): Promise<JobRecord | null>
  job(name: string): Promise<ShownJob | null>
  jobs(query: JobQuery): Promise<Page<ShownJob>>
  /** True: submissions are rejected in the whole cluster. */
  submissionsPaused(): Promise<boolean>
  setPaused(paused: boolean, actor?: Actor): Promise<void>
  /** Why no planned time is decided; `null` = planned times are decided. */
  pausedSinceRestore(): Promise<PausedSinceRestore | null>
  /**
   * Plans a page of jobs from now on while firing is paused, and records the times before now as missed; the
   * last page ends the pause. Returns the cursor of the next page; `null` = firing is not paused. Idempotent.
   */
  resumeFiring(request: {
    readonly after: number
    readonly limit: number
    readonly actor?: Actor
  }): Promise<number | null>
  /** The zone of jobs that name none. */
  defaultTimezone(): Promise<string>
  /** Returns the zone before. The leader plans the jobs that name none, before it decides further ones. */
  setTimezone(zone: string, actor?: Actor): Promise<string>
  /** The pauses in force, sorted by glob. */
  firingPauses(): Promise<readonly FiringPause[]>
  /**
   * Pauses planned times of matching jobs from the commit on, on all servers. Replaces a pause of the same
   * glob.
   */
  pauseFiring(request: PauseRequest): Promise<PauseResult>
  /** Ends the pause of this glob; its planned times until now stay skipped. `null` = there is none. */
  endFiringPause(jobs: string, actor?: Actor): Promise<FiringPause | null>
}

export interface PauseRequest {
  readonly jobs: string
  readonly reason: string
  /** The store's clock counts. */
  readonly until: PauseEnd
  readonly actor?: Actor
}

export type PauseResult =
  | {readonly kind: 'paused'; readonly pause: FiringPause}
  /** `until` has passed. */
  | {readonly kind: 'past'; readonly now: number}
  /** The store has `PAUSES_MAX` pauses. */
  | {readonly kind: 'full'}

/**
 * `restored`: from a backup by `restore-store`. `put_back`: its file was copied, or its database restored.
 */
export type PausedSinceRestore = 'restored' | 'put_back'
