/** Requests of each kind of channel over HTTP, and how it keeps hostile texts of jobs from being parsed. */
import assert from 'node:assert/strict'
import {createHmac} from 'node:crypto'
import {test, type TestContext} from 'node:test'
import type {NoticeMessage} from '../../src/core/notice-message.ts'
import {CHANNEL_KINDS} from '../../src/notices/channels/kinds.ts'
import {checkOf} from '../../src/wire/check.ts'
import {Incident, Message} from '../../src/wire/notice-message.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {aChannel, aMessage, anIncident, type Received, send, startHttp} from './receivers.ts'

/** Texts that some receiver parses: mentions, links, markup, line ends, terminal codes, marks. */
const HOSTILE = [
  'x <!channel> <@U123> @everyone <https://evil.example|click> [a](https://evil.example)',
  '*b* _c_ `d` ```e``` <b>f</b> <at>g</at> &amp;',
  '\r\nX-Injected: h \u001b[31mred\u001b[0m \u202egnp.exe www.evil.example',
].join(' ')

const hostileMessage = aMessage({
  rule: HOSTILE,
  cluster: HOSTILE,
  summary: HOSTILE,
  incidents: [
    anIncident({
      job: HOSTILE,
      sentences: [HOSTILE],
      advice: HOSTILE,
      outputTail: `${HOSTILE}\n${HOSTILE}`,
      url: 'javascript:alert(1)',
    }),
  ],
})

const bigMessage = aMessage({
  summary: 'ü'.repeat(5_000),
  incidents: Array.from({length: 300}, (_, at) =>
    anIncident({
      key: `all-jobs/job-${at}/failed`,
      job: `job-${at}`,
      sentences: Array.from({length: 30}, () => '<ü&"'.repeat(500)),
      outputTail: `${'<ü&"\n'.repeat(5_000)}the last line`,
    }),
  ),
  more: 194,
})

/** Sends one message, and returns the requests that arrived. */
async function requestsOf(
  context: TestContext,
  kind: string,
  config: (url: string) => Record<string, unknown>,
  message?: NoticeMessage,
): Promise<readonly Received[]> {
  const receiver = await startHttp(context)
  const delivery = await send(aChannel(kind, config(receiver.url)), message)
  assert.equal(delivery.outcome, 'sent', delivery.cause)
  return receiver.received
}

async function bodyOf<Body>(
  context: TestContext,
  kind: string,
  message?: NoticeMessage,
): Promise<Body> {
  const [request] = await requestsOf(context, kind, (url) => ({url}), message)
  return JSON.parse(request!.body) as Body
}

test('a webhook sends the message as documented', async (context) => {
  const message = aMessage({
    incidents: [anIncident({ownerEmail: 'owner@example.org'}), anIncident({closedAt: 0, job: ''})],
    more: 3,
  })
  const body = await bodyOf<Record<string, unknown>>(context, 'webhook', message)
  assert.ok(checkOf(Message)(body))
  assert.deepEqual(Object.keys(body), Object.keys(Message.properties))
  const [open, closed] = body['incidents'] as Record<string, unknown>[]
  const all = Object.keys(Incident.properties)
  assert.deepEqual(
    Object.keys(open!),
    all.filter((key) => key !== 'closed_at'),
  )
  assert.deepEqual(Object.keys(closed!), all)
  assert.ok(!JSON.stringify(body).includes('owner@example.org'))
})

