/** Channel `webhook`: the message as JSON, signed as Standard Webhooks describes. */
import {createHmac} from 'node:crypto'
import {Type} from 'typebox'
import type {NoticeMessage} from '../../core/notice-message.ts'
import {hasReference} from '../../core/secret.ts'
import {type HeaderPair, headerProblem, splitHeader} from '../../lib/http-header.ts'
import {encodeMessage} from '../../wire/notice-message.ts'
import {declareKind, post, Text, urlProblems} from './kind.ts'
import {linesOf, titleOf} from './message-text.ts'

const HEADERS_MAX = 20
const TEMPLATE_LENGTH_MAX = 16 * 1024
/** Limits of Standard Webhooks. */
const KEY_BYTES_MIN = 24
const KEY_BYTES_MAX = 64

/** Headers that the message sets. */
const OWN_HEADERS = /^(host|content-type|idempotency-key|webhook-.*)$/i

const WebhookConfig = Type.Object({
  url: Text('URL of the receiver.'),
  secret: Type.Optional(Text('Key of the signature: `whsec_` and 24 to 64 bytes in base64.')),
  headers: Type.Optional(
    Type.Array(Text('`Name: value`.'), {
      description: 'Further headers.',
      maxItems: HEADERS_MAX,
    }),
  ),
  template: Type.Optional(
    Type.String({
      description: 'JSON to send instead of the message, with names in braces, as `"{summary}"`.',
      maxLength: TEMPLATE_LENGTH_MAX,
    }),
  ),
})

export const webhook = declareKind({
  name: 'webhook',
  config: WebhookConfig,
  secretField: 'secret',
  perIncident: false,
  problems: ({url, secret, headers = [], template}) => [
    ...urlProblems(url),
    ...(secret === undefined || hasReference(secret) || keyOf(secret) !== null ? [] : [NOT_A_KEY]),
    ...headers.flatMap(problemsOfHeader),
    ...(template === undefined ? [] : problemsOfTemplate(template)),
  ],
  render: ({url, secret, headers = [], template}, message, at) => {
    const body =
      template === undefined
        ? JSON.stringify(encodeMessage(message))
        : fillTemplate(template, message)
    const timestamp = String(Math.floor(at / 1000))
    const key = secret === undefined ? null : keyOf(secret)
    const own: HeaderPair[] = [
      ['content-type', 'application/json'],
      ['idempotency-key', message.id],
      ['webhook-id', message.id],
      ['webhook-timestamp', timestamp],
    ]
    if (key !== null) own.push(['webhook-signature', sign(key, message.id, timestamp, body)])
    const request = post(url, body, [...own, ...headers.map((line) => splitHeader(line)!)])
    return {via: 'http', requests: [request]}
  },
})

const NOT_A_KEY = `secret must be whsec_ and ${KEY_BYTES_MIN} to ${KEY_BYTES_MAX} bytes in base64`

/** `null` = not a key. */
function keyOf(secret: string): Buffer | null {
  const text = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret.trim())?.[1]
  if (text === undefined) return null
  const key = Buffer.from(text, 'base64')
  return key.length >= KEY_BYTES_MIN && key.length <= KEY_BYTES_MAX ? key : null
}

function sign(key: Buffer, id: string, timestamp: string, body: string): string {
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')
  return `v1,${signature}`
}

function problemsOfHeader(line: string): readonly string[] {
  const pair = splitHeader(line)
  if (pair === null) return ['headers must be "Name: value" texts']
  if (OWN_HEADERS.test(pair[0])) return [`headers cannot set ${pair[0]}: the message sets it`]
  const problem = headerProblem(pair)
  return problem === null ? [] : [problem]
}

/** Values of the names in a template. */
const TEMPLATE_VALUES = {
  id: ({id}) => id,
  kind: ({kind}) => kind,
  rule: ({rule}) => rule,
  severity: ({severity}) => severity,
  cluster: ({cluster}) => cluster,
  sent_at: (message) => encodeMessage(message).sent_at,
  summary: ({summary}) => summary,
  title: titleOf,
  text: ({incidents}) => incidents.flatMap(linesOf).join('\n'),
  jobs: ({incidents}) => [...new Set(incidents.map(({job}) => job))].filter(Boolean).join(', '),
  url: ({incidents}) => incidents[0]?.url ?? '',
  attempt: ({attempt}) => attempt,
  more: ({more}) => more,
} as const satisfies Readonly<Record<string, (message: NoticeMessage) => string | number>>

const NAME = /\{([a-z_]+)\}/g

/** Texts are escaped as in a JSON string, without its quotes; numbers are digits. */
function fillTemplate(template: string, message: NoticeMessage): string {
  return template.replaceAll(NAME, (_, name: keyof typeof TEMPLATE_VALUES) =>
    JSON.stringify(TEMPLATE_VALUES[name](message)).replace(/^"|"$/g, ''),
  )
}

const SAMPLE: NoticeMessage = {
  id: 'x',
  attempt: 1,
  repeat: false,
  kind: 'test',
  rule: 'x',
  severity: 'info',
  cluster: 'x',
  sentAt: 0,
  summary: 'x',
  incidents: [],
  more: 0,
  part: 0,
}

function problemsOfTemplate(template: string): readonly string[] {
  if (hasReference(template)) return ['template cannot name a secret: use headers']
  const unknown = [...template.matchAll(NAME)]
    .map(([, name]) => name!)
    .filter((name) => !Object.hasOwn(TEMPLATE_VALUES, name))
  if (unknown.length > 0) {
    const known = Object.keys(TEMPLATE_VALUES).join(', ')
    return [`template must not name {${unknown[0]}}: use ${known}`]
  }
  return isJson(fillTemplate(template, SAMPLE))
    ? []
    : ['template must be JSON once its names are filled in. Write texts as "{summary}"']
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false // the problem says so
  }
}
