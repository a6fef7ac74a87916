/** Access from other hosts, web sites and clients: Basic, host names, origins, and what needs no token. */
import assert from 'node:assert/strict'
import {connect} from 'node:net'
import {test, type TestContext} from 'node:test'
import {FAILURES_MAX} from '../../src/http/security/auth.ts'
import {rawReply} from '../support/raw-reply.ts'
import {startApi, type Api} from './harness.ts'

const TOKEN = 'a-token-of-some-length'
const SITE = 'https://ops.example.org'

const basic = (text: string) => `Basic ${Buffer.from(text).toString('base64')}`

test('Basic carries the token as password or, without one, as user name', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  for (const login of [`any:${TOKEN}`, `:${TOKEN}`, `${TOKEN}:`, TOKEN]) {
    const reply = await api.get('/v1/jobs', {authorization: basic(login)})
    assert.equal(reply.status, 200, login)
    assert.equal((await api.get('/metrics', {authorization: basic(login)})).status, 200)
  }
  for (const login of [`${TOKEN}:wrong`, 'any:', ':', `any:${TOKEN}x`, ''])
    assert.equal((await api.get('/v1/jobs', {authorization: basic(login)})).status, 401, login)
  for (const authorization of ['Basic', 'Basic !', `Basic ${TOKEN}`])
    assert.equal((await api.get('/v1/jobs', {authorization})).status, 401, authorization)
})

test('a 401 makes a browser ask for a login for pages, but not for their scripts', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  const challenge = async (headers: Record<string, string>) =>
    String((await api.get('/docs', headers)).headers['www-authenticate'])
  for (const headers of [{}, {'sec-fetch-mode': 'navigate'}])
    assert.match(await challenge(headers), /Basic realm=/)
  for (const headers of [{'sec-fetch-mode': 'cors'}, {'x-requested-with': 'XMLHttpRequest'}])
    assert.doesNotMatch(await challenge(headers), /Basic/)
})

/**
 * Reads from a client that sends this head of a request and waits for more, until `expected` is in the
 * reply.
 */
async function readUntil(t: TestContext, api: Api, head: string, expected: RegExp) {
  const socket = connect(api.port, '127.0.0.1')
  t.after(() => socket.destroy())
  socket.write(`${head}\r\n\r\n`)
  let text = ''
  for await (const chunk of socket) {
    text += String(chunk)
    if (expected.test(text)) break
  }
  return text
}

test('the challenge is two fields, Basic first, on every way to a 401', async (t) => {
  const agents = {connect: () => assert.fail('no agent was accepted'), stop: async () => undefined}
  const api = await startApi(t, {token: TOKEN, agents})
  const upgrade =
    'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n' +
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='
  for (const request of ['GET /v1/jobs HTTP/1.1', `GET /v1/agent HTTP/1.1\r\n${upgrade}`]) {
    const text = await readUntil(t, api, `${request}\r\nHost: localhost`, /\}$/)
    const fields = [...text.matchAll(/^www-authenticate: (.*)\r$/gim)].map(([, value]) => value)
    const basicField = 'Basic realm="belfry", charset="UTF-8"'
    assert.deepEqual(fields, [basicField, 'Bearer realm="belfry"'], text)
  }
})

test('a client without a token is not asked for a body, one with a token is', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  const head =
    'POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9'
  assert.match(await readUntil(t, api, head, /\r\n\r\n/), /^HTTP\/1\.1 401 /)
  const asked = await readUntil(t, api, `${head}\r\nX-Service-Token: ${TOKEN}`, /\r\n\r\n/)
  assert.match(asked, /^HTTP\/1\.1 100 /)
})

test('a request with a valid token may use any host name', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  const host = 'scheduler.default.svc.cluster.local:8080'
  assert.equal((await api.get('/v1/jobs', {host, 'x-service-token': TOKEN})).status, 200)
  assert.equal((await api.get('/v1/jobs', {host, authorization: basic(`u:${TOKEN}`)})).status, 200)
  assert.equal((await api.get('/v1/jobs', {host})).json.code, 'host_not_served')
  assert.equal((await api.get('/livez', {host})).json.code, 'host_not_served')
  const open = await startApi(t)
  const ignored = await open.get('/v1/jobs', {host, 'x-service-token': TOKEN})
  assert.equal(ignored.json.code, 'host_not_served', 'no token is configured')
})

test('wrong tokens count as failures under unknown host names too', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  const headers = {host: 'unknown.example', 'x-service-token': 'a guess'}
  for (let count = 0; count < FAILURES_MAX; count += 1)
    assert.equal((await api.get('/v1/jobs', headers)).status, 421)
  assert.equal((await api.get('/v1/jobs', headers)).json.code, 'too_many_failures')
  assert.equal((await api.get('/v1/jobs', {'x-service-token': 'a guess'})).status, 429)
})

test('a page under an allowed host name is ours, although a proxy changes Host', async (t) => {
  const api = await startApi(t, {allowHosts: ['sched.example.com']})
  const post = (origin: string, more = {}) => api.post('/v1/unpause', undefined, {origin, ...more})
  assert.equal((await post('https://sched.example.com')).status, 200)
  assert.equal((await post('https://SCHED.example.com:8443')).status, 200)
  for (const origin of ['https://example.com', 'https://sched.example.com.evil.example', 'null'])
    assert.equal((await post(origin)).json.code, 'origin_refused', origin)
  const foreign = await post('https://sched.example.com', {'sec-fetch-site': 'cross-site'})
  assert.equal(foreign.status, 403)
})

