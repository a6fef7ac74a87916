/** Rules for every reply: security headers, the form of refusals, and that reading changes nothing. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AGENT_PATH} from '../../src/agents/protocol.ts'
import type {Store} from '../../src/ports/store.ts'
import {METHODS} from '../../src/store/sql/methods.ts'
import {rawReply} from '../support/raw-reply.ts'
import {Stream} from './harness.ts'
import {startLockedApi} from './tokens.ts'

const AGENTS = {connect: () => assert.fail('no agent was accepted'), stop: async () => undefined}
const UPGRADE = 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n'
const CLOSE = 'Connection: close\r\n'
const HOST = 'Host: localhost\r\n'

test('every reply has its security headers, and every refusal is a problem', async (t) => {
  const locked = await startLockedApi(t, {agents: AGENTS})
  const {api} = locked
  const reader = `X-Service-Token: ${(await locked.token('read')).secret}\r\n`
  const from = 'Origin: http://evil.example\r\n'
  const requests: readonly (readonly [status: number, line: string, headers: string])[] = [
    [200, 'GET /livez', HOST + CLOSE],
    [200, 'GET /ui/', HOST + CLOSE],
    [200, 'GET /docs', HOST + CLOSE + reader],
    [200, 'GET /v1/jobs', HOST + CLOSE + reader],
    [400, 'GET /v1/%zz', HOST + CLOSE + reader],
    [400, 'GET /v1/jobs', CLOSE + reader],
    [400, 'nonsense', HOST],
    [401, 'GET /v1/jobs', HOST + CLOSE],
    [401, 'DELETE /v1/jobs/x', HOST + CLOSE],
    [401, 'POST /v1/jobs', HOST + CLOSE],
    [401, `GET ${AGENT_PATH}`, HOST + UPGRADE],
    [403, 'POST /v1/jobs/x/run', HOST + CLOSE + reader],
    [403, 'POST /v1/restore', HOST + CLOSE + reader],
    [403, 'DELETE /v1/acl/tokens/x', HOST + CLOSE + reader],
    [403, 'POST /v1/jobs', HOST + CLOSE + reader + from],
    [403, `GET ${AGENT_PATH}`, HOST + UPGRADE + reader],
    [404, 'GET /nothing', HOST + CLOSE + reader],
    [405, 'DELETE /v1/pause', HOST + CLOSE + reader],
    [417, 'GET /v1/jobs', `${HOST}${CLOSE}${reader}Expect: x\r\n`],
    [421, 'GET /v1/jobs', `Host: evil.example\r\n${CLOSE}`],
    [421, `GET ${AGENT_PATH}`, `Host: evil.example\r\n${UPGRADE}`],
    [431, 'GET /v1/jobs', `${HOST}X: ${'x'.repeat(40_000)}\r\n`],
  ]
  for (const [status, line, headers] of requests) {
    const text = `${line} HTTP/1.1\r\n${headers}\r\n`
    const reply = await rawReply(api.port, text, {mayReset: true})
    const about = `${line} ${status}: ${reply.slice(0, 600)}`
    assert.match(reply, new RegExp(`^HTTP/1\\.1 ${status} `), about)
    assert.match(reply, /^x-content-type-options: nosniff\r$/im, about)
    assert.match(reply, /^content-security-policy: [^\r]*frame-ancestors 'none'/im, about)
    assert.match(reply, /^cache-control: no-(store|cache)\r$/im, about)
    if (status >= 400) assert.match(reply, /^content-type: application\/problem\+json/im, about)
    assert.equal(/^www-authenticate: Basic/im.test(reply), status === 401, about)
    assert.doesNotMatch(reply, /^(x-powered-by|server):/im, about)
  }
})

test('no GET, HEAD or OPTIONS request writes to the store', async (t) => {
  const writes: string[] = []
  const kinds: Readonly<Record<string, {readonly kind: string}>> = METHODS
  const wrapStore = (store: Store) =>
    new Proxy(store, {
      get: (target, name: keyof Store) => {
        if (kinds[name]?.kind === 'write') writes.push(name)
        return target[name]
      },
    })
  const locked = await startLockedApi(t, {wrapStore})
  const {api, headers} = locked
  await api.join()
  await locked.job('read')
  await locked.policy('read', {path: {}})
  const {accessor} = await locked.token('read')
  await api.store.requestRun({name: 'read', forced: true, idempotency: null})
  await api.launch()
  const {execution} = (await api.claim())[0]!
  const parameters: Readonly<Record<string, string>> = {
    name: 'read',
    execution: `${execution.group}-${execution.node}-${execution.attempt}`,
    group: String(execution.group),
    revision: '1',
    accessor,
  }
  const {json} = await api.get('/v1/openapi.json', headers)
  const paths = Object.entries(json.paths as Record<string, object>)
  const reads = paths.filter(([, methods]) => 'get' in methods).map(([path]) => path)
  assert.ok(reads.length > 30)
  writes.length = 0
  for (const pattern of reads) {
    const path = pattern.replace(/\{(\w+)\}/g, (_all, name: string) => parameters[name] ?? '')
    if (pattern === '/v1/events') (await Stream.open(api, path, headers)).close()
    else assert.ok((await api.get(`${path}?schedule=@daily&run=true`, headers)).status < 500, path)
    await api.call('HEAD', path, {headers})
    await api.call('OPTIONS', path, {headers})
    assert.deepEqual(writes, [], path)
  }
})
