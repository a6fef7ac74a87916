/** Executions, launches and output in JSON: schemas and encoders, and how much output a response carries. */
import {Type, type Static} from 'typebox'
import {executionId, type ExecutionRecord} from '../core/execution.ts'
import {launchStatus} from '../core/finish.ts'
import {CHILDREN_MAX} from '../core/trace.ts'
import type {ExecutionView, LaunchView} from '../ports/history-store.ts'
import {decodeOutput, lastBytes} from './output.ts'
import {OptionalTime, schemaRef, Time, ZERO_TIME} from './shapes.ts'
import {formatOptionalTime, formatTime} from '../lib/rfc3339.ts'

export const EXECUTION_STATUSES = [
  'pending',
  'running',
  'succeeded',
  'failed',
  'timed_out',
  'cancelled',
  'lost',
] as const

const ExitCode = Type.Union([Type.Integer(), Type.Null()], {
  description: 'Exit code of its command; null before the end, and if there is none.',
})

const Status = Type.Enum([...EXECUTION_STATUSES], {description: 'State of the execution.'})

export const Execution = Type.Object(
  {
    id: Type.String({description: '`<group>-<node>-<attempt>`.'}),
    job_name: Type.String({description: 'Name of the job.'}),
    started_at: Time('Time of the claim; `0001-01-01T00:00:00Z` while pending.'),
    finished_at: Time('Time of its end; `0001-01-01T00:00:00Z` until then.'),
    success: Type.Boolean({description: 'Whether it succeeded.'}),
    output: Type.String({
      description:
        'Its output: in lists the last part; of one execution the start, a line that tells how much is ' +
        'not kept, and the last part.',
    }),
    node_name: Type.String({description: 'Name of the node that runs it.'}),
    group: Type.Integer({description: 'Number of its launch.'}),
    attempt: Type.Integer({description: 'Starts at 1; grows with each retry.'}),
    status: Status,
    output_truncated: Type.Boolean({description: 'The execution wrote more than `output` shows.'}),
    output_size: Type.Integer({description: 'Bytes that its command wrote, also those not kept.'}),
    output_omitted: Type.Integer({description: 'Bytes of these that `output` does not show.'}),
    late_result: Type.String({
      description: 'The result that arrived after the execution was `lost`; empty without one.',
    }),
    reason: Type.String({description: 'A code that says more than the status; may be empty.'}),
    exit_code: ExitCode,
    not_before: Type.Optional(Time('Earliest start of a pending retry. Absent otherwise.')),
  },
  {$id: 'Execution', description: 'One attempt of one launch on one node.'},
)
export type ExecutionJson = Static<typeof Execution>

export const Cancelled = Type.Object(
  {
    cancelled: Type.Array(Type.String(), {
      description: 'Ids of the executions whose end was requested.',
    }),
    more: Type.Boolean({description: 'Whether there are more than one request cancels.'}),
  },
  {$id: 'Cancelled', description: 'Executions of a job that end.'},
)
export type CancelledJson = Static<typeof Cancelled>

/** An execution inside of a launch, without its output. */
export const LaunchExecution = Type.Object(
  {
    id: Type.String(),
    node_name: Type.String(),
    attempt: Type.Integer(),
    status: Status,
    success: Type.Boolean(),
    started_at: Time('Zero time while pending.'),
    finished_at: Time('Zero time until it ends.'),
    reason: Type.String({description: 'A code that says more than the status; may be empty.'}),
    exit_code: ExitCode,
    not_before: Type.Optional(Time('Earliest start of a pending retry. Absent otherwise.')),
  },
  {$id: 'LaunchExecution', description: 'An execution of a launch, without its output.'},
)
export type LaunchExecutionJson = Static<typeof LaunchExecution>

/** Stands for bytes that are not kept, on a line of its own. `before` is the text in front of it. */
export function omittedLine(bytes: number, before: string): string {
  return `${before === '' || before.endsWith('\n') ? '' : '\n'}… ${bytes} bytes not kept …\n`
}

/** All text of a view: what Belfry adds, the start, a line for the bytes that are missing, and the end. */
export function outputText(view: ExecutionView): string {
  const {outputHead, outputStart, output, outputFoot} = view
  const tail = decodeOutput(output) + outputFoot
  if (outputStart === undefined || output.length === 0) return outputHead + tail
  const start = outputHead + decodeOutput(outputStart)
  return start + omittedLine(omittedBytes(view), start) + tail
}

/** Bytes of the command's output that the view does not have. */
function omittedBytes({outputBytes, output, outputStart}: ExecutionView): number {
  return Math.max(0, outputBytes - output.length - (outputStart?.length ?? 0))
}

/**
 * Encodes an execution. `outputBytesMax` limits the text; `null` = all that the view holds. A limited text is
 * the end of the output: it includes the head only if nothing between head and tail is missing.
 */
