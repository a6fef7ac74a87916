/** Sessions of browsers: what the cookie opens, how long, and which pages can use it. */
import assert from 'node:assert/strict'
import {test, type TestContext} from 'node:test'
import {WebSocket} from 'ws'
import type {Agents} from '../../src/http/options.ts'
import {AccessTable} from '../../src/identity/token-cache.ts'
import {SIGN_INS_PER_MINUTE} from '../../src/operations/sessions.ts'
import {type ApiOptions, type Reply, SESSION_IDLE_MS, SESSION_MAX_MS, Stream} from './harness.ts'
import {ADMIN, type LockedApi, startLockedApi, TEAM_A} from './tokens.ts'

const PLAIN = /^belfry-session=(\S+); Path=\/; HttpOnly; SameSite=Strict$/
const SECURE = /^__Host-belfry-session=(\S+); Path=\/; HttpOnly; SameSite=Strict; Secure$/
/** A change reaches other servers, and open streams, within this time. */
const REACHES_MS = 5_000

type Headers = Readonly<Record<string, string>>

function cookiesOf({headers}: Reply): readonly string[] {
  return headers['set-cookie'] ?? []
}

/** Headers that a page of the server at this origin sends. */
function pageOf(cookie: string, origin: string, more: Headers = {}): Record<string, string> {
  return {cookie, origin, 'sec-fetch-site': 'same-origin', ...more}
}

async function signedIn(locked: LockedApi, token: Headers) {
  const reply = await locked.api.post('/v1/session', undefined, token)
  assert.equal(reply.status, 201, reply.text)
  const [set = ''] = cookiesOf(reply)
  const cookie = set.split(';')[0]!
  return {cookie, set, json: reply.json, secret: cookie.split('=')[1]!}
}

async function start(t: TestContext, options: ApiOptions = {}) {
  const locked = await startLockedApi(t, options)
  await locked.api.access.refresh()
  locked.api.access.start()
  const own = `http://127.0.0.1:${locked.api.port}`
  return {locked, own, ...locked}
}

test('a token opens a session, which is what the token is, until it is signed out', async (t) => {
  const {locked, own, api, client} = await start(t)
  const team = await client('team-a', TEAM_A)
  await api.join()
  await locked.job('team-a-job')
  await locked.job('team-b-job')
  const {cookie, set, json, secret} = await signedIn(locked, team.headers)
  assert.match(set, PLAIN)
  assert.deepEqual(json, {
    name: 'team-a',
    type: 'client',
    session: true,
    expires_at: json.expires_at,
    ends_at: json.ends_at,
  })
  const page = pageOf(cookie, own)
  assert.equal((await api.get('/v1/jobs/team-a-job', {cookie})).status, 200)
  assert.equal((await api.get('/v1/jobs/team-b-job', {cookie})).status, 403)
  assert.equal((await api.post('/v1/jobs/team-a-job/run', undefined, page)).status, 202)
  assert.equal((await api.get('/v1/session', {cookie})).json.name, 'team-a')
  const other = {cookie: `theme=dark; ${cookie}; x`}
  assert.equal((await api.get('/v1/session', other)).status, 200, 'among other cookies')
  const out = await api.call('DELETE', '/v1/session', {headers: page})
  assert.equal(out.status, 200)
  assert.match(cookiesOf(out).join('\n'), /^belfry-session=;.*Max-Age=0\n__Host-.*Max-Age=0$/)
  assert.equal((await api.get('/v1/session', {cookie})).status, 401)
  assert.equal((await team.call('GET', '/v1/jobs')).status, 200, 'the token stays')
  assert.ok(!JSON.stringify([api.replies, out.text, json]).includes(secret))
})

