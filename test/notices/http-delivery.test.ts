/** Delivery over HTTP against real servers: answers, time-outs, certificates and denied addresses. */
import assert from 'node:assert/strict'
import type {LookupAddress} from 'node:dns'
import {test} from 'node:test'
import {type LookUp, NetworkGuard} from '../../src/platform/network-guard.ts'
import {OTHER_CERTIFICATE, OTHER_KEY} from '../support/certificate.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {aChannel, aMessage, closedPort, send, startHttp, startHttps, startTcp} from './receivers.ts'

const webhook = (url: string) => aChannel('webhook', {url})

test('an accepted message is sent once, over HTTP and HTTPS', async (context) => {
  for (const receiver of [await startHttp(context), await startHttps(context)]) {
    const delivery = await send(webhook(`${receiver.url}/hook`))
    assert.deepEqual(delivery, {outcome: 'sent', cause: '200: accepted'})
    assert.equal(receiver.received.length, 1)
    assert.equal(receiver.received[0]!.path, '/hook')
  }
})

test('a refusal is shown by its status and a fixed sentence, never by the answer', async (context) => {
  const rows = [
    [400, 'permanent', '400: the receiver refused the message'],
    [401, 'permanent', '401: the receiver refused the credentials'],
    [404, 'permanent', '404: the receiver does not know this address'],
    [500, 'retry', '500: the receiver failed'],
  ] as const
  for (const [status, outcome, cause] of rows) {
    const receiver = await startHttp(context, (response) => {
      response.writeHead(status, 'leak in the reason', {'x-leak': 'leak'}).end('leak in the body')
    })
    assert.deepEqual(await send(webhook(receiver.url)), {outcome, cause})
  }
})

test('429 with Retry-After is tried again when the receiver asks', async (context) => {
  const seconds = await startHttp(context, (response) => {
    response.writeHead(429, {'retry-after': '30'}).end()
  })
  const delivery = await send(webhook(seconds.url))
  assert.deepEqual([delivery.outcome, delivery.retryAfterMs], ['retry', 30_000])
  const clock = new VirtualClock(Date.parse('2026-11-22T02:00:00Z'))
  const dated = await startHttp(context, (response) => {
    response.writeHead(503, {'retry-after': 'Sun, 22 Nov 2026 02:01:00 GMT'}).end()
  })
  assert.equal((await send(webhook(dated.url), aMessage(), {clock})).retryAfterMs, 60_000)
})

test('a redirect is never followed', async (context) => {
  const target = await startHttp(context)
  for (const status of [301, 302, 303, 307, 308]) {
    const receiver = await startHttp(context, (response) => {
      response.writeHead(status, {location: target.url}).end()
    })
    const delivery = await send(webhook(receiver.url))
    assert.equal(delivery.outcome, 'permanent')
    assert.match(delivery.cause, new RegExp(`^${status}: the receiver redirects`))
  }
  assert.equal(target.connections(), 0)
})

test('a receiver that is slow ends the attempt after 10 s', async (context) => {
  const clock = new VirtualClock()
  const receiver = await startHttp(context, () => undefined)
  const arrived = receiver.next()
  const sending = send(webhook(receiver.url), aMessage(), {clock})
  await arrived
  await clock.advance(9_999)
  assert.equal(clock.waiting, 1)
  await clock.advance(1)
  assert.deepEqual(await sending, {
    outcome: 'retry',
    cause: 'the receiver did not answer within 10s',
  })
  assert.equal(clock.waiting, 0)
})

test('a receiver that does not finish the TLS handshake ends the attempt after 5 s', async (context) => {
  const clock = new VirtualClock()
  const silent = await startTcp(context, () => undefined)
  const connected = silent.next()
  const sending = send(webhook(`https://127.0.0.1:${silent.port}`), aMessage(), {clock})
  await connected
  await clock.advance(5_000)
  assert.deepEqual(await sending, {
    outcome: 'retry',
    cause: 'the receiver did not accept the connection within 5s',
  })
})

