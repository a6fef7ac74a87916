/** Launches and executions of all jobs in JSON: filters, pages, and the chain of a launch. */
import {type Static, Type} from 'typebox'
import {endCause} from '../core/explain/executions.ts'
import {LAUNCH_CAUSES} from '../core/launch-record.ts'
import {REASON_ROWS} from '../core/launch-reasons.ts'
import {type Trace as TraceRecord, type TracedLaunch, TRACE_MAX} from '../core/trace.ts'
import {parseLength} from '../lib/duration.ts'
import {formatTime} from '../lib/rfc3339.ts'
import {Execution, Launch, LAUNCH_DECISIONS, LAUNCH_ENDS, LaunchEnd} from './execution.ts'
import {
  EXECUTION_FILTERS,
  KeysetQuery,
  type Query,
  QueryProblem,
  readKeyset,
  readMetadataFilters,
  readOutputLimit,
  readTime,
  shortened,
} from './query.ts'
import {schemaRef, Time} from './shapes.ts'

const REASONS = REASON_ROWS.map(([code]) => code)
/** Ends of launches and of executions that an index finds by their time. */
const BAD_LAUNCH_ENDS = ['failed', 'partially_failed'] as const
const BAD_ENDS = ['failed', 'timed_out', 'lost', 'cancelled'] as const

const Text = (description: string) => Type.Optional(Type.String({description}))
const When = (description: string) => Type.Optional(Time(description))

const FILTERS = {
  job: Text('Only of this job; `*` is any text.'),
  node: Text('Only on the node of this name.'),
}

const EndedSince = (ends: readonly string[]) =>
  When(
    `Only what ended then or later, the latest end first. Needs \`status\` ${ends.join(' or ')}.`,
  )

export const LaunchListQuery = Type.Object({
  since: When(
    'Only what was recorded then or later. With `decision` `skipped` or `missed`: whose last planned time ' +
      'was decided then or later.',
  ),
  until: When('Only what was recorded before.'),
  decision: Type.Optional(
    Type.Enum([...LAUNCH_DECISIONS], {
      description:
        'Only with this decision. `skipped` and `missed` are in the order of their last decision.',
    }),
  ),
  reason: Type.Optional(
    Type.Enum([...REASONS], {description: '[The code of the reason](jobs.md#launch-history).'}),
  ),
  cause: Type.Optional(Type.Enum([...LAUNCH_CAUSES], {description: 'Only with this cause.'})),
  ...FILTERS,
  metadata: Type.Optional(
    Type.Array(Type.String(), {
      description: 'Of the job, as `metadata[key]=value` or `key:value`; all must match.',
    }),
  ),
  status: Type.Optional(
    Type.Enum([...LAUNCH_ENDS], {
      description: 'Only launches that ended so, since schema 6.',
    }),
  ),
  ended_since: EndedSince(BAD_LAUNCH_ENDS),
  ...KeysetQuery,
})

export const AllExecutionsQuery = Type.Object({
  since: When('Only of launches that were recorded then or later.'),
  until: When('Only of launches that were recorded before.'),
  status: Type.Optional(
    Type.Enum([...EXECUTION_FILTERS], {
      description: 'Only executions in this state; without it all but `pending`.',
    }),
  ),
  ...FILTERS,
  reason: Text('Only with this reason code.'),
  exit_code: Type.Optional(Type.Integer({description: 'Only with this exit code.'})),
  min_duration: Text('Only those that took, or have run, this long, such as `10m`.'),
  ended_since: EndedSince(BAD_ENDS),
  output_size_limit: Type.Optional(
    Type.Integer({
      minimum: 0,
      description:
        'Bytes of output for each execution; without it none. All together are at most 32 MiB.',
    }),
  ),
  ...KeysetQuery,
})

const Next = Type.Union([Type.String(), Type.Null()], {
  description: '`after` of the next page, also of a short one; `null` = this is the last.',
})

export const LaunchList = Type.Object(
  {launches: Type.Array(schemaRef(Launch)), next: Next},
  {$id: 'LaunchList', description: 'A page of launches.'},
)
export type LaunchListJson = Static<typeof LaunchList>

export const ExecutionList = Type.Object(
  {executions: Type.Array(schemaRef(Execution)), next: Next},
  {$id: 'ExecutionList', description: 'A page of executions.'},
)
export type ExecutionListJson = Static<typeof ExecutionList>

