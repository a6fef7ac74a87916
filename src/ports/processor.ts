/**
 * The processor port: handles the output of a run on its node. A processor receives the whole stream, not
 * only the stored tail. Each is a file in `processors/`, a line in its registry and a section in
 * docs/reference/processors.md.
 */
import type {ProcessorTraits} from '../core/access/policy.ts'
import type {StringMap} from '../core/job.ts'
import type {Run} from './executor.ts'

export interface ProcessorRun {
  readonly run: Run
  readonly config: StringMap
}

/** Output of an execution in one processor. If a method rejects, the chain notes it and keeps the output. */
export interface ProcessorStream {
  /** Resolves when the stream accepts more. */
  write(bytes: Uint8Array): Promise<void>
  /**
   * Called when the command has ended. Returns the line stored in place of the output when `forward` is
   * false (for `files` the path), without a newline.
   */
  end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<string>
}

/** Traits say how policies judge its jobs. */
export interface Processor extends ProcessorTraits {
  /** Names of the parameters. */
  readonly parameters: readonly string[]
  /** Problems reject the job (400). Each names the parameter, the cause and the fix. */
  check(config: StringMap): readonly string[]
  open(request: ProcessorRun): Promise<ProcessorStream>
}
