/** Clients that hold connections: idle ones, slow ones, and upgrades that are refused and kept open. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {connect, type Socket} from 'node:net'
import {describe, test, type TestContext} from 'node:test'
import {AGENT_PATH} from '../../src/agents/protocol.ts'
import {LIMITS} from '../../src/config/limits.ts'
import {HEADERS_TIMEOUT_MS, REQUEST_TIMEOUT_MS} from '../../src/http/options.ts'
import {type Api, startApi} from './harness.ts'

const HEAD = 'Host: localhost\r\n'
const ENDS_WITHIN = {timeout: 100_000}
/** This process holds both ends: with its usual limit of descriptors, 9,900 are possible. */
const IDLE = Number(process.env['BELFRY_IDLE_CONNECTIONS'] ?? 1_500)
/** Fewer than the kernel queues for a server that is busy. */
const OPENED_AT_ONCE = 100

/** Opens a connection that keeps its side open whatever the server does, and sends these bytes. */
function open(t: TestContext, api: Api, text = ''): Socket {
  const socket = connect({port: api.port, host: '127.0.0.1', allowHalfOpen: true})
  t.after(() => socket.destroy())
  socket.on('error', () => undefined)
  if (text !== '') socket.write(text)
  return socket
}

/** Everything that arrives until the server ends the connection. */
async function received(socket: Socket): Promise<string> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(socket, 'end')
  return Buffer.concat(chunks).toString('utf8')
}

/** Sockets that the server holds. */
function held(api: Api): () => number {
  let count = 0
  api.app.server.on('connection', (socket: Socket) => {
    count += 1
    socket.once('close', () => (count -= 1))
  })
  return () => count
}

describe('clients that hold connections', {concurrency: true}, () => {
  test('thousands of idle connections do not block requests', ENDS_WITHIN, async (t) => {
    const api = await startApi(t, {
      limits: {
        connectionsMax: IDLE + 1,
        networkConnectionsPercent: 100,
        replyStalledMs: 600_000,
      },
    })
    // Opening all connections may take longer than the server keeps a silent client.
    api.app.server.headersTimeout = 0
    const count = held(api)
    for (let opened = 0; opened < IDLE; opened += OPENED_AT_ONCE) {
      const wave = Array.from({length: OPENED_AT_ONCE}, () => once(open(t, api), 'connect'))
      await Promise.all(wave)
    }
    assert.equal((await api.get('/v1/jobs')).status, 200)
    await api.eventually(() => count() === IDLE)
    for (let more = 0; more < 2; more += 1) await once(open(t, api), 'connect')
    await api.eventually(() => count() === IDLE + 1)
    assert.equal((await api.get('/v1/jobs')).status, 200)
    await api.app.close()
    await api.eventually(() => count() === 0)
  })

  test('slow headers, slow bodies and silent connections are ended', ENDS_WITHIN, async (t) => {
    const api = await startApi(t, {limits: {replyStalledMs: 1_000}})
    const {server} = api.app
    assert.deepEqual(
      [server.headersTimeout, server.requestTimeout, server.keepAliveTimeout],
      [HEADERS_TIMEOUT_MS, REQUEST_TIMEOUT_MS, LIMITS.anonymousKeepAliveMs.value],
    )
    // Node looks for them every five seconds.
    Object.assign(server, {headersTimeout: 10, requestTimeout: 20})
    const count = held(api)
    const drip = (socket: Socket) => {
      const timer = setInterval(() => socket.write('x'), 100)
      socket.once('close', () => clearInterval(timer))
      return received(socket).finally(() => clearInterval(timer))
    }
    const slowHeaders = drip(open(t, api, `GET /v1/jobs HTTP/1.1\r\n${HEAD}X: `))
    const length = 'Content-Length: 100000\r\n\r\n'
    const slowBodies = [
      '/v1/jobs',
      '/v1/pause',
      '/v1/restore',
      '/v1/acl/bootstrap',
      '/nothing',
    ].map((path) => drip(open(t, api, `POST ${path} HTTP/1.1\r\n${HEAD}${length}`)))
    assert.equal(await received(open(t, api)), '', 'a client without a request')
    assert.match(await slowHeaders, /^HTTP\/1\.1 408 [^]*"code":"request_timeout"/)
    for (const text of await Promise.all(slowBodies)) assert.match(text, /^(HTTP\/1\.1 4|$)/)
    await api.eventually(() => count() === 0)
    assert.deepEqual(api.faults, [])
  })

  test(
    'a refused upgrade frees its descriptor, although its client keeps it',
    ENDS_WITHIN,
    async (t) => {
      const agents = {
        connect: () => assert.fail('no agent was accepted'),
        stop: async () => undefined,
      }
      const api = await startApi(t, {agents, limits: {replyStalledMs: 1_000}})
      // A request served as if it named no upgrade stays open for the next one.
      api.app.server.keepAliveTimeout = 1
      const count = held(api)
      const socket = 'Connection: Upgrade\r\nUpgrade: websocket\r\n'
      const key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
      const version = 'Sec-WebSocket-Version: 13\r\n'
      const upgrades: readonly (readonly [path: string, headers: string, status: number])[] = [
        [AGENT_PATH, `${HEAD}${socket}${key}`, 400],
        [AGENT_PATH, `${HEAD}${socket}${version}`, 400],
        [AGENT_PATH, `${HEAD}${socket}${version}Sec-WebSocket-Key: x\r\n`, 400],
        [AGENT_PATH, `${HEAD}${socket}${key}Sec-WebSocket-Version: 99\r\n`, 400],
        [AGENT_PATH, `Host: evil.example\r\n${socket}${version}${key}`, 421],
        [AGENT_PATH, `${HEAD}${socket}${version}${key}Origin: http://evil.example\r\n`, 403],
        [AGENT_PATH, `${HEAD}${socket}${version}${key}Via: proxy\r\n`, 403],
        [AGENT_PATH, `${socket}${version}${key}`, 400],
        ['/v1/jobs', `${HEAD}${socket}${version}${key}`, 200],
        ['/v1/jobs', `${HEAD}Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n`, 200],
        ['/nothing', `${HEAD}${socket}${version}${key}`, 404],
      ]
      for (const [path, headers, status] of upgrades) {
        const text = `GET ${path} HTTP/1.1\r\n${headers}\r\n`
        const own = open(t, api, text)
        const reply = await received(own)
        assert.match(reply, new RegExp(`^HTTP/1\\.1 ${status} `), `${text} ${reply}`)
        assert.ok(own.writable, 'the client has not ended its side')
      }
      await api.eventually(() => count() === 0)
    },
  )
})
