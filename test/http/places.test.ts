/**
 * Strangers who take all connections and keep them: callers with a token, agents and probes are served. First
 * by the rules alone, then against a server.
 */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {get, type IncomingMessage} from 'node:http'
import {get as getTls} from 'node:https'
import {connect, type Socket} from 'node:net'
import {describe, test, type TestContext} from 'node:test'
import {connect as connectTls} from 'node:tls'
import {WebSocket} from 'ws'
import {KEEP_ALIVE_TIMEOUT_MS} from '../../src/http/options.ts'
import {type Place, Places} from '../../src/http/security/places.ts'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'
import {startApi} from './harness.ts'

const TOKEN = 'a-token-of-some-length'
const WITH_TOKEN = {'x-service-token': TOKEN}
const LIMITS = {
  connectionsMax: 40,
  networkConnectionsPercent: 25,
  reservedConnectionsPercent: 10,
} as const

describe('places', () => {
  function aTable() {
    const places = new Places(LIMITS)
    const ended: string[] = []
    const take = (remoteAddress: string, name = remoteAddress): Place => {
      const socket = {remoteAddress, destroy: () => ended.push(name)} as unknown as Socket
      const place = places.take(socket, () => {})
      assert.notEqual(place, null, `${name} has a place`)
      return place!
    }
    /** Places for that many addresses, one each. */
    const strangers = (count: number) =>
      Array.from({length: count}, (_, at) => take(`10.0.${at >> 8}.${at & 255}`))
    return {places, ended, take, strangers}
  }

  test('a network beyond its share gives up its own oldest connection', () => {
    const {places, ended, take} = aTable()
    const first = take('192.0.2.1', 'first')
    const all = Array.from({length: 9}, (_, at) => take('::ffff:192.0.2.1', `next ${at}`))
    take('192.0.2.2')
    places.use(first, true)
    places.use(first, false)
    take('192.0.2.1')
    assert.deepEqual(ended, ['next 0'], 'the one that waited longest')
    places.free(all[1]!)
    take('192.0.2.1')
    assert.deepEqual(ended, ['next 0'], 'one place was free')
    for (let count = 0; count <= 10; count += 1) take(`2001:db8::${count}`, `v6 ${count}`)
    assert.deepEqual(ended.slice(1), ['v6 0'], 'an IPv6 /64 is one network')
  })

  test('a flood without tokens takes no connection from callers with a token', () => {
    const {places, ended, take, strangers} = aTable()
    const trusted = take('192.0.2.1', 'trusted')
    places.trust(trusted)
    places.use(trusted, false)
    strangers(200)
    assert.equal(ended.includes('trusted'), false)
    assert.equal(ended.length, 200 - (40 - 4 - 1))
  })

  test('strangers do not take the places kept for known networks and this machine', () => {
    const {places, ended, take, strangers} = aTable()
    const before = take('192.0.2.1')
    places.trust(before)
    places.free(before)
    strangers(100)
    const count = ended.length
    const [again, probe] = [take('192.0.2.1', 'again'), take('127.0.0.1', 'probe')]
    assert.equal(ended.length, count, 'their places were free')
    strangers(100)
    assert.deepEqual([again.isClosed, probe.isClosed], [false, false])
  })

  test('one known network cannot keep the kept places', () => {
    const {places, take, strangers} = aTable()
    const loopback = Array.from({length: 30}, () => take('127.0.0.1'))
    const before = take('192.0.2.1')
    places.trust(before)
    places.free(before)
    const again = take('192.0.2.1')
    strangers(100)
    assert.equal(again.isClosed, false)
    assert.equal(loopback.filter(({isClosed}) => !isClosed).length <= 4, true)
  })

  test('with a token in every connection, one that waits for its next request ends', () => {
    const {places, ended, take} = aTable()
    const all = Array.from({length: 40}, (_, at) => {
      const place = take('192.0.2.1', `client ${at}`)
      places.trust(place)
      places.use(place, false)
      return place
    })
    take('192.0.2.9')
    assert.deepEqual(ended, ['client 0'])
    for (const place of all) places.use(place, true)
    take('192.0.2.9')
    assert.deepEqual(ended, ['client 0', '192.0.2.9'])
    places.trust(take('192.0.2.9'))
    const socket = {remoteAddress: '192.0.2.8', destroy: assert.fail} as unknown as Socket
    assert.equal(places.take(socket, assert.fail), null, 'all are in use')
  })
})

const LIVEZ = 'GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n'
const ENDS_WITHIN = {timeout: 60_000}

interface Attack {
  readonly what: string
  readonly text: string
  readonly addresses: number
  readonly isTls?: boolean
}

