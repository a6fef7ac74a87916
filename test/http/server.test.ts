/** Authentication, error replies, deadlines, graceful shutdown, and the routes outside of /v1. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {
  type AuthRequest,
  AuthRateLimit,
  Authenticator,
  FAILURE_WINDOW_MS,
  FAILURES_MAX,
} from '../../src/http/security/auth.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {rawReply} from '../support/raw-reply.ts'
import {Api, type Reply, startApi} from './harness.ts'

const TOKEN = 'a-token-of-some-length'
const PROBLEM = 'application/problem+json; charset=utf-8'

function refused(reply: Reply, status: number, code: string, about = ''): void {
  assert.deepEqual([reply.status, reply.json?.code], [status, code], `${about} ${reply.text}`)
  assert.equal(reply.headers['content-type'], PROBLEM)
  assert.deepEqual(
    [reply.json.status, reply.json.type, typeof reply.json.title, typeof reply.json.detail],
    [status, `urn:belfry:error:${code}`, 'string', 'string'],
  )
  assert.equal(reply.headers['x-whom'], 'node-a')
}

test('with a token configured, every route but the public ones answers 401 without it', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  const protectedPaths = [
    '/v1/jobs',
    '/v1',
    '/v1/nothing',
    '/metrics',
    '/docs',
    '/v1/openapi.json',
    '/nothing',
  ]
  for (const path of protectedPaths) {
    const reply = await api.get(path)
    refused(reply, 401, 'token_required', path)
    assert.match(String(reply.headers['www-authenticate']), /Bearer/)
  }
  refused(await api.post('/v1/jobs', {name: 'x', schedule: '@daily'}), 401, 'token_required')
  const good: Record<string, string>[] = [
    {'x-service-token': TOKEN},
    {'x-dkron-token': TOKEN},
    {authorization: `Bearer ${TOKEN}`},
    {authorization: `bearer ${TOKEN}`},
    {'x-service-token': 'wrong', authorization: `Bearer ${TOKEN}`},
  ]
  for (const headers of good) {
    assert.equal((await api.get('/v1/jobs', headers)).status, 200)
    assert.equal((await api.get('/metrics', headers)).text, 'up 1\n')
  }
  const bad: Record<string, string>[] = [
    {'x-service-token': ''},
    {'x-service-token': `${TOKEN}x`},
    {'x-service-token': TOKEN.slice(1)},
    {authorization: TOKEN},
    {authorization: `Basic ${TOKEN}`},
    {cookie: `token=${TOKEN}`},
  ]
  const texts = new Set<string>()
  for (const headers of bad) {
    const reply = await api.get('/v1/jobs', headers)
    refused(reply, 401, 'token_required')
    texts.add(reply.text)
  }
  assert.equal(texts.size, 1, 'the replies do not differ')
  assert.equal((await api.get(`/v1/jobs?token=${TOKEN}`)).status, 401)
  for (const path of ['/livez', '/readyz', '/health', '/ui/', '/ui/page.js', '/']) {
    const reply = await api.get(path)
    assert.equal(reply.status, 200, path)
    assert.equal(reply.headers['x-whom'], undefined, 'public routes do not show the node name')
    assert.ok(!reply.text.includes('node-a'))
  }
})

test('without a configured token, local clients are served and proxied requests are not', async (t) => {
  const api = await startApi(t)
  assert.equal((await api.get('/v1/jobs', {'x-service-token': 'anything'})).status, 200)
  for (const name of ['Forwarded', 'X-Forwarded-For', 'X-Forwarded-Proto', 'X-Real-IP', 'Via']) {
    const reply = await api.get('/v1/jobs', {[name]: '1.2.3.4'})
    refused(reply, 403, 'token_not_configured')
    assert.match(reply.json.detail, /Set a token/)
  }
  assert.equal((await api.get('/livez', {via: '1.1 proxy'})).status, 200)
})

function authRequest(more: Partial<AuthRequest>): AuthRequest {
  const headers = {host: '127.0.0.1', ...more.headers}
  return {
    method: 'GET',
    httpVersion: '1.1',
    address: '127.0.0.1',
    access: 'protected',
    isStream: false,
    mayUseSession: true,
    hostHeaders: 1,
    ...more,
    headers,
  }
}

async function refusalOf(token: string | null, more: Partial<AuthRequest>) {
  const authenticator = new Authenticator({
    nodeName: 'node-a',
    allowHosts: [],
    corsOrigins: [],
    tls: null,
    clock: new VirtualClock(),
    access: new Api({token}).access,
  })
  return (await authenticator.authenticate(authRequest(more))).refusal
}

test('remote clients are served only when a token is configured', async () => {
  for (const address of ['127.0.0.1', '127.8.9.1', '::1', '::ffff:127.0.0.1'])
    assert.equal(await refusalOf(null, {address}), null, address)
  for (const address of ['10.0.0.7', '::ffff:10.0.0.7', 'fe80::1', '', '0.0.0.0'])
    assert.equal((await refusalOf(null, {address}))?.code, 'token_not_configured', address)
  const headers = {'x-service-token': TOKEN, 'x-forwarded-for': '1.2.3.4'}
  assert.equal(await refusalOf(TOKEN, {address: '10.0.0.7', headers}), null)
})

test('the first token of the cluster counts at once, if another server has created it', async () => {
  const {access} = new Api({token: null})
  const created = new Api({token: TOKEN}).access
  let isRead = false
  const table = new Proxy(access, {
    get: (_, name) => {
      if (name === 'refresh') return async () => void (isRead = true)
      const from = isRead ? created : access
      const value = Reflect.get(from, name, from) as unknown
      return typeof value === 'function' ? value.bind(from) : value
    },
  })
  const options = {nodeName: 'a', allowHosts: [], corsOrigins: [], tls: null}
  const authenticator = new Authenticator({...options, clock: new VirtualClock(), access: table})
  assert.equal((await authenticator.authenticate(authRequest({}))).refusal, null)
  assert.equal(isRead, false, 'a request without a token reads nothing')
  const asking = async (token: string) =>
    (await authenticator.authenticate(authRequest({headers: {'x-service-token': token}}))).refusal
  assert.equal((await asking('another'))?.code, 'token_required')
  assert.equal(await asking(TOKEN), null)
})

test('without a token, a request with a header of a proxy is refused, whatever the proxy', async () => {
  for (const name of [
    'Forwarded',
    'Via',
    'X-Forwarded-For',
    'X-Forwarded-Anything',
    'X-Real-IP',
    'CF-Connecting-IP',
    'CF-Ray',
    'True-Client-IP',
    'X-Original-Forwarded-For',
    'X-Client-IP',
    'X-Cluster-Client-IP',
    'Fastly-Client-IP',
    'Fly-Client-IP',
    'X-Azure-ClientIP',
    'X-Envoy-External-Address',
    'X-Amzn-Trace-Id',
    'CloudFront-Viewer-Address',
    'Tailscale-User-Login',
  ]) {
    const refusal = await refusalOf(null, {headers: {[name.toLowerCase()]: '8.8.8.8'}})
    assert.equal(refusal?.code, 'token_not_configured', name)
  }
  const usual = {
    'user-agent': 'curl/8',
    accept: '*/*',
    'x-request-id': '1',
    traceparent: '00-1-1-00',
  }
  assert.equal(await refusalOf(null, {headers: usual}), null)
})

