/**
 * Channel `ping`: a request to a monitor that raises the alarm when none comes, in the way of
 * healthchecks. The URL of jobs may have `{job}`; the state is at the end of the path, as `/start` and
 * `/fail`. A channel of the cluster is pinged while Belfry works, and gets no messages of rules.
 */
import {createHash} from 'node:crypto'
import {Type} from 'typebox'
import type {NoticeIncident, NoticeMessage} from '../../core/notice-message.ts'
import {percentEncoded} from '../../core/secret.ts'
import {declareKind, type HttpRequest, Text, urlProblems} from './kind.ts'

const JOB = '{job}'

export const ping = declareKind({
  name: 'ping',
  config: Type.Object({
    url: Text('URL of the check, with `{job}` for the name of the job.'),
    cluster: Type.Optional(Type.Boolean({description: 'Ping every minute while Belfry works.'})),
  }),
  secretField: 'url',
  perIncident: true,
  problems: ({url, cluster = false}) => [
    ...urlProblems(withJob(url, 'x'), {isSecret: true}),
    ...(cluster && url.includes(JOB) ? ['url cannot have {job} if cluster is true'] : []),
  ],
  render: ({url, cluster = false}, message) => ({
    via: 'http',
    requests: requestsOf(url, cluster, message),
  }),
})

function requestsOf(
  url: string,
  isOfCluster: boolean,
  message: NoticeMessage,
): readonly HttpRequest[] {
  const {kind} = message
  if (kind === 'test') return [get(withJob(url, 'belfry'))]
  if (isOfCluster) return kind === 'alive' ? [get(url)] : []
  if (kind === 'alive' || kind === 'output') return []
  const isPerJob = url.includes(JOB)
  return message.incidents
    .filter(({job}) => job !== '' || !isPerJob)
    .map((incident) =>
      get(withJob(url, incident.job), stateOf(message, incident), rid(message, incident)),
    )
}

function withJob(url: string, job: string): string {
  return url.replaceAll(JOB, percentEncoded(job))
}

function stateOf({kind}: NoticeMessage, {closedAt}: NoticeIncident): string {
  if (kind === 'started') return '/start'
  return kind === 'succeeded' || closedAt !== null ? '' : '/fail'
}

/** An id of the launch in the form of a UUID: the monitor joins the start and the end of a run by it. */
function rid({cluster}: NoticeMessage, {launch}: NoticeIncident): string {
  if (launch === null) return ''
  const hex = createHash('sha256').update(`${cluster}/${launch}`).digest('hex')
  const variant = '89ab'[Number.parseInt(hex[16]!, 16) % 4]
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    `${variant}${hex.slice(17, 20)}`,
    hex.slice(20, 32),
  ].join('-')
}

function get(text: string, state = '', rid = ''): HttpRequest {
  const url = new URL(text)
  url.pathname = url.pathname.replace(/\/$/, '') + state
  if (rid !== '') url.searchParams.set('rid', rid)
  return {method: 'GET', url, headers: [], body: ''}
}