const ATTACKS: readonly Attack[] = [
  {what: 'one address that keeps answered connections', text: LIVEZ, addresses: 1},
  {what: 'eight addresses that keep answered connections', text: LIVEZ, addresses: 8},
  {what: 'eight addresses that send nothing', text: '', addresses: 8},
  {what: 'eight addresses with half a request', text: LIVEZ.slice(0, -2), addresses: 8},
  {what: 'one address over TLS', text: LIVEZ, addresses: 1, isTls: true},
  {what: 'eight addresses over TLS', text: LIVEZ, addresses: 8, isTls: true},
]

for (const attack of ATTACKS)
  test(`under ${attack.what}, callers, agents and probes are served`, ENDS_WITHIN, async (t) => {
    const {addresses, isTls = false} = attack
    const agents = {
      connect: () => ({receive: async () => {}, closed: () => {}}),
      stop: async () => {},
    }
    let full = 0
    const api = await startApi(t, {
      limits: LIMITS,
      token: TOKEN,
      agents,
      tls: isTls ? {cert: CERTIFICATE, key: PRIVATE_KEY} : null,
      onConnectionsFull: () => void (full += 1),
    })
    // Only other clients end what the attack holds; no time limit does.
    Object.assign(api.app.server, {headersTimeout: 0, keepAliveTimeout: 600_000})
    const {port} = api
    const joins = async () => {
      const url = `${isTls ? 'wss' : 'ws'}://127.0.0.1:${port}/v1/agent`
      const agent = new WebSocket(url, {headers: WITH_TOKEN, rejectUnauthorized: false})
      t.after(() => agent.terminate())
      await once(agent, 'open')
      return agent
    }
    const first = await joins()
    for (let round = 0; round < 4; round += 1) {
      const held = Array.from({length: 24}, (_, at) => {
        const localAddress = addresses === 1 ? '127.0.0.1' : `127.0.0.${2 + (at % addresses)}`
        return hold(t, {port, localAddress, isTls, text: attack.text})
      })
      await Promise.all(held)
      assert.equal(await statusOf({port, isTls, path: '/v1/jobs', headers: WITH_TOKEN}), 200)
      assert.equal(await statusOf({port, isTls, path: '/livez'}), 200)
      assert.equal((await joins()).readyState, WebSocket.OPEN)
    }
    assert.equal(first.readyState, WebSocket.OPEN, 'the agent of before')
    assert.ok(full > 0, 'places were taken')
  })

interface Target {
  readonly port: number
  readonly isTls: boolean
}

/** Opens a connection, sends this text, and keeps it. Resolves when it is answered, if it is complete. */
async function hold(
  t: TestContext,
  {
    port,
    localAddress,
    isTls,
    text,
  }: Target & {readonly localAddress: string; readonly text: string},
): Promise<void> {
  const to = {port, host: '127.0.0.1', localAddress}
  const socket = isTls ? connectTls({...to, rejectUnauthorized: false}) : connect(to)
  t.after(() => socket.destroy())
  socket.on('error', () => {})
  if (text !== '') socket.write(text)
  await Promise.race([once(socket, text === LIVEZ ? 'data' : 'connect'), once(socket, 'close')])
}

async function statusOf({
  port,
  isTls,
  path,
  headers = {},
}: Target & {readonly path: string; readonly headers?: Record<string, string>}) {
  const to = {port, host: '127.0.0.1', path, headers, agent: false} as const
  const sent = isTls ? getTls({...to, rejectUnauthorized: false}) : get(to)
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  await response.resume().toArray()
  return response.statusCode
}

test('a connection waits for its next request for seconds, with a token for longer', async (t) => {
  const api = await startApi(t, {token: TOKEN, limits: {anonymousKeepAliveMs: 5_000}})
  const {port} = api
  const timeoutOf = async (text: string) => {
    const accepted = once(api.app.server, 'connection') as Promise<[Socket]>
    const socket = connect({port, host: '127.0.0.1'})
    t.after(() => socket.destroy())
    socket.write(text)
    const [[server], [reply]] = await Promise.all([accepted, once(socket, 'data')])
    return {server, socket, hint: /^keep-alive: (.*)\r$/im.exec(String(reply))?.[1]}
  }
  const request = (headers: string) => `GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n${headers}\r\n`
  const stranger = await timeoutOf(request(''))
  assert.equal(stranger.hint, 'timeout=5')
  await api.eventually(() => stranger.server.timeout === 6_000)
  const caller = await timeoutOf(request(`X-Service-Token: ${TOKEN}\r\n`))
  assert.equal(caller.hint, `timeout=${KEEP_ALIVE_TIMEOUT_MS / 1000}`)
  await api.eventually(() => caller.server.timeout === KEEP_ALIVE_TIMEOUT_MS)
  const closing = await timeoutOf(request(`Connection: close\r\nX-Service-Token: ${TOKEN}\r\n`))
  assert.equal(closing.hint, undefined)
})
