/**
 * The one catalogue of events. Logs, metrics, the event stream and tests are listeners; nothing decides
 * by them. Names are past tense; docs/reference/events.md lists them. Payloads are plain data that may
 * travel (`GET /v1/events`).
 */
import type {ExecutionStatus, FinalStatus} from '../core/execution.ts'
import type {LaunchCause, LaunchDecision} from '../core/launch-record.ts'

export interface EventPayloads {
  job_stored: {job: string; revision: number; created: boolean}
  job_deleted: {job: string}
  job_disabled: {job: string; reason: string}
  launch_decided: {
    job: string
    group: number
    cause: LaunchCause
    decision: LaunchDecision
    reason: string
    scheduled_at: number
    decided_at: number
    /** How many planned times the row stands for. */
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
    /** An attempt that will be followed by a retry. */
    retried: boolean
  }
  /** Its node ends it unasked: cut off from the cluster, or it was given up and may not go on. */
  execution_abandoned: {job: string; execution: string; reason: 'cut_off' | 'not_ours'}
  execution_changed: {job: string; execution: string; status: ExecutionStatus}
  submissions_paused: {paused: boolean}
  term_began: {term: number; node: string}
  term_ended: {term: number; node: string; reason: string}
  member_changed: {node: string; status: string}
  clock_stepped: {by_ms: number}
  launch_pass_done: {due: number; requests: number; duration_ms: number}
  store_committed: {items: number; duration_ms: number}
  step_failed: {step: string; message: string}
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
  /** Called synchronously for every event; must not throw. Returns the function that stops listening. */
  listen(heard: (event: BelfryEvent) => void): () => void
}