test('the rate limit answers 429 after 200 failures in 10 s, but never to a valid token', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  const wrong = {'x-service-token': 'a guess'}
  for (let count = 0; count < FAILURES_MAX; count += 1)
    assert.equal((await api.get('/v1/jobs', wrong)).status, 401)
  const limited = await api.get('/v1/jobs', wrong)
  refused(limited, 429, 'too_many_failures')
  assert.equal(limited.headers['retry-after'], '10')
  assert.equal((await api.post('/v1/jobs', {}, wrong)).status, 429)
  assert.equal((await api.get('/v1/jobs', {'x-service-token': TOKEN})).status, 200)
  assert.equal((await api.get('/v1/jobs')).status, 401, 'a client that waits for the challenge')
  await api.clock.advance(FAILURE_WINDOW_MS)
  assert.equal((await api.get('/v1/jobs', wrong)).status, 401)
})

test('requests without a token do not use up the rate limit', async (t) => {
  const api = await startApi(t, {token: TOKEN})
  for (let count = 0; count < FAILURES_MAX + 20; count += 1)
    assert.equal((await api.get('/v1/jobs')).status, 401)
  assert.equal((await api.get('/v1/jobs', {'x-service-token': 'a guess'})).status, 401)
})

test('failures are counted per IPv4 address and per IPv6 /64', () => {
  const clock = new VirtualClock()
  const rateLimit = new AuthRateLimit(clock)
  for (let count = 0; count < FAILURES_MAX; count += 1) {
    assert.equal(rateLimit.recordFailure(`2001:db8:1:2::${count.toString(16)}`), false)
    assert.equal(rateLimit.recordFailure('192.0.2.1'), false)
  }
  assert.equal(rateLimit.recordFailure('2001:db8:1:2:ffff::1'), true)
  assert.equal(rateLimit.recordFailure('2001:db8:1:3::1'), false)
  assert.equal(rateLimit.recordFailure('::ffff:192.0.2.1'), true)
  assert.equal(rateLimit.recordFailure('192.0.2.2'), false)
  // More addresses than the table holds: it drops the oldest.
  for (let count = 0; count < 20_000; count += 1)
    rateLimit.recordFailure(`10.${count >> 16}.${(count >> 8) & 255}.${count & 255}`)
  assert.equal(rateLimit.recordFailure('192.0.2.1'), false)
})

