/** An execution as it travels, and how much of its output goes with it. */
import Type, {type Static} from 'typebox'
import {executionId, type ExecutionRecord} from '../core/execution.ts'
import {decodeOutput, lastBytes} from './output.ts'
import {Time} from './shapes.ts'
import {ZERO_TIME, formatTime} from './time.ts'

export const EXECUTION_STATUSES = [
  'pending',
  'running',
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
  'lost',
] as const

const Status = Type.Enum([...EXECUTION_STATUSES], {description: 'Where the execution stands.'})

export const Execution = Type.Object(
  {
    id: Type.String({description: '`<group>-<node>-<attempt>`.'}),
    job_name: Type.String({description: 'Name of the job.'}),
    started_at: Time('Time of the claim; `0001-01-01T00:00:00Z` while pending.'),
    finished_at: Time('When it ended; `0001-01-01T00:00:00Z` until then.'),
    success: Type.Boolean({description: 'Whether it succeeded.'}),
    output: Type.String({description: 'The last part of what it wrote.'}),
    node_name: Type.String({description: 'Name of the node that runs it.'}),
    group: Type.Integer({description: 'Number of the launch it belongs to.'}),
    attempt: Type.Integer({description: 'Starts at 1; grows with each retry.'}),
    status: Status,
    output_truncated: Type.Boolean({description: 'More was written than `output` shows.'}),
    late_result: Type.String({
      description: 'The result that came after it had become `lost`; empty when none did.',
    }),
  },
  {$id: 'Execution', description: 'One attempt of one launch on one node.'},
)
export type ExecutionJson = Static<typeof Execution>

/** An execution inside of a launch: without its output. */
export const LaunchExecution = Type.Object(
  {
    id: Type.String(),
    node_name: Type.String(),
    attempt: Type.Integer(),
    status: Status,
    success: Type.Boolean(),
    started_at: Time('Zero time while pending.'),
    finished_at: Time('Zero time until it ended.'),
  },
  {$id: 'LaunchExecution', description: 'An execution of a launch, without its output.'},
)
export type LaunchExecutionJson = Static<typeof LaunchExecution>

/** What encoding needs beside the record: the kept tail. The store's `ExecutionView` fits. */
export interface ExecutionWithOutput extends ExecutionRecord {
  readonly output: Uint8Array
  readonly outputTruncated: boolean
}

/**
 * `outputBytesMax` = the caller's own limit on the text, `null` = all that the view holds. Under a limit the
 * text is the very end of what was written, so the head is part of it only when nothing is missing in
 * between.
 */
export function encodeExecution(
  view: ExecutionWithOutput,
  outputBytesMax: number | null,
): ExecutionJson {
  const written = decodeOutput(view.output) + view.outputFoot
  const {text, cut} =
    outputBytesMax === null
      ? {text: view.outputHead + written, cut: false}
      : lastBytes(view.outputTruncated ? written : view.outputHead + written, outputBytesMax)
  return {
    id: executionId(view),
    job_name: view.jobName,
    started_at: reached(view.startedAt),
    finished_at: reached(view.finishedAt),
    success: view.status === 'succeeded',
    output: text,
    node_name: view.node,
    group: view.group,
    attempt: view.attempt,
    status: view.status,
    output_truncated: view.outputTruncated || cut,
    late_result: view.lateResult,
  }
}

export function encodeLaunchExecution(record: ExecutionRecord): LaunchExecutionJson {
  return {
    id: executionId(record),
    node_name: record.node,
    attempt: record.attempt,
    status: record.status,
    success: record.status === 'succeeded',
    started_at: reached(record.startedAt),
    finished_at: reached(record.finishedAt),
  }
}

function reached(at: number | null): string {
  return at === null ? ZERO_TIME : formatTime(at)
}
