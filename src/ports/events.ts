/**
 * The catalogue of events. Logs, metrics, the event stream and tests subscribe; no decision depends on an
 * event. Names are past tense and documented in docs/reference/events.md. Payloads are plain data, because
 * `GET /v1/events` sends them.
 */
import type {ExecutionStatus, FinalStatus} from '../core/execution.ts'
import type {LaunchCause, LaunchDecision} from '../core/launch-record.ts'
import type {Scheduling} from '../core/node.ts'
import type {Step} from '../core/steps.ts'

export interface EventPayloads {
  job_stored: {job: string; revision: number; created: boolean}
  job_deleted: {job: string}
  job_disabled: {job: string; reason: string}
  /** The leader cannot decide this job; it decides the others. Once for each job, revision and term. */
  job_undecided: {job: string; reason: string}
  launch_decided: {
    job: string
    group: number
    cause: LaunchCause
    decision: LaunchDecision
    reason: string
    scheduled_at: number
    decided_at: number
    /** Number of planned times that the row covers. */
    count: number
  }
  execution_started: {job: string; execution: string; node: string; attempt: number}
  execution_output: {job: string; execution: string; total_bytes: number}
  execution_finished: {
    job: string
    execution: string
    node: string
    status: FinalStatus
    attempt: number
    duration_ms: number
    /** A retry follows this attempt. */
    retried: boolean
  }
  /** The node ends a run by itself: it is disconnected from the cluster, or its claim was revoked. */
  execution_abandoned: {job: string; execution: string; reason: 'disconnected' | 'claim_revoked'}
  execution_changed: {job: string; execution: string; status: ExecutionStatus}
  submissions_paused: {paused: boolean}
  timezone_changed: {timezone: string; was: string}
  /** `jobs`: glob over names. `until`: RFC 3339, or `''` = until it is ended. */
  firing_paused: {jobs: string; until: string; reason: string}
  /** `by`: a caller, or the end of the pause. */
  firing_resumed: {jobs: string; by: 'request' | 'until'}
  term_began: {term: number; node: string}
  term_ended: {term: number; node: string; reason: string}
  member_changed: {node: string; status: string}
  /** A caller has cordoned, drained or uncordoned a node. */
  scheduling_changed: {node: string; scheduling: Scheduling}
  clock_stepped: {by_ms: number}
  /** How far the clock of this machine is ahead of the store's; negative = behind. */
  clock_differs: {by_ms: number}
  /** The leader decides nothing beyond the time before a step of the store's clock, for this long. */
  clock_held: {by_ms: number; for_ms: number}
  /** Emitted at the start of a term: `jobs` do not fire before `until`, or an earlier time in the future. */
  clock_was_wrong: {jobs: number; until: number}
  /** A scheduled backup is complete and was checked. `file`: path on this server. */
  backup_made: {file: string; bytes: number; duration_ms: number}
  /** A scheduled backup was not made; it is tried again. */
  backup_failed: {message: string}
  launch_pass_done: {due: number; requests: number; duration_ms: number}
  store_committed: {items: number; duration_ms: number}
  /** `setting`: the flag of the certificate. Negative `days_left` = it has expired. */
  certificate_expires: {setting: string; expires_at: number; days_left: number}
  /** `changed`: names of the settings, separated by commas. */
  settings_reloaded: {changed: string}
  /** The settings stay as they are. */
  reload_failed: {message: string}
  step_failed: {step: Step; message: string}
}

export type EventName = keyof EventPayloads
export type BelfryEvent = {
  [Name in EventName]: {
    readonly name: Name
    readonly at: number
    readonly data: EventPayloads[Name]
  }
}[EventName]

export interface Events {
  emit<Name extends EventName>(name: Name, data: EventPayloads[Name]): void
  /** Calls `listener` synchronously for every event; it must not throw. Returns the unsubscribe function. */
  listen(listener: (event: BelfryEvent) => void): () => void
}