test('an unknown host name in the request is rejected with 421', async (t) => {
  const api = await startApi(t, {allowHosts: ['belfry.example']})
  const served = [
    '127.0.0.1',
    '127.0.0.1:1',
    '[::1]:8080',
    'localhost',
    'LOCALHOST:80',
    'node-a',
    'belfry.example:443',
  ]
  for (const host of served) assert.equal((await api.get('/v1/jobs', {host})).status, 200, host)
  const unknown = [
    'evil.example',
    'localhost.evil.example',
    '127.0.0.1.nip.io',
    'node-a@evil',
    '2130706433',
  ]
  for (const host of unknown)
    refused(await api.get('/v1/jobs', {host}), 421, 'host_not_served', host)
  refused(await api.get('/livez', {host: 'evil.example'}), 421, 'host_not_served')
  const empty = await rawReply(
    api.port,
    'GET /v1/jobs HTTP/1.1\r\nHost: \r\nConnection: close\r\n\r\n',
  )
  assert.match(empty, /^HTTP\/1\.1 421 /)
})

test('pages of other sites can neither change anything nor read a stream (CSRF)', async (t) => {
  const api = await startApi(t)
  const own = `http://127.0.0.1:${api.port}`
  const foreign: Record<string, string>[] = [
    {origin: 'http://evil.example'},
    {origin: 'null'},
    {origin: `http://127.0.0.1:${api.port + 1}`},
    {'sec-fetch-site': 'cross-site'},
    {'sec-fetch-site': 'same-site', origin: own},
  ]
  for (const headers of foreign) {
    refused(await api.post('/v1/pause', undefined, headers), 403, 'origin_refused')
    refused(await api.post('/v1/jobs', {}, headers), 403, 'origin_refused')
    refused(await api.get('/v1/events', headers), 403, 'origin_refused')
    assert.equal((await api.get('/v1/jobs', headers)).status, 200)
  }
  assert.deepEqual((await api.get('/v1/pause')).json, {paused: false})
  for (const headers of [
    {origin: own},
    {'sec-fetch-site': 'same-origin'},
    {'sec-fetch-site': 'none'},
  ])
    assert.equal((await api.post('/v1/unpause', undefined, headers)).status, 200)
  const reply = await api.get('/v1/jobs', {origin: own})
  assert.equal(reply.headers['access-control-allow-origin'], undefined)
})