test('a session is found by its cookie only, and a token by its header only', async (t) => {
  const {locked, own, api, token} = await start(t)
  const reader = await token('read')
  const {cookie, secret} = await signedIn(locked, reader.headers)
  const headers = [
    {'x-service-token': secret},
    {authorization: `Bearer ${secret}`},
    {authorization: `Basic ${Buffer.from(`u:${secret}`).toString('base64')}`},
    {cookie: `belfry-session=${reader.secret}`},
    {cookie: `belfry-session=${ADMIN}`},
    {cookie: `belfry-session=`},
    {cookie: 'belfry-session'},
    {cookie: `BELFRY-SESSION=${secret}`},
    // A token is sent on purpose: the cookie does not replace a wrong one.
    {cookie, 'x-service-token': 'belfry_guess'},
  ]
  for (const each of headers)
    assert.equal((await api.get('/v1/jobs', each)).status, 401, JSON.stringify(each))
  const both = await api.get('/v1/session', {cookie, 'x-service-token': ADMIN})
  assert.deepEqual([both.json.type, both.json.session], ['management', false])
  const again = await api.post('/v1/session', undefined, pageOf(cookie, own))
  assert.equal(again.json.code, 'session_refused', 'a session opens no session')
  for (const [sent, name] of [
    [{cookie}, undefined],
    [reader.headers, 'node-a'],
  ] as const)
    assert.equal((await api.get('/readyz', sent)).headers['x-whom'], name, 'public: ignored')
})

test('only tokens for the API open sessions, and a session ends only itself', async (t) => {
  const {api, token} = await start(t)
  for (const kind of ['agent', 'metrics']) {
    const {headers} = await token(kind)
    assert.equal((await api.post('/v1/session', undefined, headers)).status, 403, kind)
  }
  assert.equal((await api.post('/v1/session')).status, 401)
  assert.equal((await api.post('/v1/session', undefined, {'x-service-token': 'no'})).status, 401)
  const admin = {headers: {'x-service-token': ADMIN}}
  assert.equal((await api.call('DELETE', '/v1/session', admin)).json.code, 'session_unknown')
  const {json} = await api.get('/v1/session', admin.headers)
  const configured = {name: '', type: 'management', session: false, expires_at: null, ends_at: null}
  assert.deepEqual(json, configured)
})

test('without any token there is nothing to sign in with', async (t) => {
  const {api} = await start(t, {token: null})
  assert.equal((await api.post('/v1/session')).json.code, 'session_refused')
  assert.equal((await api.get('/v1/session')).json.session, false)
})

test('with a session, only pages of this server change anything or read a stream', async (t) => {
  const site = 'https://ops.example.org'
  const options = {allowHosts: ['belfry.example.org'], corsOrigins: [site]}
  const {locked, own, api, headers} = await start(t, options)
  const {cookie} = await signedIn(locked, headers)
  await api.join()
  const foreign: Headers[] = [
    {},
    {origin: 'null'},
    {origin: 'https://evil.example'},
    {origin: site},
    {origin: `http://127.0.0.1:${api.port + 1}`},
    {origin: `http://localhost:${api.port}`},
    {origin: 'https://belfry.example.org:8443'},
    {origin: 'https://belfry.example.org.evil.example'},
    {origin: own, 'sec-fetch-site': 'cross-site'},
    {origin: own, 'sec-fetch-site': 'same-site'},
    {origin: own, 'sec-fetch-site': 'none'},
    {'sec-fetch-site': 'none'},
    {'sec-fetch-site': 'cross-site'},
  ]
  for (const more of foreign) {
    const sent = {cookie, ...more}
    const about = JSON.stringify(more)
    for (const reply of [
      await api.post('/v1/pause', undefined, sent),
      await api.call('DELETE', '/v1/session', {headers: sent}),
      await api.post('/v1/acl/tokens', {name: 'x', type: 'management'}, sent),
      await api.get('/v1/events', sent),
      await api.get('/v1/jobs', {...sent, accept: 'text/event-stream'}),
    ])
      assert.deepEqual([reply.status, reply.json.code], [403, 'origin_refused'], about)
  }
  assert.deepEqual((await api.get('/v1/pause', {cookie})).json, {paused: false})
  for (const more of [
    {origin: own},
    {origin: own, 'sec-fetch-site': 'same-origin'},
    {'sec-fetch-site': 'same-origin'},
    {origin: 'https://belfry.example.org', 'sec-fetch-site': 'same-origin'},
  ]) {
    const reply = await api.post('/v1/unpause', undefined, {cookie, ...more})
    assert.equal(reply.status, 200, JSON.stringify(more))
  }
  const read = await api.get('/v1/jobs', {cookie, origin: site})
  assert.equal(read.headers['access-control-allow-credentials'], undefined)
})

