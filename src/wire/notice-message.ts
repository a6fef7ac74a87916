/** Messages of notices in JSON, as webhooks send them. */
import {type Static, Type} from 'typebox'
import {
  INCIDENTS_MAX,
  MESSAGE_KINDS,
  type NoticeIncident,
  type NoticeMessage,
  SEVERITIES,
} from '../core/notice-message.ts'
import {Time} from './shapes.ts'
import {formatTime} from '../lib/rfc3339.ts'

const Text = (description: string) => Type.String({description})

export const Incident = Type.Object(
  {
    key: Text('Rule, subject and condition. The same from the opening to the closing.'),
    job: Text('Name of the job; empty for an incident of the cluster.'),
    opened_at: Time('When it opened.'),
    closed_at: Type.Optional(Time('When it closed; absent while it is open.')),
    count: Type.Integer({description: 'Facts counted so far.'}),
    launch: Type.Optional(Type.Integer({description: 'Number of the launch, if there is one.'})),
    execution: Type.Optional(Text('Id of the execution, if there is one.')),
    sentences: Type.Array(Type.String(), {description: 'What happened.'}),
    advice: Text('What to do about it; may be empty.'),
    output_tail: Text('The end of the output; may be empty.'),
    url: Text('Page of the console; empty if the server knows no address of its own.'),
  },
  {$id: 'NoticeIncident', description: 'An incident in a message.'},
)
export type IncidentJson = Static<typeof Incident>

export const Message = Type.Object(
  {
    id: Text('The same in every attempt and repetition: receivers compare it.'),
    attempt: Type.Integer({description: 'From 1.'}),
    repeat: Type.Boolean({description: 'True if the message may have been delivered already.'}),
    kind: Type.Enum([...MESSAGE_KINDS], {description: 'Why the message is sent.'}),
    rule: Text('Name of the rule.'),
    severity: Type.Enum([...SEVERITIES], {description: 'Severity of the rule.'}),
    cluster: Text('Id of the cluster.'),
    sent_at: Time('When this attempt was made.'),
    summary: Text('One line.'),
    incidents: Type.Array(Incident, {description: `At most ${INCIDENTS_MAX}.`}),
    more: Type.Integer({description: 'Number of further incidents.'}),
  },
  {$id: 'NoticeMessage', description: 'A message of a notice, the body of webhooks.'},
)
export type MessageJson = Static<typeof Message>

export function encodeMessage(message: NoticeMessage): MessageJson {
  return {
    id: message.id,
    attempt: message.attempt,
    repeat: message.repeat,
    kind: message.kind,
    rule: message.rule,
    severity: message.severity,
    cluster: message.cluster,
    sent_at: formatTime(message.sentAt),
    summary: message.summary,
    incidents: message.incidents.map(encodeIncident),
    more: message.more,
  }
}

function encodeIncident(incident: NoticeIncident): IncidentJson {
  const {closedAt, launch, execution} = incident
  return {
    key: incident.key,
    job: incident.job,
    opened_at: formatTime(incident.openedAt),
    ...(closedAt === null ? {} : {closed_at: formatTime(closedAt)}),
    count: incident.count,
    ...(launch === null ? {} : {launch}),
    ...(execution === '' ? {} : {execution}),
    sentences: [...incident.sentences],
    advice: incident.advice,
    output_tail: incident.outputTail,
    url: incident.url,
  }
}
