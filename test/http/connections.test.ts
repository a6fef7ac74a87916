/** Connections: none outlives its use, a shutdown ends, and pipelined requests keep their order. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {writeFile} from 'node:fs/promises'
import {connect, type Socket} from 'node:net'
import {test, type TestContext} from 'node:test'
import {AGENT_PATH} from '../../src/agents/protocol.ts'
import {listenAlso} from '../../src/http/security/connections.ts'
import {PIPELINED_MAX} from '../../src/http/options.ts'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'
import {startApi, type Api} from './harness.ts'

const ENDS_WITHIN = {timeout: 20_000}
const HEAD = 'Host: localhost\r\n'
const TOKEN = 'a-token-of-some-length'

/** A client connection, and the socket that the server accepted for it. */
async function open(t: TestContext, api: Api, text = ''): Promise<{own: Socket; accepted: Socket}> {
  const accepted = once(api.app.server, 'connection')
  const own = connect({port: api.port, host: '127.0.0.1', allowHalfOpen: true})
  t.after(() => own.destroy())
  own.on('error', () => undefined)
  own.write(text)
  const [socket] = (await accepted) as [Socket]
  return {own, accepted: socket}
}

async function closed(socket: Socket): Promise<void> {
  if (!socket.closed) await once(socket, 'close')
}

/** Everything that arrives until the server ends the connection. */
async function received(socket: Socket): Promise<string> {
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(socket, 'end')
  return Buffer.concat(chunks).toString('utf8')
}

const statuses = (text: string) => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, code]) => code)

/** A store method that waits until the test releases it. */
function blocked(method: 'members' | 'submissionsPaused' | 'setPaused') {
  const calls: (() => void)[] = []
  return {
    calls,
    wrapStore: (store: Api['store']) => ({
      ...store,
      [method]: async (...input: never[]) => {
        await new Promise<void>((resolve) => calls.push(resolve))
        return (store[method] as (...input: never[]) => Promise<unknown>)(...input)
      },
    }),
  }
}

const UPGRADE =
  `GET ${AGENT_PATH} HTTP/1.1\r\n${HEAD}Connection: Upgrade\r\nUpgrade: websocket\r\n` +
  'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'
const AGENTS = {connect: () => assert.fail('no agent was accepted'), stop: async () => undefined}

test(
  'a refused agent connection is closed even if its client keeps it open',
  ENDS_WITHIN,
  async (t) => {
    const api = await startApi(t, {token: 'a-token-of-some-length', agents: AGENTS})
    const {own, accepted} = await open(t, api, UPGRADE)
    assert.match(await received(own), /^HTTP\/1\.1 401 /)
    // A byte that the server does not read hides the end of the connection from it.
    own.end('x')
    await closed(accepted)
  },
)

test(
  'a malformed request ends its connection, although the client keeps it',
  ENDS_WITHIN,
  async (t) => {
    const api = await startApi(t)
    for (const text of ['nonsense\r\n\r\n', `GET /v1/jobs HTTP/1.1\r\nX: ${'x'.repeat(20_000)}`]) {
      const {own, accepted} = await open(t, api, text)
      assert.match(await received(own), /^HTTP\/1\.1 4\d\d /)
      await closed(accepted)
      assert.ok(own.writable, 'the client has not ended its side')
    }
  },
)

test('a shutdown closes connections without a complete request', ENDS_WITHIN, async (t) => {
  for (const tls of [null, {cert: CERTIFICATE, key: PRIVATE_KEY}]) {
    const api = await startApi(t, {tls, agents: AGENTS})
    await open(t, api)
    await open(t, api, `GET /v1/jobs HTTP/1.1\r\nHos`)
    await open(t, api, `POST /v1/jobs HTTP/1.1\r\n${HEAD}`)
    await api.app.close()
    assert.equal(api.clock.waiting, 0)
  }
})

