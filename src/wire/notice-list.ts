/** Incidents and messages of notices in lists, and previews of rules, in JSON. */
import {type Static, Type} from 'typebox'
import type {NewNotice} from '../core/notice-evaluation.ts'
import type {Incident} from '../core/notice-incidents.ts'
import {MESSAGE_KINDS, MESSAGE_STATES} from '../core/notice-message.ts'
import {summaryOf} from '../core/notice-summary.ts'
import {formatTime} from '../lib/rfc3339.ts'
import type {IncidentQuery, MessageRecord} from '../ports/notice-store.ts'
import {encodeMessage, Message} from './notice-message.ts'
import {KeysetQuery, type Query, readKeyset} from './query.ts'
import {schemaRef, Time} from './shapes.ts'

export const INCIDENT_STATES = ['waiting', 'open', 'closed'] as const satisfies Incident['state'][]

const Text = (description: string) => Type.String({description})
const Filter = (description: string) => Type.Optional(Text(description))
const Next = Type.Union([Type.String(), Type.Null()], {
  description: '`after` of the next page, also of a short one; `null` = this is the last.',
})

const FILTERS = {
  rule: Filter('Only of this rule.'),
  job: Filter('Only of this job; `*` is any text.'),
}

export const IncidentListQuery = Type.Object({
  state: Type.Optional(Type.Enum([...INCIDENT_STATES], {description: 'Only in this state.'})),
  ...FILTERS,
  ...KeysetQuery,
})

export const MessageListQuery = Type.Object({
  state: Type.Optional(Type.Enum([...MESSAGE_STATES], {description: 'Only in this state.'})),
  channel: Filter('Only over this channel.'),
  ...FILTERS,
  ...KeysetQuery,
})

export function readIncidentQuery(query: Query): Omit<IncidentQuery, 'names' | 'seesNodes'> {
  return {
    state: query.choice('state', INCIDENT_STATES),
    ...readFilters(query),
    ...readKeyset(query, ['integer', 'text']),
  }
}

export function readMessageQuery(query: Query) {
  return {
    state: query.choice('state', MESSAGE_STATES),
    channel: query.text('channel'),
    ...readFilters(query),
    ...readKeyset(query, ['integer']),
  }
}

function readFilters(query: Query) {
  return {rule: query.text('rule'), job: query.text('job')?.toLowerCase() ?? null}
}

export const ListedIncident = Type.Object(
  {
    key: Text('Rule, subject and condition.'),
    rule: Text('Name of the rule.'),
    condition: Text('[Condition](notice-rules.md) of the rule.'),
    job: Text('Name of the job; empty for an incident of the cluster.'),
    state: Type.Enum([...INCIDENT_STATES], {
      description: '`waiting`: it opens unless it is over before.',
    }),
    summary: Text('One line.'),
    opened_at: Time('When it opened last.'),
    closed_at: Type.Optional(Time('When it closed; absent while it is open.')),
    count: Type.Integer({description: 'Facts since it opened.'}),
    launch: Type.Optional(Type.Integer({description: 'Number of the newest launch of it.'})),
    execution: Type.Optional(Text('Id of its execution.')),
    last_sent_at: Type.Optional(Time('When the newest message about it was made.')),
  },
  {$id: 'ListedNoticeIncident', description: 'An incident of a rule of notices.'},
)
export type ListedIncidentJson = Static<typeof ListedIncident>

export const IncidentList = Type.Object(
  {incidents: Type.Array(schemaRef(ListedIncident)), next: Next},
  {$id: 'NoticeIncidentList', description: 'A page of incidents.'},
)

export const ListedMessage = Type.Object(
  {
    channel: Text('Name of the channel.'),
    state: Type.Enum([...MESSAGE_STATES], {
      description: '`dead`: it was not delivered, and is not tried again.',
    }),
    attempts: Type.Integer({description: 'Attempts so far.'}),
    made_at: Time('When it was made, or sent again.'),
    next_at: Type.Optional(Time('When the next attempt is due. Absent if there is none.')),
    ended_at: Type.Optional(Time('When it was delivered or given up. Absent while it waits.')),
    error: Text('Cause of the last failed attempt; empty = none.'),
    message: schemaRef(Message),
  },
  {$id: 'ListedNoticeMessage', description: 'A message of a channel, without output.'},
)
export type ListedMessageJson = Static<typeof ListedMessage>

export const MessageList = Type.Object(
  {messages: Type.Array(schemaRef(ListedMessage)), next: Next},
  {$id: 'NoticeMessageList', description: 'A page of messages.'},
)

/** Newest messages of a preview. */
const PREVIEW_SHOWN = 20

export const Preview = Type.Object(
  {
    jobs: Type.Array(Type.String(), {
      description: 'Names of jobs that the rule covers and the caller may read, at most 100.',
    }),
    jobs_total: Type.Integer({description: 'Number of these jobs.'}),
    from: Time('Start of the time that is looked at.'),
    to: Time('Its end.'),
    messages: Type.Integer({description: 'Messages to each channel that would have been sent.'}),
    newest: Type.Array(
      Type.Object({
        kind: Type.Enum([...MESSAGE_KINDS]),
        made_at: Time('When.'),
        summary: Text('One line.'),
      }),
      {description: `The newest of them, at most ${PREVIEW_SHOWN}.`},
    ),
    partial: Type.Boolean({description: 'More happened than is read: there were more messages.'}),
    left_out: Type.Array(Type.String(), {
      description:
        'Conditions of the rule that are not counted: the launch history has no trace of them.',
    }),
  },
  {$id: 'NoticePreview', description: 'What a rule is about, and what it would have sent.'},
)
export type PreviewJson = Static<typeof Preview>

export function encodeIncident(incident: Incident): ListedIncidentJson {
  const {key, rule, condition, job, state, openedAt, closedAt, count} = incident
  const {launch, execution, lastSentAt} = incident
  return {
    key,
    rule,
    condition,
    job,
    state,
    summary: summaryOf('opened', [incident]),
    opened_at: formatTime(openedAt),
    ...(closedAt === null ? {} : {closed_at: formatTime(closedAt)}),
    count,
    ...(launch === null ? {} : {launch}),
    ...(execution === '' ? {} : {execution}),
    ...(lastSentAt === null ? {} : {last_sent_at: formatTime(lastSentAt)}),
  }
}

export function encodeListedMessage(record: MessageRecord): ListedMessageJson {
  const {message, channel, state, attempts, madeAt, sendAt, endedAt, error} = record
  return {
    channel,
    state,
    attempts,
    made_at: formatTime(madeAt),
    ...(sendAt === null ? {} : {next_at: formatTime(sendAt)}),
    ...(endedAt === null ? {} : {ended_at: formatTime(endedAt)}),
    error,
    message: encodeMessage(message),
  }
}

interface Previewed {
  readonly jobs: readonly string[]
  readonly jobsTotal: number
  readonly from: number
  readonly to: number
  readonly messages: readonly NewNotice[]
  readonly isPartial: boolean
  readonly leftOut: readonly string[]
}

export function encodePreview(preview: Previewed): PreviewJson {
  const {jobs, jobsTotal, from, to, messages, isPartial, leftOut} = preview
  return {
    jobs: [...jobs],
    jobs_total: jobsTotal,
    from: formatTime(from),
    to: formatTime(to),
    messages: messages.length,
    newest: messages
      .slice(-PREVIEW_SHOWN)
      .toReversed()
      .map(({kind, madeAt, incidents}) => {
        return {kind, made_at: formatTime(madeAt), summary: summaryOf(kind, incidents)}
      }),
    partial: isPartial,
    left_out: [...leftOut],
  }
}
