/**
 * What runs a job's work. One file in `executors/` each, one line in its registry, one section in
 * docs/reference/executors.md. An executor never throws out of `start` and never loses a result: an error
 * becomes a `failed` end that says why.
 */
import type {StringMap} from '../core/job.ts'

/** One parameter, for documentation, `GET /v1/executors`-like listings and forms. */
export interface Parameter {
  readonly name: string
  readonly summary: string
  readonly required: boolean
  /** As text, `''` when there is none. */
  readonly fallback: string
}

/** What an executor is told about the execution it starts. Instants in ms since the epoch. */
export interface Run {
  /** `<group>-<node>-<attempt>` */
  readonly executionId: string
  readonly jobName: string
  readonly nodeName: string
  readonly attempt: number
  readonly scheduledAt: number
  /**
   * Already checked at submit, but written by another version perhaps: check again, end `failed` with a
   * sentence.
   */
  readonly config: StringMap
}

/** Where the output goes, in the order written. */
export interface OutputSink {
  /**
   * `false` asks the executor to stop reading from the source until `drained` is called, so that memory stays
   * bounded whatever the command prints. `bytes` belongs to the sink afterwards.
   */
  write(bytes: Uint8Array): boolean
  /** At most one waiting callback at a time. */
  drained(callback: () => void): void
}

export interface RunEnd {
  readonly outcome: 'succeeded' | 'failed' | 'timed_out' | 'cancelled'
  readonly exitCode: number | null
  /** Shown before the output, e.g. `exit status 3\n`; `''` = nothing. */
  readonly head: string
  /** Shown after the output, e.g. `timed out after 5s\n`; `''` = nothing. */
  readonly foot: string
}

export interface RunHandle {
  /** Ends the work, the whole process tree of it: TERM, then KILL after 10 s. Idempotent. */
  cancel(): void
  /** KILL at once. Idempotent. */
  kill(): void
  /** Settles exactly once, after the last byte reached the sink. Never rejects. */
  readonly ended: Promise<RunEnd>
}

export interface Executor {
  readonly name: string
  readonly parameters: readonly Parameter[]
  /**
   * Judges parameters at submit. `problems` refuse the job (400): each names the parameter, what is
   * wrong and the fix. `warnings` are stored jobs that will fail as they stand (a shell job without
   * `command`).
   */
  check(config: StringMap): {
    readonly problems: readonly string[]
    readonly warnings: readonly string[]
  }
  start(run: Run, output: OutputSink): RunHandle
}