test(
  'a shutdown ends requests whose body never arrives, after its timeout',
  ENDS_WITHIN,
  async (t) => {
    const api = await startApi(t)
    const text = `POST /v1/jobs HTTP/1.1\r\n${HEAD}Content-Length: 9\r\n\r\n{`
    const received = once(api.app.server, 'request')
    const {accepted} = await open(t, api, text)
    await received
    const closing = api.app.close()
    await api.eventually(() => api.clock.waiting === 1)
    await api.clock.advance(2_000)
    await closing
    await closed(accepted)
  },
)

test('a shutdown closes connections that are accepted during it', ENDS_WITHIN, async (t) => {
  const members = blocked('members')
  const api = await startApi(t, members)
  const slow = api.get('/v1/members')
  await api.eventually(() => members.calls.length === 1)
  const closing = api.app.close()
  const {accepted} = await open(t, api, 'GET /v1/jo')
  await api.eventually(() => accepted.bytesRead > 0)
  members.calls[0]!()
  assert.equal((await slow).status, 200)
  await closing
})

test('a further address is served like the first, until the shutdown', ENDS_WITHIN, async (t) => {
  const api = await startApi(t)
  const {port} = api
  await listenAlso(api.app.server, {host: '127.0.0.2', port})
  const other = `http://127.0.0.2:${port}`
  assert.equal((await fetch(`${other}/v1/jobs`)).status, 200)
  const malformed = connect(port, '127.0.0.2').end('nonsense\r\n\r\n')
  assert.match(await received(malformed), /"code":"request_malformed"/)
  const half = connect(port, '127.0.0.2')
  half.write('GET /v1/jo')
  await once(api.app.server, 'connection')
  await api.app.close()
  await closed(half.resume())
  await assert.rejects(fetch(`${other}/v1/jobs`))
  await listenAlso(api.app.server, {host: '203.0.113.1', port})
})

test(
  'a connection over the limit closes one that waits, and is closed if all are in use',
  ENDS_WITHIN,
  async (t) => {
    let full = 0
    const members = blocked('members')
    const api = await startApi(t, {
      ...members,
      token: TOKEN,
      limits: {connectionsMax: 2, networkConnectionsPercent: 100},
      onConnectionsFull: () => void (full += 1),
    })
    const {own} = await open(t, api)
    const ended = received(own)
    await open(t, api)
    assert.equal((await api.get('/livez')).status, 200)
    assert.equal(await ended, '')
    assert.equal(full, 1)
    const slow = [1, 2].map(() => api.get('/v1/members', {'x-service-token': TOKEN}))
    await api.eventually(() => members.calls.length === 2)
    const refused = connect(api.port, '127.0.0.1')
    assert.equal(await received(refused), '')
    for (const release of members.calls) release()
    for (const reply of slow) assert.equal((await reply).status, 200)
  },
)

test(
  'a client that stops reading a backup is disconnected, so that the next one can run',
  ENDS_WITHIN,
  async (t) => {
    const bytes = Buffer.alloc(64 * 1024 * 1024, 'SQLite')
    const api = await startApi(t, {
      limits: {replyStalledMs: 100},
      wrapStore: (store) => ({...store, backup: (file: string) => writeFile(file, bytes)}),
    })
    const {own, accepted} = await open(t, api, `GET /v1/backup HTTP/1.1\r\n${HEAD}\r\n`)
    own.pause()
    await closed(accepted)
    let next = await api.get('/v1/backup')
    // The end of a reply is handled a moment after the end of its connection.
    while (next.status === 409) next = await api.get('/v1/backup')
    assert.equal(next.text.length, bytes.length)
  },
)

test(
  'a request that the server takes long to answer is not disconnected',
  ENDS_WITHIN,
  async (t) => {
    const members = blocked('members')
    const api = await startApi(t, {...members, limits: {replyStalledMs: 50}})
    const slow = api.get('/v1/members')
    await once(api.app.server, 'timeout')
    members.calls[0]!()
    assert.equal((await slow).status, 200)
  },
)