test('sign-ins are limited for each owner: a loop fills neither store nor audit log', async (t) => {
  const {api, headers, token} = await start(t)
  const reader = await token('read')
  const signIn = async (sent: Headers) => api.post('/v1/session', undefined, sent)
  for (let count = 0; count < SIGN_INS_PER_MINUTE; count += 1)
    assert.equal((await signIn(reader.headers)).status, 201)
  const limited = await signIn(reader.headers)
  assert.deepEqual([limited.status, limited.json.code], [429, 'too_many_sessions'])
  assert.equal(limited.headers['retry-after'], '2')
  assert.equal((await signIn(headers)).status, 201, 'another owner')
  await api.clock.advance(2_000)
  assert.equal((await signIn(reader.headers)).status, 201)
})

test('a rebound host name never reaches a session', async (t) => {
  const {locked, api, headers} = await start(t)
  const {cookie} = await signedIn(locked, headers)
  const host = 'rebound.example:8080'
  const page = pageOf(cookie, `http://${host}`, {host})
  assert.equal((await api.get('/v1/jobs', page)).json.code, 'host_not_served')
  assert.equal((await api.post('/v1/pause', undefined, page)).json.code, 'host_not_served')
  assert.equal((await api.get('/v1/jobs', {...headers, host})).status, 200, 'a token does')
})

test('a session cookie or its secret cannot connect an agent', async (t) => {
  const connection: ReturnType<Agents['connect']> = {receive: async () => {}, closed: () => {}}
  const agents = {connect: () => connection, stop: async () => {}}
  const {locked, own, api, headers} = await start(t, {agents})
  const {cookie, secret} = await signedIn(locked, headers)
  for (const sent of [pageOf(cookie, own), {cookie}, {'x-service-token': secret}]) {
    const socket = new WebSocket(`ws://127.0.0.1:${api.port}/v1/agent`, {headers: sent})
    const status = await new Promise((resolve) => {
      socket.once('open', () => resolve(101))
      socket.once('unexpected-response', (_request, response) => {
        resolve(response.statusCode)
        response.destroy()
      })
      socket.on('error', () => undefined)
    })
    socket.terminate()
    assert.equal(status, 401)
  }
})

test('over TLS the cookie is for this host name only, and no other one is accepted', async (t) => {
  const {locked, own, api, headers} = await start(t)
  const proxied = {origin: own.replace('http:', 'https:'), ...headers}
  assert.match((await signedIn(locked, proxied)).set, SECURE, 'a proxy speaks TLS')
  const {cookie, secret} = await signedIn(locked, headers)
  assert.equal((await api.get('/v1/jobs', {cookie: `__Host-${cookie}`})).status, 200)

  const {CERTIFICATE: cert, PRIVATE_KEY: key} = await import('../support/certificate.ts')
  const secure = await startLockedApi(t, {tls: {cert, key}})
  const inject = (method: 'GET' | 'POST', url: string, sent: Headers) =>
    secure.api.app.inject({method, url, headers: {host: 'localhost', ...sent}})
  const reply = await inject('POST', '/v1/session', headers)
  assert.match(String(reply.headers['set-cookie']), SECURE)
  const own443 = String(reply.headers['set-cookie']).split(';')[0]!
  assert.equal((await inject('GET', '/v1/jobs', {cookie: own443})).statusCode, 200)
  const plain = own443.replace('__Host-', '')
  assert.equal((await inject('GET', '/v1/jobs', {cookie: plain})).statusCode, 401)
  const post = async (origin: string) =>
    (await inject('POST', '/v1/unpause', pageOf(own443, origin))).statusCode
  assert.deepEqual([await post('https://localhost'), await post('http://localhost')], [200, 403])
  assert.ok(secret.length > 40)
})

test('a session expires when it is not used, and in any case after a while', async (t) => {
  const {locked, api, headers} = await start(t)
  const begin = api.clock.now()
  const idle = await signedIn(locked, headers)
  const used = await signedIn(locked, headers)
  const status = async ({cookie}: {cookie: string}, more: Headers = {}) =>
    (await api.get('/v1/leader', {cookie, ...more})).status
  const refresh = {'x-belfry-refresh': '1'}
  for (let at = 0; at < SESSION_IDLE_MS; at += SESSION_IDLE_MS / 3) {
    assert.equal(await status(idle, refresh), 503, 'no leader: accepted')
    assert.equal(await status(used), 503)
    await api.clock.advance(SESSION_IDLE_MS / 3)
  }
  assert.equal(await status(idle), 401, 'what the page repeats by itself is no use')
  while (api.clock.now() - begin < SESSION_MAX_MS - SESSION_IDLE_MS / 2) {
    assert.equal(await status(used), 503, String(api.clock.now() - begin))
    await api.clock.advance(SESSION_IDLE_MS / 2)
  }
  await api.clock.advance(SESSION_IDLE_MS / 2)
  assert.equal(await status(used), 401, 'the end')
})