test('every reply has the security headers, errors included', async (t) => {
  const api = await startApi(t)
  const replies = [
    ...['/v1/jobs', '/ui/', '/docs', '/v1/nothing', '/v1/jobs/nobody'].map((path) => api.get(path)),
    api.get('/v1/jobs', {host: 'evil.example'}),
    api.get('/v1/jobs', {via: 'proxy'}),
  ]
  for (const {headers} of await Promise.all(replies)) {
    const policy = String(headers['content-security-policy'])
    assert.match(policy, /frame-ancestors 'none'/)
    assert.doesNotMatch(policy, /script-src[^;]*unsafe-inline/)
    assert.equal(headers['x-content-type-options'], 'nosniff')
    assert.equal(headers['strict-transport-security'], undefined, 'plain HTTP')
  }
})

test('an unknown path is 404, a wrong method is 405 with Allow', async (t) => {
  const api = await startApi(t)
  for (const path of ['/v1/nothing', '/v2/jobs', '/v1/jobs/a/b/c', '/v1/jobs//toggle', '/v1//jobs'])
    refused(await api.get(path), 404, 'route_unknown', path)
  const wrong: readonly (readonly [string, string, string])[] = [
    ['PUT', '/v1/jobs', 'GET, HEAD, PATCH, POST'],
    ['OPTIONS', '/v1/jobs/x', 'DELETE, GET, HEAD, PATCH, POST, PUT'],
    ['GET', '/v1/jobs/x/toggle', 'POST'],
    ['POST', '/v1/members/', 'GET, HEAD'],
    ['GET', '/v1/leave', 'POST'],
    ['DELETE', '/v1/pause', 'GET, HEAD, POST'],
    ['OPTIONS', '/v1/jobs?x=1', 'GET, HEAD, PATCH, POST'],
    ['HEAD', '/v1/events', 'GET'],
    ['HEAD', '/v1/backup', 'GET'],
    ['POST', '/livez', 'GET, HEAD'],
  ]
  for (const [method, path, allow] of wrong) {
    const reply = await api.call(method, path)
    assert.deepEqual([reply.status, reply.headers.allow], [405, allow], `${method} ${path}`)
    if (method !== 'HEAD') refused(reply, 405, 'method_not_allowed')
  }
})

test('HEAD answers like GET without the body', async (t) => {
  const api = await startApi(t)
  await api.job('h')
  for (const path of [
    '/v1/jobs',
    '/v1/jobs/h',
    '/v1/jobs/nobody',
    '/v1/isleader',
    '/health',
    '/ui/',
  ]) {
    const get = await api.get(path)
    const head = await api.call('HEAD', path)
    assert.deepEqual([head.status, head.text], [get.status, ''], path)
    assert.equal(head.headers['content-length'], get.headers['content-length'])
    assert.equal(head.headers['content-type'], get.headers['content-type'])
  }
})

test('JSON is accepted with any content type, and unused bodies are ignored', async (t) => {
  const api = await startApi(t)
  await api.join()
  const body = '{"name":"types","schedule":"@manually"}'
  const types = [
    '',
    'application/json',
    'encoding/json',
    'application/x-www-form-urlencoded',
    'text/plain',
    ';;;',
    'multipart/form-data',
  ]
  for (const type of types) {
    const reply = await api.post('/v1/jobs', body, type === '' ? {} : {'content-type': type})
    assert.equal(reply.status, 201, type)
  }
  for (const type of ['application/json', 'encoding/json', 'nonsense']) {
    const headers = {'content-type': type}
    assert.equal((await api.call('POST', '/v1/jobs/types', {headers})).status, 202)
    assert.equal((await api.call('GET', '/v1/jobs/types', {headers})).status, 200)
    assert.equal(
      (await api.call('POST', '/v1/jobs/types/toggle', {headers, body: '{'})).status,
      200,
    )
    assert.equal((await api.call('POST', '/v1/pause', {headers, body: ''})).status, 200)
    assert.equal((await api.call('POST', '/v1/unpause', {headers, body: 'x=1'})).status, 200)
  }
  const headers = {'content-type': 'application/json'}
  assert.equal((await api.call('DELETE', '/v1/jobs/types', {headers})).status, 200)
})