export const TraceLaunch = Type.Object(
  {
    group: Type.Integer({description: 'The launch number.'}),
    job_name: Type.String({description: 'Name of the job.'}),
    parent: Type.Optional(Type.Integer({description: 'Number of the launch that requested it.'})),
    cause: Type.Enum([...LAUNCH_CAUSES]),
    decision: Type.Enum([...LAUNCH_DECISIONS]),
    status: LaunchEnd,
    scheduled_at: Time('The planned time; for a request, the time of the request.'),
    scheduled_until: Time('The last planned time that this row covers.'),
    count: Type.Integer({description: 'How many planned times this row covers.'}),
    decided_at: Type.Optional(Time('When the leader decided. Absent before.')),
    started_at: Type.Optional(Time('When its first execution started. Absent without one.')),
    ended_at: Type.Optional(Time('When it ended. Absent before the end, and if it did not run.')),
    reason: Type.String({
      description:
        'Why it did not run or waits: a code, which a colon and a sentence may follow. If it ran, why ' +
        'it did not succeed.',
    }),
  },
  {$id: 'TraceLaunch', description: 'A launch of a chain.'},
)
export type TraceLaunchJson = Static<typeof TraceLaunch>

export const Trace = Type.Object(
  {
    launches: Type.Array(schemaRef(TraceLaunch), {
      description: `The launches of the chain by number, at most ${TRACE_MAX}.`,
    }),
    critical_path: Type.Array(Type.Integer(), {
      description: 'Numbers from the root to the launch that ended last, or has not ended.',
    }),
    hidden: Type.Integer({description: 'Launches of jobs that the caller may not read.'}),
    partial: Type.Boolean({description: 'Whether the chain has more launches.'}),
  },
  {$id: 'Trace', description: 'The chain of a launch, from its root.'},
)
export type TraceJson = Static<typeof Trace>

export function readLaunchListQuery(query: Query) {
  const status = query.choice('status', LAUNCH_ENDS)
  const decision = query.choice('decision', LAUNCH_DECISIONS)
  const endedSince = readEndedSince(query, status, BAD_LAUNCH_ENDS)
  const byTime = endedSince !== null || decision === 'skipped' || decision === 'missed'
  return {
    ...readRange(query),
    ...readKeyset(query, byTime ? ['integer', 'integer'] : ['integer']),
    metadata: readMetadataFilters(query),
    reason: query.choice('reason', REASONS),
    cause: query.choice('cause', LAUNCH_CAUSES),
    decision,
    status,
    endedSince,
  }
}

const EXIT_CODES = {minimum: -2_147_483_648, maximum: 4_294_967_295}

/** `outputBytes` is not bounded yet. */
export function readAllExecutionsQuery(query: Query) {
  const status = query.choice('status', EXECUTION_FILTERS) ?? ('not_pending' as const)
  const endedSince = readEndedSince(query, status, BAD_ENDS)
  const exitCode = query.text('exit_code')
  return {
    ...readRange(query),
    ...readKeyset(query, [
      ...(endedSince === null ? [] : ['integer' as const]),
      'integer',
      'text',
      'integer',
    ]),
    status: status === 'all' ? null : status,
    reason: query.text('reason'),
    exitCode: exitCode === null ? null : query.integer('exit_code', 0, EXIT_CODES),
    minDurationMs: readDuration(query, 'min_duration'),
    outputBytes: readOutputLimit(query) ?? 0,
    endedSince,
  }
}

function readRange(query: Query) {
  return {
    since: readTime(query, 'since'),
    until: readTime(query, 'until'),
    job: query.text('job'),
    node: query.text('node'),
  }
}

function readEndedSince<Status extends string>(
  query: Query,
  status: Status | null,
  ends: readonly Status[],
): number | null {
  const at = readTime(query, 'ended_since')
  if (at !== null && (status === null || !ends.includes(status)))
    throw new QueryProblem(`ended_since: needs a status: ${ends.join(', ')}`)
  return at
}

function readDuration(query: Query, name: string): number | null {
  const text = query.text(name)
  if (text === null) return null
  const ms = parseLength(text)
  if (ms === null)
    throw new QueryProblem(
      `${name}: must be a duration such as "10m" or "1h30m", not "${shortened(text)}"`,
    )
  return ms
}

export function encodeTrace(trace: TraceRecord): TraceJson {
  return {
    launches: trace.launches.map(encodeTraced),
    critical_path: [...trace.criticalPath],
    hidden: trace.hidden,
    partial: trace.isPartial,
  }
}

function encodeTraced(launch: TracedLaunch): TraceLaunchJson {
  const {parentGroup, decidedAt, startedAt, endedAt, failure} = launch
  return {
    group: launch.group,
    job_name: launch.jobName,
    ...(parentGroup === null ? {} : {parent: parentGroup}),
    cause: launch.cause,
    decision: launch.decision,
    status: launch.status ?? '',
    scheduled_at: formatTime(launch.scheduledAt),
    scheduled_until: formatTime(launch.scheduledUntil),
    count: launch.count,
    ...(decidedAt === null ? {} : {decided_at: formatTime(decidedAt)}),
    ...(startedAt === null ? {} : {started_at: formatTime(startedAt)}),
    ...(endedAt === null ? {} : {ended_at: formatTime(endedAt)}),
    reason: failure === null ? launch.reason : endCause(failure),
  }
}