test('a use on one server keeps the session open on the others', async (t) => {
  const {locked, api, headers} = await start(t)
  const parts = {store: api.store, clock: api.clock, events: api.events, wakeup: api.wakeup}
  const {cookie} = await signedIn(locked, headers)
  const other = new AccessTable({...parts, traits: {executors: [], processors: []}, token: ADMIN})
  await other.refresh()
  other.start()
  t.after(() => other.stop())
  const {accessor} = (await api.store.sessions())[0]!
  for (let at = 0; at < 2 * SESSION_IDLE_MS; at += 300_000) {
    await api.get('/v1/leader', {cookie})
    await api.clock.advance(300_000)
    assert.ok(other.principal(accessor) !== null, `after ${at} ms`)
  }
})

test('sessions and their streams end with their token within five seconds', async (t) => {
  const {locked, own, api, token, admin} = await start(t)
  const reader = await token('read')
  const {cookie} = await signedIn(locked, reader.headers)
  const stream = await Stream.open(api, '/v1/events', pageOf(cookie, own))
  assert.equal(stream.status, 200)
  const listed = (await admin.call('GET', '/v1/acl/sessions')).json
  assert.deepEqual([listed.length, listed[0].name], [1, 'read'])
  // Stands for a revocation by another server whose notification was lost.
  await api.store.deleteToken(reader.accessor)
  await api.clock.advance(REACHES_MS)
  await api.eventually(() => stream.ended)
  assert.equal((await api.get('/v1/jobs', {cookie})).status, 401)

  const another = await signedIn(locked, {'x-service-token': ADMIN})
  const [{accessor}] = (await admin.call('GET', '/v1/acl/sessions')).json
  assert.equal((await admin.call('DELETE', `/v1/acl/tokens/${accessor}`)).status, 200)
  assert.equal((await api.get('/v1/jobs', {cookie: another.cookie})).status, 401)
})

test('sessions of a configured token are not accepted after it was changed', async (t) => {
  const {locked, api, headers} = await start(t)
  const {cookie} = await signedIn(locked, headers)
  const {accessor} = (await api.store.sessions())[0]!
  const acceptedWith = async (token: string | null) => {
    const parts = {store: api.store, clock: api.clock, events: api.events, wakeup: api.wakeup}
    const table = new AccessTable({...parts, traits: {executors: [], processors: []}, token})
    await table.refresh()
    return {accepted: table.principal(accessor) !== null, locked: table.isLocked}
  }
  assert.deepEqual(await acceptedWith(ADMIN), {accepted: true, locked: true})
  assert.deepEqual(await acceptedWith('another-token-entirely'), {accepted: false, locked: true})
  assert.deepEqual(await acceptedWith(null), {accepted: false, locked: false})
  assert.equal((await api.get('/v1/jobs', {cookie})).status, 200)
  api.access.configure('another-token-entirely')
  assert.equal((await api.get('/v1/jobs', {cookie})).status, 401, 'reloaded')
})

test('a token and its sessions share its event streams, and leave some for others', async (t) => {
  const {locked, own, api, headers, client} = await start(t, {limits: {tokenStreamsMax: 2}})
  const [team, other] = [await client('team-a', TEAM_A), await client('team-b', TEAM_A)]
  const {cookie} = await signedIn(locked, team.headers)
  const page = pageOf(cookie, own)
  const open = async (caller: Record<string, string>) => {
    const stream = await Stream.open(api, '/v1/events', caller)
    t.after(() => stream.close())
    return stream
  }
  const first = await open(team.headers)
  assert.deepEqual([first.status, (await open(page)).status], [200, 200])
  for (const caller of [team.headers, page]) {
    const refused = await api.get('/v1/events', caller)
    assert.deepEqual([refused.status, refused.json.code], [503, 'too_many_streams'])
    assert.match(refused.json.detail, /2 event streams of this token are open/)
  }
  for (const caller of [other.headers, other.headers, headers, headers, headers])
    assert.equal((await open(caller)).status, 200)
  first.close()
  // The server notices a moment later.
  const deadlineAt = performance.now() + 10_000
  while ((await open(team.headers)).status !== 200) assert.ok(performance.now() < deadlineAt)
})