const JOB = '{"name":"piped","schedule":"@manually"}'
const PIPED = [
  `POST /v1/jobs HTTP/1.1\r\n${HEAD}Content-Length: ${JOB.length}\r\n\r\n${JOB}`,
  `GET /v1/jobs/piped HTTP/1.1\r\n${HEAD}\r\n`,
  `DELETE /v1/jobs/piped HTTP/1.1\r\n${HEAD}\r\n`,
  `GET /v1/jobs/piped HTTP/1.1\r\n${HEAD}Connection: close\r\n\r\n`,
].join('')

test('pipelined requests see the changes of those before them', ENDS_WITHIN, async (t) => {
  const api = await startApi(t)
  for (let round = 0; round < 3; round += 1) {
    const {own} = await open(t, api, PIPED)
    assert.deepEqual(statuses(await received(own)), ['201', '200', '200', '404'])
  }
})

test('pipelined reads run together, and a change waits for them', ENDS_WITHIN, async (t) => {
  const members = blocked('members')
  const api = await startApi(t, members)
  const read = `GET /v1/members HTTP/1.1\r\n${HEAD}\r\n`
  const change = `POST /v1/pause HTTP/1.1\r\n${HEAD}Connection: close\r\n\r\n`
  const {own} = await open(t, api, read + read + change)
  await api.eventually(() => members.calls.length === 2)
  assert.equal(await api.store.submissionsPaused(), false)
  for (const release of members.calls) release()
  assert.deepEqual(statuses(await received(own)), ['200', '200', '200'])
  assert.equal(await api.store.submissionsPaused(), true)
})

test('a connection is closed when too many of its requests wait', ENDS_WITHIN, async (t) => {
  const pause = blocked('setPaused')
  const api = await startApi(t, pause)
  const change = `POST /v1/pause HTTP/1.1\r\n${HEAD}\r\n`
  const read = `GET /livez HTTP/1.1\r\n${HEAD}\r\n`
  const last = `GET /livez HTTP/1.1\r\n${HEAD}Connection: close\r\n\r\n`
  const {own} = await open(t, api, change + read.repeat(PIPELINED_MAX - 1) + last)
  await api.eventually(() => pause.calls.length === 1)
  pause.calls[0]!()
  assert.equal(statuses(await received(own)).length, PIPELINED_MAX + 1)
  const {accepted} = await open(t, api, change + read.repeat(20 * PIPELINED_MAX))
  await closed(accepted)
  pause.calls[1]?.()
  await api.app.close()
})

test('requests that wait on a lost connection are dropped', ENDS_WITHIN, async (t) => {
  const pause = blocked('setPaused')
  const api = await startApi(t, pause)
  const job = JSON.stringify({name: 'dropped', schedule: '@manually'})
  const {own, accepted} = await open(
    t,
    api,
    `POST /v1/pause HTTP/1.1\r\n${HEAD}\r\n` +
      `POST /v1/jobs HTTP/1.1\r\n${HEAD}Content-Length: ${job.length}\r\n\r\n${job}`,
  )
  await api.eventually(() => pause.calls.length === 1)
  own.destroy()
  await closed(accepted)
  pause.calls[0]!()
  await api.app.close()
  assert.equal(await api.store.job('dropped'), null)
})

test(
  'malformed bytes are not answered in place of a request in progress',
  ENDS_WITHIN,
  async (t) => {
    const pause = blocked('setPaused')
    const api = await startApi(t, pause)
    const change = `POST /v1/pause HTTP/1.1\r\n${HEAD}\r\n`
    const {own} = await open(t, api, change)
    await api.eventually(() => pause.calls.length === 1)
    own.write('nonsense\r\n\r\n')
    assert.equal(await received(own), '')
    const next = await open(t, api, change)
    await api.eventually(() => pause.calls.length === 2)
    for (const release of pause.calls) release()
    await once(next.own, 'data')
    next.own.write('nonsense\r\n\r\n')
    assert.deepEqual(statuses(await received(next.own)), ['400'])
  },
)
