/**
 * What is done with a run's output where it ran. A processor sees the whole stream, not only the kept
 * tail. One file in `processors/` each, one line in its registry, one section in
 * docs/reference/processors.md.
 */
import type {StringMap} from '../core/job.ts'
import type {OutputSink, Parameter, Run} from './executor.ts'

export interface ProcessorRun {
  readonly run: Run
  readonly config: StringMap
}

/**
 * One execution's passage through one processor. Every method may reject; the chain notes it and keeps
 * the output.
 */
export interface ProcessorStream {
  /** Resolves when more may come. */
  write(bytes: Uint8Array): Promise<void>
  /**
   * The command ended. Answers the one line that is stored in place of the output when `forward` is
   * false (for `files` the path), without a newline.
   */
  end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<string>
}

export interface Processor {
  readonly name: string
  readonly parameters: readonly Parameter[]
  /** Problems refuse the job (400), each naming the parameter, what is wrong and the fix. */
  check(config: StringMap): readonly string[]
  open(request: ProcessorRun): Promise<ProcessorStream>
}

/** What became of the output after the command ended. */
export interface ChainEnd {
  /**
   * A processor took the output elsewhere: the line stored in its place, without a newline; `null` = it
   * is kept.
   */
  readonly line: string | null
  /** What went wrong on the way, whole lines; `''` = nothing. Shown after the output. */
  readonly foot: string
}

/** One execution's output on its way through its processors, in the order of the definition. */
export interface OutputChain extends OutputSink {
  /** Called once, after the last write. Never rejects. */
  end(end: {readonly outcome: string; readonly exitCode: number | null}): Promise<ChainEnd>
}

/**
 * Opens the chain of one execution; `keep` receives what is to be stored. Never throws: what fails is
 * noted at the end.
 */
export type OpenChain = (
  processors: Readonly<Record<string, StringMap>>,
  run: Run,
  keep: OutputSink,
) => OutputChain