test('a webhook is signed as Standard Webhooks describes', async (context) => {
  const receiver = await startHttp(context)
  const key = Buffer.from('a key of exactly thirty-two byte')
  const secret = `whsec_${key.toString('base64')}`
  const clock = new VirtualClock(Date.parse('2026-11-22T02:12:10.700Z'))
  const channel = aChannel(
    'webhook',
    {url: receiver.url, secret: '${secret:notice-hook}', headers: ['X-Team: a: b']},
    {'notice-hook': secret},
  )
  assert.equal((await send(channel, aMessage(), {clock})).outcome, 'sent')
  const {headers, body} = receiver.received[0]!
  assert.equal(headers['webhook-id'], 'ntc_8f2k')
  assert.equal(headers['idempotency-key'], 'ntc_8f2k')
  assert.equal(headers['webhook-timestamp'], '1795313530')
  assert.equal(headers['x-team'], 'a: b')
  assert.equal(headers['content-type'], 'application/json')
  const signed = `ntc_8f2k.1795313530.${body}`
  const expected = createHmac('sha256', key).update(signed, 'utf8').digest('base64')
  assert.equal(headers['webhook-signature'], `v1,${expected}`)
})

test('the signature agrees with the published example of Standard Webhooks', () => {
  // The computation of the test above, on values that others published.
  const key = Buffer.from('MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw', 'base64')
  const signed = 'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
  const signature = createHmac('sha256', key).update(signed).digest('base64')
  assert.equal(signature, 'g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=')
})

test('a template is filled with escaped texts, and is never code', async (context) => {
  const template =
    '{"title": "{title}", "n": {more}, "text": "{text}", "jobs": "{jobs}", ' +
    '"at": "{sent_at}", "o": {"a": "{id}"}}'
  const config = (url: string) => ({url, template})
  const summary = 'a "quoted" \\ summary with {rule} and ${secret:x} and $& and $1'
  const message = aMessage({summary, more: 7, incidents: [anIncident({advice: ''}), anIncident()]})
  const [request] = await requestsOf(context, 'webhook', config, message)
  const body = JSON.parse(request!.body) as Record<string, unknown>
  assert.deepEqual(Object.keys(body), ['title', 'n', 'text', 'jobs', 'at', 'o'])
  assert.deepEqual(
    [body['title'], body['n'], body['jobs'], body['at']],
    [summary, 7, 'load', '2026-11-22T02:12:10.000Z'],
  )
  assert.match(String(body['text']), /^load: Launch 48240 .+\n2 dependents did not run\.\n/)
  const hostile = await requestsOf(context, 'webhook', config, hostileMessage)
  assert.deepEqual(Object.keys(JSON.parse(hostile[0]!.body) as object), Object.keys(body))
})

interface SlackBody {
  readonly text: string
  readonly blocks: readonly {
    readonly type: string
    readonly text?: object
    readonly elements?: readonly object[]
  }[]
}

/** All text objects and elements of blocks. */
function nodesIn(value: unknown): readonly Record<string, unknown>[] {
  if (Array.isArray(value)) return value.flatMap(nodesIn)
  if (typeof value !== 'object' || value === null) return []
  return [value as Record<string, unknown>, ...Object.values(value).flatMap(nodesIn)]
}

test('Slack parses nothing that a job wrote', async (context) => {
  const {text, blocks} = await bodyOf<SlackBody>(context, 'slack', hostileMessage)
  assert.doesNotMatch(text, /[<>\r\n]/)
  const types = new Set(nodesIn(blocks).map(({type}) => String(type)))
  const unparsed =
    'context header plain_text rich_text rich_text_preformatted rich_text_section text'
  assert.deepEqual([...types].toSorted(), unparsed.split(' '))
  const {blocks: usual} = await bodyOf<SlackBody>(context, 'slack')
  const links = nodesIn(usual).filter(({type}) => type === 'link')
  assert.deepEqual(
    links.map(({url}) => url),
    ['https://belfry.example.org/ui/#/launches/48240'],
  )
  assert.equal(usual[0]?.type, 'header')
})

test('Slack gets at most 50 blocks and 12,000 characters, and how many are missing', async (context) => {
  const {blocks} = await bodyOf<SlackBody>(context, 'slack', bigMessage)
  const texts = nodesIn(blocks).flatMap(({text}) => (typeof text === 'string' ? [text] : []))
  assert.ok(blocks.length <= 50)
  assert.ok(JSON.stringify(blocks).length <= 12_000)
  const header = blocks[0]!.text as {text: string}
  assert.ok(header.text.length <= 150)
  assert.ok(texts.every((text) => text.length > 0))
  const incidents = blocks.filter(({type}) => type === 'rich_text').length - 1
  assert.ok(incidents > 5 && texts.includes(`and ${494 - incidents} more`))
})