test('pages of a --cors-origin may use the API, those of other sites may not', async (t) => {
  const api = await startApi(t, {token: TOKEN, corsOrigins: [SITE]})
  const headers = {origin: SITE, 'sec-fetch-site': 'cross-site', 'x-service-token': TOKEN}
  const read = await api.get('/v1/jobs', headers)
  assert.deepEqual([read.status, read.headers['access-control-allow-origin']], [200, SITE])
  assert.match(String(read.headers['access-control-expose-headers']), /X-Total-Count/)
  assert.match(String(read.headers['access-control-expose-headers']), /X-Action/)
  assert.match(String(read.headers.vary), /Origin/)
  assert.equal(read.headers['access-control-allow-credentials'], undefined)
  assert.equal((await api.post('/v1/pause', undefined, headers)).status, 200)
  const refused = await api.get('/v1/jobs', {origin: SITE})
  assert.deepEqual([refused.status, refused.headers['access-control-allow-origin']], [401, SITE])

  const other = {...headers, origin: 'https://other.example'}
  assert.equal((await api.post('/v1/unpause', undefined, other)).json.code, 'origin_refused')
  const unshared = await api.get('/v1/jobs', other)
  assert.equal(unshared.headers['access-control-allow-origin'], undefined)
  assert.match(String(unshared.headers.vary), /Origin/)
})

test('a browser may ask before it sends a request of an allowed site', async (t) => {
  const api = await startApi(t, {token: TOKEN, corsOrigins: [SITE]})
  const asked = {'access-control-request-method': 'DELETE'}
  const ask = (origin: string, more = {}) =>
    api.call('OPTIONS', '/v1/jobs/x', {headers: {origin, ...asked, ...more}})
  const allowed = await ask(SITE)
  assert.deepEqual([allowed.status, allowed.text], [204, ''])
  assert.equal(allowed.headers['access-control-allow-origin'], SITE)
  assert.match(String(allowed.headers['access-control-allow-methods']), /DELETE/)
  assert.match(String(allowed.headers['access-control-allow-headers']), /X-Service-Token/)
  assert.equal((await ask('https://other.example')).status, 401)
  assert.equal((await ask(SITE, {host: 'evil.example'})).status, 421)
  const off = await startApi(t, {})
  const reply = await off.call('OPTIONS', '/v1/jobs/x', {headers: {origin: SITE, ...asked}})
  assert.equal(reply.status, 405)
})

test('readiness names the cause only to a client with a token', async (t) => {
  const state = {
    ok: false,
    checks: {store: 'not readable and writable'},
    details: {store: 'not readable and writable: no answer from db.internal:5432'},
  }
  const api = await startApi(t, {token: TOKEN, ready: async () => state})
  for (const headers of [{}, {'x-service-token': 'wrong'}]) {
    const reply = await api.get('/readyz', headers)
    assert.deepEqual([reply.status, reply.json.checks], [503, state.checks])
  }
  const known = await api.get('/readyz', {'x-service-token': TOKEN})
  assert.deepEqual([known.status, known.json.checks], [503, state.details])
  const local = await startApi(t, {ready: async () => state})
  assert.deepEqual((await local.get('/readyz')).json.checks, state.details)
  const proxied = await local.get('/readyz', {via: '1.1 proxy'})
  assert.deepEqual(proxied.json.checks, state.checks)
  assert.equal(proxied.headers['x-whom'], undefined)
})

test('no reply of the API may be stored by a cache', async (t) => {
  const api = await startApi(t)
  await api.job('kept')
  for (const path of ['/v1', '/v1/jobs/kept', '/v1/jobs', '/v1/nothing', '/v1/jobs/%zz', '/readyz'])
    assert.equal((await api.get(path)).headers['cache-control'], 'no-store', path)
  const submit = await api.post('/v1/jobs', '{')
  assert.equal(submit.headers['cache-control'], 'no-store')
  const refused = await api.get('/v1/jobs', {host: 'evil.example'})
  assert.equal(refused.headers['cache-control'], 'no-store')
})

/** Everything received until the end of the connection, in reply to these lines of a header. */
function replyTo(api: Api, ...lines: string[]): Promise<string> {
  return rawReply(api.port, `${[...lines, 'Connection: close'].join('\r\n')}\r\n\r\n`)
}

test('several Host headers are 400, also when they are equal', async (t) => {
  const api = await startApi(t)
  const reply = await replyTo(api, 'GET /v1/jobs HTTP/1.1', 'Host: localhost', 'HOST: localhost')
  assert.match(reply, /^HTTP\/1\.1 400 /)
  assert.match(reply, /"code":"request_malformed"/)
})

test('an unknown expectation is 417 with the headers of every reply', async (t) => {
  const api = await startApi(t)
  const reply = await replyTo(api, 'POST /v1/pause HTTP/1.1', 'Host: localhost', 'Expect: foo')
  assert.match(reply, /^HTTP\/1\.1 417 /)
  assert.match(reply, /x-whom: node-a/i)
  assert.match(reply, /"code":"expectation_unsupported"/)
  assert.equal(await api.store.submissionsPaused(), false)
  const known = await replyTo(
    api,
    'POST /v1/pause HTTP/1.1',
    'Host: localhost',
    'Expect: 100-continue',
  )
  assert.match(known, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /)
})

test('several slashes at the start of a path are one', async (t) => {
  const api = await startApi(t)
  await api.job('found')
  for (const path of ['//v1/jobs/found', '///v1/jobs/found/', '//livez'])
    assert.equal((await api.get(path)).status, 200, path)
  assert.equal((await api.get('/v1//jobs/found')).status, 404)
})

test('the reply to a compressed body names the encoding that is accepted', async (t) => {
  const api = await startApi(t)
  const reply = await api.post('/v1/acl/policies/p', 'x', {'content-encoding': 'gzip'})
  assert.deepEqual([reply.status, reply.headers['accept-encoding']], [415, 'identity'])
})