export function encodeExecution(view: ExecutionView, outputBytesMax: number | null): ExecutionJson {
  const written = decodeOutput(view.output) + view.outputFoot
  const {text, cutBytes} =
    outputBytesMax === null
      ? {text: outputText(view), cutBytes: 0}
      : lastBytes(view.outputTruncated ? written : view.outputHead + written, outputBytesMax)
  return {
    id: executionId(view),
    job_name: view.jobName,
    started_at: timeOrZero(view.startedAt),
    finished_at: timeOrZero(view.finishedAt),
    success: view.status === 'succeeded',
    output: text,
    node_name: view.node,
    group: view.group,
    attempt: view.attempt,
    status: view.status,
    output_truncated: view.outputTruncated || cutBytes > 0,
    output_size: view.outputBytes,
    output_omitted: Math.min(view.outputBytes, omittedBytes(view) + cutBytes),
    late_result: view.lateResult,
    reason: view.reason,
    exit_code: view.exitCode,
    ...retryTime(view),
  }
}

export function encodeLaunchExecution(record: ExecutionRecord): LaunchExecutionJson {
  return {
    id: executionId(record),
    node_name: record.node,
    attempt: record.attempt,
    status: record.status,
    success: record.status === 'succeeded',
    started_at: timeOrZero(record.startedAt),
    finished_at: timeOrZero(record.finishedAt),
    reason: record.reason,
    exit_code: record.exitCode,
    ...retryTime(record),
  }
}

/** The backoff of a retry that waits. A release or a move sets `notBefore` of first attempts too. */
function retryTime(record: ExecutionRecord): {not_before?: string} {
  const {status, attempt, notBefore} = record
  const waits = status === 'pending' && attempt > 1
  return waits ? {not_before: formatTime(notBefore)} : {}
}

function timeOrZero(at: number | null): string {
  return at === null ? ZERO_TIME : formatTime(at)
}

export const LAUNCH_DECISIONS = ['pending', 'launched', 'skipped', 'missed'] as const

export const LAUNCH_ENDS = ['success', 'failed', 'partially_failed', 'cancelled'] as const

export const LaunchEnd = Type.Enum(['', ...LAUNCH_ENDS], {
  description:
    'How it ended, by the last attempt on each node; `cancelled`: all that did not succeed were cancelled. ' +
    'Empty before the end, and if nothing was launched.',
})

export const Launch = Type.Object(
  {
    group: Type.Integer({description: 'The launch number.'}),
    job_name: Type.String({description: 'Name of the job.'}),
    scheduled_at: Time('The planned time; for a request, the time of the request.'),
    scheduled_until: Time('The last planned time that this row covers.'),
    count: Type.Integer({description: 'How many planned times this row covers.'}),
    decided_at: OptionalTime('When the leader decided.'),
    cause: Type.Enum(['schedule', 'manual', 'create', 'parent'], {
      description: 'What requested the launch.',
    }),
    decision: Type.Enum([...LAUNCH_DECISIONS], {description: 'The decision of the leader.'}),
    reason: Type.String({description: 'A code, optionally followed by a colon and a sentence.'}),
    status: LaunchEnd,
    ended_at: Type.Optional(Time('When it ended. Absent before the end.')),
    term: Type.Union([Type.Integer(), Type.Null()], {
      description: 'Term of the leader that decided.',
    }),
    executions: Type.Array(schemaRef(LaunchExecution), {description: 'Its executions.'}),
    parent: Type.Optional(
      Type.Object(
        {job: Type.String(), group: Type.Integer(), status: LaunchEnd},
        {description: 'The launch whose end requested it. Absent without one.'},
      ),
    ),
    root: Type.Optional(
      Type.Integer({description: 'The launch that began the chain. Absent if it is this one.'}),
    ),
    children: Type.Optional(
      Type.Array(
        Type.Object({
          job: Type.String(),
          group: Type.Integer(),
          decision: Type.Enum([...LAUNCH_DECISIONS]),
          status: LaunchEnd,
        }),
        {
          description:
            `Launches of its dependents, at most ${CHILDREN_MAX}. Absent without any. Jobs that the caller ` +
            'may not read are left out.',
        },
      ),
    ),
  },
  {
    $id: 'Launch',
    description: 'A launch: the decision for one or more planned times, or for a request.',
  },
)
export type LaunchJson = Static<typeof Launch>

export function encodeLaunch(launch: LaunchView): LaunchJson {
  const {executions, parent, children} = launch
  // A launch that an earlier release closed has no status of its own.
  const status = launch.status ?? (executions.length === 0 ? null : launchStatus(executions))
  const ends = executions.flatMap(({finishedAt}) => (finishedAt === null ? [] : [finishedAt]))
  const endedAt = launch.closedAt ?? (status === null ? null : Math.max(...ends))
  return {
    group: launch.group,
    job_name: launch.jobName,
    scheduled_at: formatTime(launch.scheduledAt),
    scheduled_until: formatTime(launch.scheduledUntil),
    count: launch.count,
    decided_at: formatOptionalTime(launch.decidedAt),
    cause: launch.cause,
    decision: launch.decision,
    reason: launch.reason,
    status: status ?? '',
    ...(endedAt === null ? {} : {ended_at: formatTime(endedAt)}),
    term: launch.term,
    executions: executions.map(encodeLaunchExecution),
    ...(parent === null
      ? {}
      : {parent: {job: parent.jobName, group: parent.group, status: parent.status ?? ''}}),
    ...(launch.rootGroup === null ? {} : {root: launch.rootGroup}),
    ...(children.length === 0
      ? {}
      : {
          children: children.map(({jobName, group, decision, status: end}) => {
            return {job: jobName, group, decision, status: end ?? ''}
          }),
        }),
  }
}
