/** The store's part for definitions: storing, changing, restoring and reading jobs, and asking for runs. */
import type {JobCounters, JobRecord, JobSpec} from '../core/job.ts'
import type {Order, Page, Slice} from './page.ts'

/** Makes a repeated call answer what the first one did. Unique by (scope, key), kept 24 h. */
export interface Idempotency {
  readonly key: string
  /** Who asked (token name) and for what; the same key of another caller is another key. */
  readonly scope: string
  /** Digest of the request; the same key with another one is a mismatch. */
  readonly fingerprint: string
}

/**
 * Revisions one of which must be the stored one; `'*'` = any, but the job must exist; `null` = no condition.
 * Looked at in the transaction that makes the change.
 */
export type RevisionMatch = readonly number[] | '*' | null

/** The condition did not hold and nothing was changed; `revision` is the stored one, `null` = no such job. */
export interface PreconditionFailed {
  readonly kind: 'precondition'
  readonly revision: number | null
}

export interface SubmitRequest {
  readonly spec: JobSpec
  readonly ifMatch: RevisionMatch
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
  | PreconditionFailed
  | {readonly kind: 'idempotency_mismatch'}

export type ToggleResult =
  | {readonly kind: 'toggled'; readonly job: JobRecord}
  | {readonly kind: 'unknown'}
  | PreconditionFailed

export type DeleteResult =
  | {readonly kind: 'deleted'; readonly job: JobRecord}
  | {readonly kind: 'unknown'}
  | {readonly kind: 'dependents'; readonly names: readonly string[]}
  | PreconditionFailed

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
  /**
   * `forbid` and a launch of the job is open; `null` = none of its own, but processes of a deleted job of its
   * name still end. Advice: the leader decides again.
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

/** A metadata filter: an exact pair, or a text that matches a key or a value. All must match. */
export type MetadataFilter =
  {readonly key: string; readonly value: string} | {readonly either: string}

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

export interface JobStore {
  submit(request: SubmitRequest): Promise<SubmitResult>
  /** What a submit under this key was answered within 24 h, a mismatch, or `null` when the key is new. */
  earlierSubmit(idempotency: Idempotency): Promise<SubmitResult | null>
  /**
   * All or nothing; parents may stand anywhere in the list. `disabled` imports every job disabled.
   * Never plans the past.
   */
  restore(
    entries: readonly RestoreEntry[],
    options: {readonly disabled: boolean},
  ): Promise<RestoreResult>
  /** Flips `disabled`. A due undecided time it moves past is recorded `missed` with reason `disabled`. */
  toggle(name: string, ifMatch?: RevisionMatch): Promise<ToggleResult>
  deleteJob(name: string, ifMatch?: RevisionMatch): Promise<DeleteResult>
  /** Stores a request to run (cause `manual`); the launch number is taken here. */
  requestRun(request: RunRequest): Promise<RunResult>
  /** As `earlierSubmit`, for requests to run. */
  earlierRun(idempotency: Idempotency): Promise<RunResult | null>
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
