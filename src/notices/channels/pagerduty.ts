/**
 * Channel `pagerduty`: the Events API v2. Each incident is an alert there, with the same key until it is
 * resolved.
 */
import {createHash} from 'node:crypto'
import {Type} from 'typebox'
import type {NoticeIncident, NoticeMessage} from '../../core/notice-message.ts'
import {hasReference} from '../../core/secret.ts'
import {declareKind, postJson, Text, urlProblems} from './kind.ts'
import {keepStart, linesOf, titleOf} from './message-text.ts'

const EVENTS_URL = 'https://events.pagerduty.com/v2/enqueue'
const KEY_LENGTH_MAX = 255
const SUMMARY_LENGTH_MAX = 1_024

/** Messages about one launch, without state, and those of the cluster's pulse raise no alert. */
const WITHOUT_ALERT: readonly string[] = ['output', 'started', 'succeeded', 'alive']

export const pagerduty = declareKind({
  name: 'pagerduty',
  config: Type.Object({
    routing_key: Text('Integration key of the service.'),
    url: Type.Optional(Text(`Another address of the Events API v2 than ${EVENTS_URL}.`)),
  }),
  secretField: 'routing_key',
  perIncident: true,
  problems: ({routing_key: key, url = EVENTS_URL}) => [
    ...urlProblems(url, {isSecret: true}),
    ...(hasReference(key) || /^[\x21-\x7e]+$/.test(key) ? [] : ['routing_key must be one word']),
  ],
  render: ({routing_key: key, url = EVENTS_URL}, message) => {
    const events = message.kind === 'test' ? testOf(message) : eventsOf(message)
    const requests = events.map((event) =>
      postJson(url, {routing_key: key, client: 'Belfry', ...event}),
    )
    return {via: 'http', requests}
  },
})

/** An alert that is resolved at once: it shows in the service, and calls no person for long. */
function testOf(message: NoticeMessage): readonly object[] {
  const key = {dedup_key: dedupKey(message.id)}
  const payload = {summary: titleOf(message), source: message.cluster, severity: 'info'}
  return [
    {event_action: 'trigger', ...key, payload},
    {event_action: 'resolve', ...key},
  ]
}

function eventsOf(message: NoticeMessage): readonly object[] {
  if (WITHOUT_ALERT.includes(message.kind)) return []
  return message.incidents.map((incident) => {
    const key = {dedup_key: dedupKey(incident.key)}
    return incident.closedAt === null
      ? {event_action: 'trigger', ...key, ...alertOf(message, incident)}
      : {event_action: 'resolve', ...key}
  })
}

function alertOf(message: NoticeMessage, incident: NoticeIncident): object {
  const [first = ''] = linesOf(incident)
  const {job, url, launch, execution, count} = incident
  return {
    payload: {
      summary: keepStart(first, SUMMARY_LENGTH_MAX),
      source: message.cluster,
      severity: message.severity,
      timestamp: new Date(incident.openedAt).toISOString(),
      ...(job === '' ? {} : {component: job}),
      group: message.rule,
      custom_details: {
        sentences: incident.sentences,
        advice: incident.advice,
        output: incident.outputTail,
        launch,
        execution,
        count,
      },
    },
    ...(url === '' ? {} : {links: [{href: url, text: 'Open in Belfry'}]}),
  }
}

function dedupKey(key: string): string {
  return key.length <= KEY_LENGTH_MAX ? key : createHash('sha256').update(key).digest('hex')
}