interface DiscordBody {
  readonly embeds: readonly {
    readonly description: string
    readonly footer: {readonly text: string}
  }[]
  readonly allowed_mentions: unknown
}

test('Discord mentions no member, and Markdown of jobs is escaped', async (context) => {
  const {embeds, allowed_mentions} = await bodyOf<DiscordBody>(context, 'discord', hostileMessage)
  assert.deepEqual(allowed_mentions, {parse: []})
  const {description} = embeds[0]!
  const [outside, inside] = [description.replace(/```[^]*```/, ''), description.split('```')]
  assert.equal(inside.length, 3, 'output cannot end its block')
  const ours = outside.replaceAll(/^\*\*|\*\*$/gm, '')
  assert.doesNotMatch(ours, /(?<!\\)[*_`<>[\]()@|~]/)
  assert.doesNotMatch(outside, /https?:\/\/|www\.evil/)
})

test('Discord gets at most 4,096 characters in an embed and 6,000 in all', async (context) => {
  const {embeds} = await bodyOf<DiscordBody>(context, 'discord', bigMessage)
  const [{description, footer}] = embeds as [DiscordBody['embeds'][number]]
  assert.ok(description.length <= 4_096)
  assert.ok(footer.text.length <= 2_048 && description.length + footer.text.length <= 6_000)
  assert.match(description, /and \d+ more$/)
})

interface TeamsBody {
  readonly type: string
  readonly attachments: readonly {
    readonly contentType: string
    readonly content: {
      readonly type: string
      readonly body: readonly object[]
      readonly actions?: object[]
    }
  }[]
}

test('Teams gets an Adaptive Card whose texts are not parsed', async (context) => {
  const {type, attachments} = await bodyOf<TeamsBody>(context, 'teams', hostileMessage)
  const [{contentType, content}] = attachments as [TeamsBody['attachments'][number]]
  assert.deepEqual(
    [type, contentType, content.type],
    ['message', 'application/vnd.microsoft.card.adaptive', 'AdaptiveCard'],
  )
  const types = new Set(nodesIn(content.body).map(({type: each}) => each))
  assert.deepEqual(types, new Set(['RichTextBlock', 'TextRun']))
  assert.ok(!('entities' in content) && content.actions === undefined)
  const usual = await bodyOf<TeamsBody>(context, 'teams')
  assert.deepEqual(usual.attachments[0]!.content.actions, [
    {
      type: 'Action.OpenUrl',
      title: 'Open in Belfry',
      url: 'https://belfry.example.org/ui/#/launches/48240',
    },
  ])
})

test('Teams gets at most 28 KB', async (context) => {
  const body = await bodyOf<TeamsBody>(context, 'teams', bigMessage)
  assert.ok(Buffer.byteLength(JSON.stringify(body)) < 24_000)
  assert.match(JSON.stringify(body), /and \d+ more/)
})

test('ntfy gets headers of one line, a priority and a short body', async (context) => {
  const token = 'tk_7eevizlsiwf9yi4uxsrs83r4352o0'
  const config = (url: string) => ({url: `${url}/topic`, token})
  const [usual] = await requestsOf(context, 'ntfy', config)
  assert.deepEqual(
    ['x-title', 'x-priority', 'x-tags', 'x-click', 'authorization'].map(
      (name) => usual!.headers[name],
    ),
    [
      aMessage().summary,
      '5',
      'rotating_light',
      'https://belfry.example.org/ui/#/launches/48240',
      `Bearer ${token}`,
    ],
  )
  assert.match(usual!.body, /^load: Launch 48240 ended failed/)
  const over = aMessage({kind: 'closed', summary: 'läuft wieder'})
  const [closed] = await requestsOf(context, 'ntfy', config, over)
  const title = /^=\?UTF-8\?B\?(.+)\?=$/.exec(String(closed!.headers['x-title']))?.[1]
  assert.equal(Buffer.from(title!, 'base64').toString(), 'läuft wieder')
  assert.equal(closed!.headers['x-priority'], '3')
  const [hostile] = await requestsOf(context, 'ntfy', config, hostileMessage)
  assert.equal(hostile!.headers['x-injected'], undefined)
  assert.equal(hostile!.headers['x-click'], undefined)
  assert.doesNotMatch(hostile!.body, /https?:\/\/|\[31m|\u202e/)
  const [big] = await requestsOf(context, 'ntfy', config, bigMessage)
  assert.ok(Buffer.byteLength(big!.body) <= 4_096)
  assert.match(big!.body, /and \d+ more/)
})

interface PagerDutyEvent {
  readonly routing_key: string
  readonly event_action: string
  readonly dedup_key: string
  readonly payload?: Record<string, unknown>
}

async function eventsOf(context: TestContext, message: NoticeMessage): Promise<PagerDutyEvent[]> {
  const config = (url: string) => ({url, routing_key: 'a'.repeat(32)})
  const requests = await requestsOf(context, 'pagerduty', config, message)
  return requests.map(({body}) => JSON.parse(body) as PagerDutyEvent)
}

test('PagerDuty gets a trigger and a resolve with the same key', async (context) => {
  const incidents = [anIncident(), anIncident({key: 'all-jobs/mail/failed', job: 'mail'})]
  const opened = await eventsOf(context, aMessage({incidents, severity: 'warning'}))
  assert.deepEqual(
    opened.map(({event_action: action, dedup_key: key}) => [action, key]),
    [
      ['trigger', 'all-jobs/load/failed'],
      ['trigger', 'all-jobs/mail/failed'],
    ],
  )
  const {payload, routing_key: key} = opened[0]!
  assert.equal(key, 'a'.repeat(32))
  assert.deepEqual(
    [payload?.['summary'], payload?.['source'], payload?.['severity'], payload?.['component']],
    ['load: Launch 48240 ended failed: exit status 3.', 'c1f0', 'warning', 'load'],
  )
  const over = incidents.map((incident) => ({...incident, closedAt: incident.openedAt + 1}))
  const closed = await eventsOf(context, aMessage({kind: 'closed', incidents: over}))
  assert.deepEqual(
    closed.map(({event_action: action, dedup_key: each}) => [action, each]),
    [
      ['resolve', 'all-jobs/load/failed'],
      ['resolve', 'all-jobs/mail/failed'],
    ],
  )
})

test('PagerDuty resolves a test at once, and gets nothing about single launches', async (context) => {
  const tried = await eventsOf(context, aMessage({kind: 'test', incidents: []}))
  assert.deepEqual(
    tried.map((event) => [event.event_action, event.dedup_key]),
    [
      ['trigger', 'ntc_8f2k'],
      ['resolve', 'ntc_8f2k'],
    ],
  )
  for (const kind of ['output', 'started', 'succeeded', 'alive'] as const)
    assert.deepEqual(await eventsOf(context, aMessage({kind})), [])
})

test('PagerDuty gets keys of at most 255 and summaries of at most 1,024 characters', async (context) => {
  const incident = anIncident({key: 'k'.repeat(300), sentences: ['s'.repeat(3_000)]})
  const [event] = await eventsOf(context, aMessage({incidents: [incident]}))
  assert.ok(event!.dedup_key.length <= 255)
  assert.ok(String(event!.payload?.['summary']).length <= 1_024)
  for (const each of await eventsOf(context, bigMessage))
    assert.ok(Buffer.byteLength(JSON.stringify(each)) < 512_000)
})

test('a receiver that fails gets no further events', async (context) => {
  const receiver = await startHttp(context, (response) => void response.writeHead(429).end())
  const config = {url: receiver.url, routing_key: 'k'}
  const message = aMessage({incidents: [anIncident(), anIncident()]})
  assert.equal((await send(aChannel('pagerduty', config), message)).outcome, 'retry')
  assert.equal(receiver.received.length, 1)
})

test('an event that is refused does not keep the others back', async (context) => {
  const receiver = await startHttp(context, (response) => {
    response.writeHead(receiver.received.length === 2 ? 404 : 202).end()
  })
  const config = {url: `${receiver.url}/{job}`}
  const message = aMessage({incidents: [anIncident(), anIncident(), anIncident()]})
  const delivery = await send(aChannel('ping', config), message)
  assert.equal(delivery.cause, '404: the receiver does not know this address')
  assert.equal(receiver.received.length, 3)
})

async function pathsOf(
  context: TestContext,
  path: string,
  message: NoticeMessage,
  more: Record<string, unknown> = {},
): Promise<readonly string[]> {
  const config = (url: string) => ({url: `${url}${path}`, ...more})
  const requests = await requestsOf(context, 'ping', config, message)
  assert.ok(requests.every(({method, body}) => method === 'GET' && body === ''))
  return requests.map((request) => request.path)
}

test('a ping tells the start, the end and the failure of a launch with one run id', async (context) => {
  const rid = '[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}'
  const rows = [
    ['started', anIncident(), '/key/load/start'],
    ['succeeded', anIncident(), '/key/load'],
    ['opened', anIncident(), '/key/load/fail'],
    ['reminder', anIncident(), '/key/load/fail'],
    ['closed', anIncident({closedAt: 1}), '/key/load'],
  ] as const
  const ids = new Set<string>()
  for (const [kind, incident, path] of rows) {
    const [seen] = await pathsOf(context, '/key/{job}', aMessage({kind, incidents: [incident]}))
    assert.match(seen!, new RegExp(`^${path}\\?rid=${rid}$`))
    ids.add(seen!.split('rid=')[1]!)
  }
  assert.equal(ids.size, 1)
  const other = aMessage({kind: 'started', incidents: [anIncident({launch: 48241})]})
  const [seen] = await pathsOf(context, '/key/{job}', other)
  assert.ok(!ids.has(seen!.split('rid=')[1]!))
})

test('a channel of the cluster sends its own pings alone, and others never do', async (context) => {
  const path = '/uuid?create=1'
  const ofCluster = {cluster: true}
  const alive = aMessage({kind: 'alive', incidents: []})
  assert.deepEqual(await pathsOf(context, path, alive, ofCluster), [path])
  const test = aMessage({kind: 'test', incidents: []})
  assert.deepEqual(await pathsOf(context, path, test, ofCluster), [path])
  assert.deepEqual(await pathsOf(context, path, aMessage(), ofCluster), [])
  for (const other of [path, '/key/{job}'])
    assert.deepEqual(await pathsOf(context, other, alive), [])
})

test('a ping of jobs leaves out the cluster', async (context) => {
  const cluster = aMessage({incidents: [anIncident({job: '', launch: null})]})
  assert.deepEqual(await pathsOf(context, '/uuid/', cluster), ['/uuid/fail'])
  assert.deepEqual(await pathsOf(context, '/key/{job}', cluster), [])
  assert.deepEqual(await pathsOf(context, '/key/{job}', aMessage({kind: 'output'})), [])
})

test('the name of a job stays one segment of a ping', async (context) => {
  const message = aMessage({incidents: [anIncident({job: '../a?b#c/d', launch: null})]})
  assert.deepEqual(await pathsOf(context, '/key/{job}', message), ['/key/..%2Fa%3Fb%23c%2Fd/fail'])
})

test('each kind is declared once, with a secret field that its schema has', () => {
  const names = CHANNEL_KINDS.map(({name}) => name)
  assert.equal(new Set(names).size, names.length)
  for (const kind of CHANNEL_KINDS)
    assert.ok(Object.hasOwn(kind.config.properties, kind.secretField), kind.name)
})
