/**
 * Channel `ntfy`: a topic of an ntfy server. Names of headers begin with `X-`: proxies use `Priority`
 * themselves.
 */
import {Type} from 'typebox'
import {isGoodNews, type NoticeMessage, type Severity} from '../../core/notice-message.ts'
import type {HeaderPair} from '../../lib/http-header.ts'
import {declareKind, post, Text, urlProblems} from './kind.ts'
import {
  fitted,
  keepStart,
  linesOf,
  moreOf,
  originOf,
  titleOf,
  withoutLinks,
} from './message-text.ts'

/** A longer message becomes an attachment. */
const MESSAGE_BYTES_MAX = 4_000
const TITLE_LENGTH_MAX = 200

const PRIORITIES: Readonly<Record<Severity, string>> = {
  critical: '5',
  error: '4',
  warning: '3',
  info: '2',
}
const DEFAULT_PRIORITY = '3'

export const ntfy = declareKind({
  name: 'ntfy',
  config: Type.Object({
    url: Text('URL of the topic, as `https://ntfy.sh/topic`. Who knows it can read and write.'),
    token: Type.Optional(Text('Access token of the server.')),
  }),
  secretField: 'token',
  perIncident: false,
  problems: ({url, token}) => [
    ...urlProblems(url, {isSecret: token !== undefined}),
    ...(token === undefined || /^[\x21-\x7e]+$/.test(token) ? [] : ['token must be one word']),
  ],
  render: ({url, token}, message) => {
    const isGood = isGoodNews(message)
    const link = message.incidents.find((incident) => incident.url !== '')?.url
    const headers: HeaderPair[] = [
      ['content-type', 'text/plain; charset=utf-8'],
      ['x-title', encodedWord(keepStart(titleOf(message), TITLE_LENGTH_MAX))],
      ['x-priority', isGood ? DEFAULT_PRIORITY : PRIORITIES[message.severity]],
      ['x-tags', isGood ? 'white_check_mark' : 'rotating_light'],
    ]
    if (link !== undefined) headers.push(['x-click', link])
    if (token !== undefined) headers.push(['authorization', `Bearer ${token}`])
    const body = fitted(message, MESSAGE_BYTES_MAX, bodyOf, (text) => Buffer.byteLength(text))
    return {via: 'http', requests: [post(url, body, headers)]}
  },
})

/** Never empty: the server would replace it. */
function bodyOf(message: NoticeMessage): string {
  const parts = [
    ...message.incidents.map((incident) =>
      [...linesOf(incident), incident.outputTail].filter((line) => line !== '').join('\n'),
    ),
    moreOf(message),
    originOf(message),
  ]
  return withoutLinks(parts.filter((part) => part !== '').join('\n\n'))
}

/** Headers hold only ASCII; ntfy decodes words of RFC 2047. */
function encodedWord(text: string): string {
  return /^[\x20-\x7e]*$/.test(text) && !text.includes('=?')
    ? text
    : `=?UTF-8?B?${Buffer.from(text).toString('base64')}?=`
}
