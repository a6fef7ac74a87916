/** Explanations of jobs in JSON. */
import {type Static, Type} from 'typebox'
import {EXPLANATION_KINDS, type Explanation as Explained} from '../core/explain/explain.ts'
import type {ExplainSubject, StoredLaunchFacts} from '../core/explain/facts.ts'
import {JOB_STATES} from '../core/explain/outlook.ts'
import {instantOf} from '../core/schedule/instant.ts'
import {LAUNCH_DECISIONS} from './execution.ts'
import {type Query, QueryProblem} from './query.ts'
import {Time} from './shapes.ts'
import {formatInZone, formatTime} from '../lib/rfc3339.ts'

const Sentences = (description: string) => Type.Array(Type.String(), {description})

const Neighbour = (description: string) =>
  Type.Union(
    [
      Type.Object({
        launch: Type.Integer({description: 'The launch number.'}),
        at: Time('Its planned time, or that of its request.'),
        decision: Type.Enum([...LAUNCH_DECISIONS]),
        status: Type.String({
          description: 'How it ended, as far as that is stored; empty = unknown.',
        }),
      }),
      Type.Null(),
    ],
    {description},
  )

export const Explanation = Type.Object(
  {
    job: Type.String({description: 'Name of the job.'}),
    timezone: Type.String({description: 'Zone of the times in sentences.'}),
    at: Type.String({description: 'The time that is explained, with the offset of the zone.'}),
    kind: Type.Enum([...EXPLANATION_KINDS], {
      description:
        '`launched`; `not_run` and `waiting`: a row of the history says why; `absent`: there is no launch.',
    }),
    code: Type.String({
      description:
        'The reason of the launch, `launched`, or [why there is no launch](jobs.md#explanations).',
    }),
    sentences: Sentences('What happened and why.'),
    advice: Type.String({description: 'What to do; empty = nothing.'}),
    commands: Sentences('Commands that do it, or show more.'),
    facts: Type.Record(Type.String(), Type.Unknown(), {
      description: 'The facts of the sentences. Names ending in `_at` are times, in `_ms` lengths.',
    }),
    before: Neighbour('The launch before; `null` = none is kept.'),
    after: Neighbour('The launch after.'),
    now: Type.Object({
      state: Type.Enum([...JOB_STATES]),
      sentences: Sentences('What the job does now.'),
    }),
    next: Type.Array(
      Type.Object({
        at: Type.String({description: 'A planned time, with the offset of the zone.'}),
        unless: Sentences('Conditions under which it does not run.'),
      }),
      {description: 'The next three planned times.'},
    ),
  },
  {$id: 'Explanation', description: 'Why a job ran, did not run, or waits, and what it does next.'},
)
export type ExplanationJson = Static<typeof Explanation>

export const ExplainQuery = Type.Object({
  at: Type.Optional(
    Type.String({
      description:
        'A time, or a date: then of that day the newest launch that did not run, or failed. A date, or a ' +
        "time without offset, is in the job's time zone. Default: the newest launch.",
    }),
  ),
  launch: Type.Optional(Type.Integer({description: 'A launch of the job, in place of a time.'})),
})

/** Throws `QueryProblem`. */
export function readExplainSubject(query: Query): ExplainSubject {
  const [text, group] = [query.text('at'), query.text('launch')]
  if (text !== null && group !== null)
    throw new QueryProblem('at, launch: only one of them can be given')
  if (group !== null) return {kind: 'launch', group: query.integer('launch', 0, LAUNCH_NUMBER)}
  if (text === null) return {kind: 'now'}
  // The zone of the job is not known yet. UTC skips no time: a text that fails here is none anywhere.
  if (instantOf(text, 'UTC') === null)
    throw new QueryProblem(
      `at: "${text.slice(0, 64)}" is no time; use 2027-03-28, 2027-03-28T02:00 or ` +
        '2027-03-28T02:00:00+01:00',
    )
  return {kind: 'at', text}
}

const LAUNCH_NUMBER = {minimum: 1, maximum: 999_999_999_999_999}

export function encodeExplanation(explained: Explained): ExplanationJson {
  const {job, timezone, at, kind, code, before, after, now, next} = explained
  const {sentences, advice, commands, facts} = explained
  return {
    job,
    timezone,
    at: formatInZone(at, timezone),
    kind,
    code,
    sentences: [...sentences],
    advice,
    commands: [...commands],
    facts,
    before: encodeNeighbour(before),
    after: encodeNeighbour(after),
    now: {state: now.state, sentences: [...now.sentences]},
    next: next.map((each) => ({at: formatInZone(each.at, timezone), unless: [...each.unless]})),
  }
}

function encodeNeighbour(neighbour: StoredLaunchFacts | null): ExplanationJson['before'] {
  if (neighbour === null) return null
  const {launch, status} = neighbour
  const {group, decision, scheduledAt} = launch
  return {launch: group, at: formatTime(scheduledAt), decision, status: status ?? ''}
}
