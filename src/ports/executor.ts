/**
 * The executor port: runs the work of a job. Each executor is a file in `executors/`, a line in its
 * registry and a section in docs/reference/executors.md. `start` never throws and never loses a result:
 * every error is a `failed` end with its cause.
 */
import type {ExecutorTraits} from '../core/access/policy.ts'
import type {StringMap} from '../core/job.ts'

/** The execution that an executor starts. Instants in ms since the epoch. */
export interface Run {
  /** `<group>-<node>-<attempt>` */
  readonly executionId: string
  readonly jobName: string
  readonly nodeName: string
  readonly attempt: number
  readonly scheduledAt: number
  /**
   * Checked at submit, but possibly by another version: check again, and end `failed` with a sentence if
   * invalid.
   */
  readonly config: StringMap
  /**
   * Values of the secrets that `config` names. The executor puts them in place after it has parsed
   * `config`: a value is never parsed. Absent = it names none.
   */
  readonly secrets?: StringMap
}

/** Receives the output in the order written, with backpressure. */
export interface OutputSink {
  /**
   * `false` = stop reading from the source until the callback of `drained` runs. This bounds memory for any
   * amount of output. The sink owns `bytes` afterwards.
   */
  write(bytes: Uint8Array): boolean
  /** Allows one pending callback at a time. */
  drained(callback: () => void): void
}

export interface RunEnd {
  readonly outcome: 'succeeded' | 'failed' | 'timed_out' | 'cancelled'
  readonly exitCode: number | null
  /** Shown before the output, e.g. `exit status 3\n`; `''` = none. */
  readonly head: string
  /** Shown after the output, e.g. `timed out after 5s\n`; `''` = none. */
  readonly foot: string
  /** A code that says more than the outcome, such as `command_not_found`; absent = none. */
  readonly reason?: string
  /** Time from the actual start to this end. Absent = it started with the call of `start`. */
  readonly ranMs?: number
}

export interface RunHandle {
  /** Ends the work with its whole process tree: TERM, then KILL after 10 s. Idempotent. */
  cancel(): void
  /** KILL at once. Idempotent. */
  kill(): void
  /** Settles exactly once, after the last byte reached the sink. Never rejects. */
  readonly ended: Promise<RunEnd>
}

/** Policies judge jobs by the traits of their executor. */
export interface Executor extends ExecutorTraits {
  /** The default of each parameter, as text; `''` = none. */
  readonly parameters: StringMap
  /** Parameters that may name secrets, as `${secret:NAME}`; absent = none. */
  readonly secretParameters?: readonly string[]
  /**
   * Validates parameters at submit. `problems` reject the job (400): each names the parameter, the cause and
   * the fix. `warnings` accept a job that will fail as it is (a shell job without `command`).
   */
  check(config: StringMap): {
    readonly problems: readonly string[]
    readonly warnings: readonly string[]
  }
  start(run: Run, output: OutputSink): RunHandle
}