test('the status decides, even if the body of the answer never ends, or is cut', async (context) => {
  const endless = await startHttp(context, (response) => {
    response.writeHead(200).write('part')
  })
  const cut = await startHttp(context, (response) => {
    response.writeHead(200, {'content-length': 100_000}).write('part', () => response.destroy())
  })
  for (const {url} of [endless, cut]) {
    const clock = new VirtualClock()
    assert.equal((await send(webhook(url), aMessage(), {clock})).outcome, 'sent')
    assert.equal(clock.waiting, 0)
  }
})

test('a connection that fails or ends in the middle is tried again', async (context) => {
  const before = await startTcp(context, (socket) => socket.destroy())
  const middle = await startTcp(context, (socket) => {
    socket.once('data', () => socket.end('HTTP/1.1 200'))
  })
  const garbage = await startTcp(context, (socket) => {
    socket.once('data', () => socket.end('220 mail.example.org ESMTP\r\n'))
  })
  for (const port of [before.port, middle.port, garbage.port, await closedPort()]) {
    const delivery = await send(webhook(`http://127.0.0.1:${port}/hook-secret`))
    assert.equal(delivery.outcome, 'retry')
    assert.doesNotMatch(delivery.cause, /secret|127\.0|ESMTP/)
  }
})

test('a certificate that is not trusted, or not for the host, gets no request', async (context) => {
  const other = await startHttp(context, undefined, {key: OTHER_KEY, cert: OTHER_CERTIFICATE})
  const delivery = await send(webhook(other.url))
  assert.deepEqual(delivery, {
    outcome: 'retry',
    cause: 'the certificate of the receiver is not valid for it, or not trusted',
  })
  const mine = await startHttps(context)
  const byOtherName = mine.url.replace('127.0.0.1', 'other.example.org')
  const lookUp: LookUp = (_host, _options, found) =>
    found(null, [{address: '127.0.0.1', family: 4}])
  const addresses = new NetworkGuard([], [], lookUp)
  const misnamed = await send(webhook(byOtherName), aMessage(), {addresses})
  assert.equal(misnamed.cause, delivery.cause)
  assert.deepEqual([other.received.length, mine.received.length], [0, 0])
})

/** Answers of a name server, one for each look-up; the last one stays. */
function nameServer(...answers: readonly (readonly string[])[]) {
  let asked = 0
  const lookUp: LookUp = (_host, _options, found) => {
    const answer = answers[Math.min(asked, answers.length - 1)]!
    asked += 1
    found(
      null,
      answer.map((address): LookupAddress => ({address, family: address.includes(':') ? 6 : 4})),
    )
  }
  return {addresses: new NetworkGuard([], [], lookUp), asked: () => asked}
}

const METADATA = '169.254.169.254'
const DENIED = {
  outcome: 'permanent',
  cause:
    'the address of the receiver is not allowed: ' +
    'it is link-local, a cloud metadata service, or denied by --net-deny',
} as const

test('a metadata address is never connected to, in any notation or by any name', async () => {
  const literals = [
    METADATA,
    '[::ffff:169.254.169.254]',
    '2852039166',
    '0xa9fea9fe',
    '[64:ff9b::a9fe:a9fe]',
    '[fd00:ec2::254]',
  ]
  for (const host of literals)
    assert.deepEqual(await send(webhook(`http://${host}/latest`)), DENIED)
  for (const addresses of [[METADATA], ['::ffff:a9fe:a9fe'], [METADATA, 'fe80::1']]) {
    const {addresses: guard} = nameServer(addresses)
    const delivery = await send(webhook('http://hooks.example.org/'), aMessage(), {
      addresses: guard,
    })
    assert.deepEqual(delivery, DENIED)
  }
})

