/** Problems in JSON: what went wrong over all jobs, folded by cause. */
import {type Static, Type} from 'typebox'
import {
  type Problem as ProblemRecord,
  PROBLEM_KINDS,
  type Problems as ProblemsRecord,
} from '../core/problems/facts.ts'
import {parseLength} from '../lib/duration.ts'
import {formatOptionalTime, formatTime, parseTime} from '../lib/rfc3339.ts'
import {
  KeysetQuery,
  type Query,
  QueryProblem,
  readKeyset,
  readMetadataFilters,
  readTime,
  shortened,
} from './query.ts'
import {schemaRef, Time} from './shapes.ts'

const SINCE = {default: '8h', defaultMs: 8 * 3_600_000}

const Text = (description: string) => Type.Optional(Type.String({description}))

export const ProblemsQuery = Type.Object({
  since: Text(
    `Begin of the range: a time, or a duration before its end, at most 90 days. Default: ${SINCE.default}.`,
  ),
  until: Type.Optional(
    Time('End of the range. Default: now. What waits or runs is part of now only.'),
  ),
  job: Text('Only of this job; `*` is any text.'),
  metadata: Type.Optional(
    Type.Array(Type.String(), {
      description: 'Of the job, as `metadata[key]=value` or `key:value`; all must match.',
    }),
  ),
  open: Type.Optional(Type.Boolean({description: 'Only problems that are not over.'})),
  ...KeysetQuery,
})

export const Problem = Type.Object(
  {
    kind: Type.Enum([...PROBLEM_KINDS, 'on_purpose'], {
      description: '[What went wrong](../how-to/find-problems.md#kinds).',
    }),
    code: Type.String({
      description: 'Reason of the launches or executions, or the event of the cluster.',
    }),
    cause: Type.Record(Type.String(), Type.Unknown(), {
      description:
        'Facts of the sentence, such as the tags, the exit code, the node or the person.',
    }),
    over: Type.Boolean({description: 'Whether it is over, for each of its jobs.'}),
    since: Time('Its first planned time or event.'),
    until: Type.Union([Time('When it was over.'), Type.Null()], {
      description: 'When it was over; `null` = it is not, or has no end.',
    }),
    jobs: Type.Array(Type.String(), {description: 'Names of the first 20 jobs.'}),
    jobs_total: Type.Integer({description: 'Number of its jobs.'}),
    planned_times: Type.Integer({description: 'Number of its planned times and requests.'}),
    launches: Type.Array(Type.Integer(), {description: 'Numbers of the newest 20 launches.'}),
    sentence: Type.String({description: 'What happened and why.'}),
    advice: Type.String({description: 'What to do; empty = nothing.'}),
  },
  {$id: 'JobProblem', description: 'Launches, executions or events with one cause.'},
)
export type ProblemJson = Static<typeof Problem>

export const Problems = Type.Object(
  {
    from: Time('Begin of the range.'),
    to: Time('End of the range.'),
    partial: Type.Boolean({
      description: 'Whether there are more rows than one request reads: the oldest are left out.',
    }),
    oldest: Time('Since when the history of all jobs of the problems is complete.'),
    not_over: Type.Integer({description: 'Number of problems that are not over, on all pages.'}),
    next: Type.Union([Type.String(), Type.Null()], {
      description: '`after` of the next page; `null` = this is the last.',
    }),
    problems: Type.Array(schemaRef(Problem), {
      description:
        'Those that are not over first; among them those of the cluster first, then the newest.',
    }),
    on_purpose: Type.Array(schemaRef(Problem), {
      description: 'What did not run because a person meant it so. On the first page, at most 100.',
    }),
  },
  {$id: 'Problems', description: 'What went wrong in a range of time, and whether it is over.'},
)
export type ProblemsJson = Static<typeof Problems>

export function readProblemsQuery(query: Query) {
  const until = readTime(query, 'until')
  const since = readSince(query)
  return {
    since,
    until,
    job: query.text('job'),
    metadata: readMetadataFilters(query),
    open: query.boolean('open') ?? false,
    // The end of the range, whether it is over, whether it is of the cluster, its begin, and its key.
    ...readKeyset(query, ['integer', 'integer', 'integer', 'integer', 'text']),
  }
}

function readSince(query: Query): {readonly at: number} | {readonly agoMs: number} {
  const text = query.text('since')
  if (text === null) return {agoMs: SINCE.defaultMs}
  const agoMs = parseLength(text)
  if (agoMs !== null) return {agoMs}
  const at = parseTime(text)
  if (at === null)
    throw new QueryProblem(
      'since: must be a time such as "2026-05-01T08:30:00Z", or a duration such as "8h", ' +
        `not "${shortened(text)}"`,
    )
  return {at}
}

export function encodeProblems(
  problems: Omit<ProblemsRecord, 'next'>,
  next: string | null,
): ProblemsJson {
  const {from, to, isPartial, oldest, notOver} = problems
  return {
    from: formatTime(from),
    to: formatTime(to),
    partial: isPartial,
    oldest: formatTime(oldest),
    not_over: notOver,
    next,
    problems: problems.problems.map(encodeProblem),
    on_purpose: problems.onPurpose.map(encodeProblem),
  }
}

function encodeProblem(problem: ProblemRecord): ProblemJson {
  const {kind, code, cause, isOver, since, until, sentence, advice} = problem
  return {
    kind,
    code,
    cause,
    over: isOver,
    since: formatTime(since),
    until: formatOptionalTime(until),
    jobs: [...problem.jobs],
    jobs_total: problem.jobsTotal,
    planned_times: problem.plannedTimes,
    launches: [...problem.launches],
    sentence,
    advice,
  }
}