test('a body over the limit is drained and rejected with 413', async (t) => {
  const api = await startApi(t)
  const body = new Uint8Array(3 * 1024 * 1024)
  const submit = await api.post('/v1/jobs', body)
  assert.equal(submit.status, 413)
  assert.match(submit.headers['content-type'] ?? '', /^text\/plain/)
  refused(await api.post('/v1/acl/policies/p', body), 413, 'body_too_large')
  const fits = `{"name":"fits","schedule":"@manually"${' '.repeat(1024 * 1024 - 38)}}`
  assert.equal((await api.post('/v1/jobs', fits)).status, 201)
  assert.equal((await api.post('/v1/jobs', `${fits} `)).status, 413)
})

test('a compressed body is rejected with 415', async (t) => {
  const api = await startApi(t)
  const submit = await api.post('/v1/jobs', 'x', {'content-encoding': 'gzip'})
  assert.equal(submit.status, 415)
  assert.match(submit.headers['content-type'] ?? '', /^text\/plain/)
  const policy = await api.post('/v1/acl/policies/p', 'x', {'content-encoding': 'br'})
  refused(policy, 415, 'encoding_unsupported')
})

test('malformed HTTP is answered with a problem document', async (t) => {
  const api = await startApi(t)
  const close = 'Connection: close\r\n\r\n'
  const broken: readonly (readonly [string, number, string])[] = [
    ['nonsense\r\n\r\n', 400, 'request_malformed'],
    ['FOO / HTTP/1.1\r\nHost: localhost\r\n\r\n', 400, 'request_malformed'],
    [`GET /v1/jobs HTTP/1.1\r\n${close}`, 400, 'request_malformed'],
    [`GET /v1/%zz HTTP/1.1\r\nHost: localhost\r\n${close}`, 400, 'request_malformed'],
    [
      `GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    [
      'POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
      400,
      'request_malformed',
    ],
  ]
  for (const [text, status, code] of broken) {
    const reply = await rawReply(api.port, text)
    assert.match(reply, new RegExp(`^HTTP/1\\.1 ${status} `), text.slice(0, 60))
    if (text.startsWith('POST')) continue
    assert.match(reply, /content-type: application\/problem\+json/i)
    assert.match(reply, new RegExp(`"code":"${code}"`))
    assert.match(reply, /x-whom: node-a/i)
  }
  const old = await rawReply(api.port, 'GET /v1/jobs HTTP/1.0\r\n\r\n')
  assert.match(old, /^HTTP\/1\.1 200 /)
  assert.deepEqual(api.faults, [])
})

test('an internal error shows the client only an id; the log gets the error', async (t) => {
  const secret = new Error('secret inside')
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      submit: () => Promise.reject(secret),
      job: () => Promise.reject(secret),
    }),
  })
  const read = await api.get('/v1/jobs/x')
  refused(read, 500, 'internal')
  const submit = await api.post('/v1/jobs', {name: 'x', schedule: '@daily'})
  assert.equal(submit.status, 500)
  assert.match(submit.headers['content-type'] ?? '', /^text\/plain/)
  assert.match(submit.text, /^Internal error, try again later \(id \S+\)\n$/)
  for (const text of [read.text, submit.text]) assert.doesNotMatch(text, /secret|Error:|\.ts/)
  assert.deepEqual(
    api.faults.map(({error, request}) => [error, request.route]),
    [
      [secret, '/v1/jobs/:name'],
      [secret, '/v1/jobs'],
    ],
  )
  assert.equal(api.faults[0]?.request.id, read.json.id)
  assert.equal((await api.get('/v1/pause')).status, 200, 'the process survives')
})

test('an unavailable store is 503, a lost write reply is outcome_unknown', async (t) => {
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      jobs: () => Promise.reject(new StoreUnavailable('away')),
      submit: () => Promise.reject(new OutcomeUnknown('lost')),
    }),
  })
  const away = await api.get('/v1/jobs')
  refused(away, 503, 'store_unavailable')
  assert.equal(away.headers['retry-after'], '1')
  const lost = await api.post('/v1/jobs', {name: 'x', schedule: '@daily'})
  assert.deepEqual([lost.status, lost.headers['retry-after']], [503, '1'])
  assert.match(lost.text, /unknown/)
  assert.deepEqual(api.faults, [])
})

test('a request fails after 5 s when the store does not answer', async (t) => {
  const never = new Promise<never>(() => {})
  const api = await startApi(t, {
    wrapStore: (store) => ({...store, job: () => never, setPaused: () => never}),
  })
  const read = api.get('/v1/jobs/x')
  const write = api.post('/v1/pause')
  await api.eventually(() => api.clock.waiting === 2)
  await api.clock.advance(4_999)
  assert.equal(api.clock.waiting, 2)
  await api.clock.advance(1)
  refused(await read, 503, 'store_unavailable')
  refused(await write, 503, 'outcome_unknown')
})

test('graceful shutdown waits for requests in progress', async (t) => {
  const blocked = Promise.withResolvers<void>()
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      members: async () => {
        await blocked.promise
        return store.members()
      },
    }),
  })
  const slow = api.get('/v1/members')
  await api.eventually(() => api.clock.waiting === 1)
  const closing = api.app.close()
  blocked.resolve()
  assert.equal((await slow).status, 200)
  await closing
})

test('graceful shutdown closes connections after its timeout', async (t) => {
  const never = new Promise<never>(() => {})
  const api = await startApi(t, {wrapStore: (store) => ({...store, members: () => never})})
  const stuck = api.get('/v1/members').then(
    () => 'answered',
    () => 'closed',
  )
  await api.eventually(() => api.clock.waiting === 1)
  const closing = api.app.close()
  await api.eventually(() => api.clock.waiting === 2)
  await api.clock.advance(2_000)
  assert.equal(await stuck, 'closed')
  await closing
})

test('replies are reported with the pattern of their route', async (t) => {
  const api = await startApi(t)
  await api.get('/v1/jobs/nobody')
  await api.get('/v1/nothing')
  await api.eventually(() => api.replies.length === 2)
  assert.deepEqual(
    api.replies.map(({method, route, status}) => [method, route, status]),
    [
      ['GET', '/v1/jobs/:name', 404],
      ['GET', '', 404],
    ],
  )
})

test('health, readiness, metrics and the status page', async (t) => {
  let ok = true
  const checks = () => ({store: ok ? 'ok' : 'no answer'})
  const api = await startApi(t, {
    ready: async () => ({ok, checks: checks(), details: checks()}),
    metrics: null,
  })
  assert.deepEqual((await api.get('/health')).json, {status: 'healthy'})
  assert.deepEqual((await api.get('/livez')).json, {status: 'alive'})
  assert.deepEqual((await api.get('/readyz')).json, {status: 'ready', checks: {store: 'ok'}})
  ok = false
  const waiting = await api.get('/readyz')
  assert.deepEqual(
    [waiting.status, waiting.json],
    [503, {status: 'not_ready', checks: {store: 'no answer'}}],
  )
  refused(await api.get('/metrics'), 404, 'route_unknown')
  const browser = await api.get('/', {accept: 'text/html,application/xhtml+xml'})
  assert.deepEqual([browser.status, browser.headers.location], [303, '/ui/'])
  assert.equal((await api.get('/')).status, 200)
  const page = await api.get('/ui/')
  assert.match(String(page.headers['content-type']), /^text\/html/)
  assert.doesNotMatch(page.text, /<script(?![^>]*\bsrc=)|\son\w+=|style=/, 'nothing inline')
  for (const [, path] of page.text.matchAll(/(?:src|href)="(\/ui\/[^"]+)"/g))
    assert.equal((await api.get(String(path))).status, 200)
  const noUi = await startApi(t, {ui: false})
  assert.equal((await noUi.get('/ui/')).status, 404)
  assert.equal((await noUi.get('/', {accept: 'text/html'})).status, 200)
})

test('a reply that changed something names who did it, and what; others do not', async (t) => {
  const api = await startApi(t)
  await api.post('/v1/jobs?strict=true', {name: 'a', schedule: '@daily', command: 'true'})
  await api.get('/v1/jobs')
  await api.post('/v1/jobs/missing/run')
  await api.eventually(() => api.replies.length === 3)
  const changes = api.replies.map(({change}) => {
    return change && [change.actor.name, change.actor.address, change.path, change.location]
  })
  const submit = ['local', '127.0.0.1', '/v1/jobs', '/v1/jobs/a']
  assert.deepEqual(changes, [submit, undefined, undefined])
})