test('a name that changes to a metadata address reaches it neither at once nor later', async (context) => {
  const receiver = await startHttp(context)
  const {addresses, asked} = nameServer(['127.0.0.1'], [METADATA])
  const channel = webhook(`http://hooks.example.org:${receiver.port}/`)
  assert.equal((await send(channel, aMessage(), {addresses})).outcome, 'sent')
  assert.equal(asked(), 1, 'the address that was checked is the one that is used')
  assert.deepEqual(await send(channel, aMessage(), {addresses}), DENIED)
  const both = nameServer([METADATA, '127.0.0.1'])
  const kept = await send(channel, aMessage(), {addresses: both.addresses})
  assert.equal(kept.outcome, 'sent')
})

test('a connection to an unchecked address is closed before anything is sent', async (context) => {
  const receiver = await startHttp(context)
  /** Says one thing before the connection, and another of the same address afterwards. */
  class ForgetfulGuard extends NetworkGuard {
    #asked = 0
    override denial(text: string): string | null {
      this.#asked += 1
      return this.#asked === 1 ? null : `${text} is denied`
    }
  }
  const delivery = await send(webhook(receiver.url), aMessage(), {
    addresses: new ForgetfulGuard([], []),
  })
  assert.deepEqual(delivery, DENIED)
  assert.equal(receiver.received.length, 0)
})

test('--net-deny applies to channels', async (context) => {
  const receiver = await startHttp(context)
  const addresses = new NetworkGuard([], ['127.0.0.0/8'])
  assert.deepEqual(await send(webhook(receiver.url), aMessage(), {addresses}), DENIED)
  assert.equal(receiver.connections(), 0)
})

test('a stop of the server ends an attempt, before and after it began', async (context) => {
  const receiver = await startHttp(context, () => undefined)
  const aborter = new AbortController()
  const arrived = receiver.next()
  const sending = send(webhook(receiver.url), aMessage(), {signal: aborter.signal})
  await arrived
  aborter.abort()
  const cancelled = {outcome: 'retry', cause: 'the attempt was cancelled'}
  assert.deepEqual(await sending, cancelled)
  assert.deepEqual(
    await send(webhook(receiver.url), aMessage(), {signal: aborter.signal}),
    cancelled,
  )
  assert.equal(receiver.received.length, 1)
})

test('secrets are in no cause, whatever goes wrong', async (context) => {
  const value = 'hunter2-hunter2-hunter2'
  const failing = await startHttp(context, (response, {path, headers}) => {
    response.writeHead(400).end(`${path} ${headers.authorization}`)
  })
  const urls = [
    `${failing.url}/${value}`,
    `http://127.0.0.1:${await closedPort()}/${value}`,
    `http://${value}.invalid/`,
    `https://user:${value}@127.0.0.1/`,
    `gopher://${value}/`,
    value,
    `http://127.0.0.1:99999/${value}`,
    `http://${METADATA}/${value}`,
  ]
  const unknownHost: LookUp = (_host, _options, found) =>
    found(Object.assign(new Error(`getaddrinfo ENOTFOUND ${value}`), {code: 'ENOTFOUND'}), [])
  const addresses = new NetworkGuard([], [], unknownHost)
  for (const url of urls) {
    const channel = aChannel('slack', {url: '${secret:notice-ops}'}, {'notice-ops': url})
    const delivery = await send(channel, aMessage(), {addresses})
    assert.notEqual(delivery.outcome, 'sent', url)
    assert.ok(!JSON.stringify(delivery).includes('hunter2'), delivery.cause)
  }
  const line = `t\r\nx-injected: ${value}`
  const split = aChannel(
    'webhook',
    {url: failing.url, headers: ['authorization: Bearer ${secret:t}']},
    {t: line},
  )
  assert.deepEqual(await send(split), {
    outcome: 'permanent',
    cause: 'the channel is invalid: the value of a secret does not fit its field',
  })
  const missing = aChannel('slack', {url: '${secret:notice-ops}'})
  assert.equal((await send(missing)).cause, 'the secret notice-ops of the channel has no value')
})
