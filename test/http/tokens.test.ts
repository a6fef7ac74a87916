/** Tokens: bootstrap, secrets, expiry, revocation, what a change does to what is open, the store away. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {FAILURES_MAX} from '../../src/http/security/auth.ts'
import {digestOf, STALE_MAX_MS} from '../../src/identity/token-cache.ts'
import type {Store} from '../../src/ports/store.ts'
import {faultyStore} from '../support/faulty-store.ts'
import {type Api, Stream, startApi} from './harness.ts'
import {ADMIN, definition, type LockedApi, startLockedApi, TEAM_A} from './tokens.ts'

/** Exceeds the time in which a change must reach what is open. */
const REACHES_MS = 5_000
const DAY_MS = 86_400_000

test('bootstrap makes the first management token, once, and locks the server', async (t) => {
  const api = await startApi(t)
  assert.equal((await api.get('/v1/')).json.agent.token_configured, 'false')
  const refused = await api.call('POST', '/v1/acl/bootstrap', {headers: {via: '1.1 proxy'}})
  assert.equal(refused.json.code, 'token_not_configured')
  const first = await api.post('/v1/acl/bootstrap')
  assert.deepEqual([first.status, first.json.type], [201, 'management'])
  assert.equal(first.headers.location, `/v1/acl/tokens/${first.json.accessor}`)
  const headers = {'x-service-token': first.json.secret as string}
  assert.equal((await api.get('/v1/jobs')).status, 401)
  assert.equal((await api.get('/v1/', headers)).json.agent.token_configured, 'true')
  const again = await api.post('/v1/acl/bootstrap', undefined, headers)
  assert.equal(again.json.code, 'token_not_first')
  assert.equal((await api.post('/v1/acl/bootstrap')).status, 401)
})

/** Requests that a job on this machine can send without a token. */
async function assertLocked(api: Api): Promise<void> {
  for (const path of ['/v1/acl/bootstrap', '/v1/acl/tokens', '/v1/jobs'])
    assert.equal((await api.post(path, {name: 'x', type: 'management'})).status, 401, path)
}

test('a server that had a token never serves callers without one again', async (t) => {
  const expired = await startApi(t)
  const expires_at = new Date(expired.clock.now() + DAY_MS).toISOString()
  const first = await expired.post('/v1/acl/bootstrap', {name: 'short', expires_at})
  const short = {'x-service-token': first.json.secret as string}
  await expired.clock.advance(2 * DAY_MS)
  assert.equal((await expired.get('/v1/jobs', short)).status, 401)
  await assertLocked(expired)

  const revoked = await startApi(t)
  const {accessor, secret} = (await revoked.post('/v1/acl/bootstrap')).json
  const headers = {'x-service-token': secret as string}
  await revoked.call('DELETE', `/v1/acl/tokens/${accessor}`, {headers})
  assert.deepEqual((await revoked.store.access()).tokens, [])
  await assertLocked(revoked)
})

test('the first token without a configured one is a management token', async (t) => {
  const api = await startApi(t)
  const viewer = await api.post('/v1/acl/tokens', {name: 'viewer', type: 'read'})
  assert.match(viewer.json.detail, /must be management for the first token; run belfry token boot/)
  assert.equal((await api.get('/v1/jobs')).status, 200)
  // This machine may have other users.
  const {api: locked, token, headers} = await startLockedApi(t)
  await token('read')
  assert.equal((await locked.post('/v1/acl/bootstrap')).status, 401)
  assert.equal((await locked.post('/v1/acl/bootstrap', undefined, headers)).status, 201)
})

test('the secret is in one reply, and in no other, no list, no backup and no log', async (t) => {
  const {api, admin, token} = await startLockedApi(t)
  const {secret, accessor} = await token('read', {expires_at: '2027-01-01T00:00:00Z'})
  assert.match(secret, /^belfry_[\w-]{20,}$/)
  const shown = await admin.call('GET', `/v1/acl/tokens/${accessor}`)
  assert.deepEqual(Object.keys(shown.json), [
    'accessor',
    'name',
    'type',
    'policies',
    'created_at',
    'expires_at',
    'last_used_at',
    'node_id',
    'node_name',
    'uses_left',
    'names',
    'tags',
    'slots',
  ])
  assert.equal(shown.json.expires_at, '2027-01-01T00:00:00.000Z')
  const texts = [
    shown.text,
    (await admin.call('GET', '/v1/acl/tokens')).text,
    (await admin.call('GET', '/v1/backup')).text,
    (await admin.call('DELETE', `/v1/acl/tokens/${accessor}`)).text,
    JSON.stringify(api.events.all),
  ]
  for (const text of texts) {
    assert.ok(!text.includes(secret))
    assert.ok(!text.includes(secret.slice('belfry_'.length)))
  }
  assert.ok(!texts[0]!.includes(digestOf(secret)), 'nor its digest')
})

test('a stored token in the configuration is noticed', async (t) => {
  const {api, token} = await startLockedApi(t)
  const {secret} = await token('read')
  assert.equal(api.access.isConfiguredTokenStored, false)
  api.access.configure(secret)
  assert.equal(api.access.isConfiguredTokenStored, true)
})

test('a new token is used at once, a revoked one never again', async (t) => {
  const {admin, token, api} = await startLockedApi(t)
  const {accessor, secret} = await token('read')
  for (const headers of [
    {'x-service-token': secret},
    {'x-dkron-token': secret},
    {authorization: `Bearer ${secret}`},
    {authorization: `Basic ${Buffer.from(`any:${secret}`).toString('base64')}`},
  ] as Record<string, string>[])
    assert.equal((await api.get('/v1/jobs', headers)).status, 200)
  assert.equal((await admin.call('DELETE', `/v1/acl/tokens/${accessor}`)).status, 200)
  const refused = await api.get('/v1/jobs', {'x-service-token': secret})
  assert.deepEqual([refused.status, refused.json.code], [401, 'token_required'])
  assert.match(String(refused.headers['www-authenticate']), /Bearer/)
  assert.equal(
    (await admin.call('DELETE', `/v1/acl/tokens/${accessor}`)).json.code,
    'token_unknown',
  )
})

test('a token made by another server is known at its first use', async (t) => {
  const {api} = await startLockedApi(t)
  const fields = {name: 'elsewhere', kind: 'read', policies: [], expiresAt: null} as const
  const digest = digestOf('belfry_made-elsewhere')
  await api.store.createToken({accessor: 'a', digest, isFirst: false, ...fields})
  const headers = {'x-service-token': 'belfry_made-elsewhere'}
  assert.equal((await api.get('/v1/jobs', headers)).status, 200)
})

test('a token of an unknown kind locks the server and grants nothing', async (t) => {
  const api = await startApi(t)
  const fields = {name: 'x', kind: 'newer' as never, policies: [], expiresAt: null}
  await api.store.createToken({
    accessor: 'a',
    digest: digestOf('belfry_x'),
    isFirst: false,
    ...fields,
  })
  await api.access.refresh()
  assert.equal((await api.get('/v1/jobs')).status, 401)
  assert.equal((await api.get('/v1/jobs', {'x-service-token': 'belfry_x'})).status, 401)
})

test('a token expires by the clock of the store', async (t) => {
  const {api, token} = await startLockedApi(t)
  const expires_at = new Date(api.clock.now() + 60_000).toISOString()
  const {headers} = await token('read', {expires_at})
  assert.equal((await api.get('/v1/jobs', headers)).status, 200)
  await api.clock.advance(59_000)
  assert.equal((await api.get('/v1/jobs', headers)).status, 200)
  await api.clock.advance(1_001)
  assert.equal((await api.get('/v1/jobs', headers)).status, 401)
})

test('requests for tokens that make no sense are 400 and name the field', async (t) => {
  const {admin, api} = await startLockedApi(t)
  const past = new Date(api.clock.now() - DAY_MS).toISOString()
  for (const [field, body] of [
    ['name', {type: 'read'}],
    ['name', {name: '', type: 'read'}],
    ['name', {name: 'a\nb', type: 'read'}],
    ['name', {name: 'x'.repeat(129), type: 'read'}],
    ['type', {name: 'x'}],
    ['type', {name: 'x', type: 'root'}],
    ['policies', {name: 'x', type: 'client', policies: 'p'}],
    ['policies', {name: 'x', type: 'client', policies: ['../p']}],
    [
      'policies',
      {name: 'x', type: 'client', policies: Array.from({length: 17}, (_, i) => `p${i}`)},
    ],
    ['policies', {name: 'x', type: 'read', policies: ['p']}],
    ['expires_at', {name: 'x', type: 'read', expires_at: 'soon'}],
    ['expires_at', {name: 'x', type: 'read', expires_at: past}],
    ['slots', {name: 'x', type: 'agent', slots: 0}],
    ['names', {name: 'x', type: 'agent', names: ['']}],
    ['tags.a: must be a list of 1', {name: 'x', type: 'agent', tags: {b: ['c'], a: []}}],
    ['tags: must be an object', {name: 'x', type: 'agent', tags: 'a'}],
    ['uses', {name: 'x', type: 'join', uses: 0}],
    // A misspelt expiry or limit must not make a token without one.
    ['did you mean "expires_at"?', {name: 'x', type: 'read', expires_a: past}],
    ['body', []],
  ] as const) {
    const reply = await admin.call('POST', '/v1/acl/tokens', body)
    assert.deepEqual([reply.status, reply.json.code], [400, 'token_invalid'], JSON.stringify(body))
    assert.ok(reply.json.detail.includes(field), reply.text)
  }
  const faulty = {name: 'a\nb', type: 'read', policies: 'p', expires_at: 'soon'}
  const all = await admin.call('POST', '/v1/acl/tokens', faulty)
  assert.match(
    all.json.detail,
    /: name: must be .*; policies: must be .*; expires_at: must be a time/,
  )
  const between = {name: 'x', type: 'read', policies: ['p'], slots: 1, uses: 1}
  const wrong = await admin.call('POST', '/v1/acl/tokens', between)
  assert.match(wrong.json.detail, /: policies: must be empty.*; slots: is only.*; uses: is only/)
  const unknown = {name: 'x', type: 'client', policies: ['nowhere']}
  const warned = await admin.call('POST', '/v1/acl/tokens', unknown)
  assert.match(String(warned.headers['x-warnings']), /there is no policy nowhere/)
})

test('a new job is owned by the token, and keeps its owner', async (t) => {
  const {admin, client, api} = await startLockedApi(t)
  const team = await client('team-a', TEAM_A)
  const owner = async (caller: {call: LockedApi['admin']['call']}, more = {}) =>
    (await caller.call('POST', '/v1/jobs', definition('team-a-x', more))).json.owner
  assert.equal(await owner(team), 'team-a')
  const {revision} = (await api.store.job('team-a-x'))!
  assert.equal(await owner(team), 'team-a')
  assert.equal(
    (await api.store.job('team-a-x'))!.revision,
    revision,
    'the same submit changes nothing',
  )
  assert.equal(await owner(team, {owner: 'night shift'}), 'night shift')
  assert.equal(await owner(team), 'night shift')
  // The token of the configuration has no name.
  assert.equal((await admin.call('POST', '/v1/jobs', definition('y'))).json.owner, '')
})

test('an idempotency key of one token is another one for another token', async (t) => {
  const {api, token, job} = await startLockedApi(t)
  await api.join()
  await job('x')
  const tokens = [await token('management'), await token('management')]
  const launches = []
  for (const {headers} of [...tokens, ...tokens]) {
    const run = await api.post('/v1/jobs/x', undefined, {...headers, 'idempotency-key': 'k'})
    launches.push(run.headers['x-launch-id'])
  }
  const [one, other, ...again] = launches
  assert.notEqual(one, other)
  assert.deepEqual(again, [one, other])
})

test('lists, searches and counts show only what a token may read, page by page', async (t) => {
  const {api, client, job} = await startLockedApi(t)
  await api.join()
  const team = await client('team-a', TEAM_A)
  for (let index = 0; index < 5; index += 1) {
    await job(`team-a-${index}`, {metadata: {k: 'v'}})
    await job(`team-b-${index}`, {displayname: 'team-a-like', metadata: {k: 'v'}})
  }
  const list = async (query: string) => {
    const reply = await team.call('GET', `/v1/jobs${query}`)
    const found = reply.json.map(({name}: {name: string}) => name.replace('team-', ''))
    return `${String(reply.headers['x-total-count'])}: ${found.join(' ')}`
  }
  assert.equal(await list(''), '5: a-0 a-1 a-2 a-3 a-4')
  assert.equal(await list('?_start=1&_end=3'), '5: a-1 a-2')
  assert.equal(await list('?_order=DESC&_end=2'), '5: a-4 a-3')
  assert.equal(await list('?_sort=displayname&_end=1'), '5: a-0')
  assert.equal(await list('?q=team-'), '5: a-0 a-1 a-2 a-3 a-4')
  assert.equal(await list('?q=team-b'), '0: ')
  assert.equal(await list('?metadata[k]=v&_start=4'), '5: a-4')

  for (const name of ['team-a-0', 'team-b-0'])
    await api.store.requestRun({name, forced: true, idempotency: null})
  await api.launch()
  await api.claim()
  const busy = await team.call('GET', '/v1/busy')
  assert.equal(busy.headers['x-total-count'], '1')
  assert.deepEqual(
    busy.json.map(({job_name}: {job_name: string}) => job_name),
    ['team-a-0'],
  )
  const definitions = await client('definitions', {
    path: {'/v1/jobs/*': {capabilities: ['read']}, '/v1/busy': {capabilities: ['list']}},
  })
  // Callers who may not list the executions of a job do not see their output here either.
  assert.deepEqual((await definitions.call('GET', '/v1/busy')).json, [])
})

test('the event stream shows only events of jobs that the token may read', async (t) => {
  const {api, client} = await startLockedApi(t)
  const team = await client('team-a', TEAM_A)
  const stream = await Stream.open(api, '/v1/events', team.headers)
  const reader = await Stream.open(api, '/v1/events', {'x-service-token': ADMIN})
  for (const job of ['team-b-x', 'team-a-x', 'team-b-y']) api.events.emit('job_deleted', {job})
  api.events.emit('step_failed', {step: 'claim', message: 'team-b-secret'})
  api.events.emit('clock_stepped', {by_ms: 1})
  const text = await stream.until((so) => so.includes('clock_stepped'))
  assert.match(text, /team-a-x/)
  assert.doesNotMatch(text, /team-b/)
  assert.match(await reader.until((so) => so.includes('clock_stepped')), /team-b-secret/)
  stream.close()
  reader.close()
})

test('the event stream shows nodes and pauses only to tokens that may ask for them', async (t) => {
  const {api, client, token} = await startLockedApi(t)
  const all = {'/v1/events': {capabilities: ['list']}, '/v1/jobs/**': {capabilities: ['read']}}
  const nodes = {'/v1/members': {capabilities: ['list']}}
  const pause = {'/v1/pause': {capabilities: ['read']}}
  const seen = async (path: object | null) => {
    const reader = path === null ? await token('read') : await client(`t${names++}`, {path})
    const stream = await Stream.open(api, '/v1/events', reader.headers)
    api.events.emit('member_changed', {node: 'node-b', status: 'left'})
    api.events.emit('scheduling_changed', {node: 'node-b', scheduling: 'cordoned'})
    api.events.emit('term_began', {term: 7, node: 'node-b'})
    api.events.emit('term_ended', {term: 7, node: 'node-b', reason: 'stopped'})
    api.events.emit('submissions_paused', {paused: true})
    api.events.emit('clock_stepped', {by_ms: 1})
    const text = await stream.until((so) => so.includes('clock_stepped'))
    stream.close()
    return [...text.matchAll(/^event: (.*)$/gm)].map(([, name]) => name).slice(0, -1)
  }
  let names = 0
  const ofNodes = ['member_changed', 'scheduling_changed', 'term_began', 'term_ended']
  assert.deepEqual(await seen(TEAM_A.path), [])
  assert.deepEqual(await seen(all), [])
  assert.deepEqual(await seen({...all, ...nodes}), ofNodes)
  assert.deepEqual(await seen({...all, ...pause}), ['submissions_paused'])
  assert.deepEqual(await seen(null), [...ofNodes, 'submissions_paused'])
})

/** Starts the table of tokens, as a server does. */
async function started(locked: LockedApi): Promise<LockedApi> {
  await locked.api.access.refresh()
  locked.api.access.start()
  return locked
}

async function streamsOf(api: Api, locked: LockedApi, headers: Record<string, string>) {
  await api.join()
  await locked.job('team-a-x')
  await api.store.requestRun({name: 'team-a-x', forced: true, idempotency: null})
  await api.launch()
  const {execution} = (await api.claim())[0]!
  const id = `${execution.group}-${execution.node}-${execution.attempt}`
  const paths = ['/v1/events', `/v1/jobs/team-a-x/executions/${id}/output`]
  const streams = await Promise.all(paths.map((path) => Stream.open(api, path, headers)))
  assert.deepEqual(
    streams.map(({status}) => status),
    [200, 200],
  )
  return streams
}

/** Changes by other servers: this one receives no notification, and has to look. */
const CHANGES: Readonly<Record<string, (store: Store, accessor: string) => Promise<unknown>>> = {
  'a revocation': (store, accessor) => store.deleteToken(accessor),
  'a deleted policy': (store) => store.deletePolicy('team-a'),
  'a changed policy': (store) => store.putPolicy({name: 'team-a', rules: '{"path": {}}'}),
}

for (const [change, make] of Object.entries(CHANGES))
  test(`${change} on another server ends open streams within five seconds`, async (t) => {
    const locked = await started(await startLockedApi(t))
    const {api} = locked
    const team = await locked.client('team-a', TEAM_A)
    const streams = await streamsOf(api, locked, team.headers)
    const admin = await Stream.open(api, '/v1/events', {'x-service-token': ADMIN})
    await make(api.store, team.accessor)
    await api.clock.advance(REACHES_MS)
    await api.eventually(() => streams.every(({ended}) => ended))
    assert.ok([401, 403].includes((await team.call('GET', '/v1/events')).status))
    assert.equal(admin.ended, false)
    admin.close()
  })

test('streams end when their token expires, or when the first token is created', async (t) => {
  const locked = await started(await startLockedApi(t))
  const {api} = locked
  const expires_at = new Date(api.clock.now() + 30_000).toISOString()
  const reader = await locked.token('read', {expires_at})
  const streams = await streamsOf(api, locked, reader.headers)
  await api.clock.advance(29_000)
  assert.equal(
    streams.some(({ended}) => ended),
    false,
  )
  await api.clock.advance(1_000 + REACHES_MS)
  await api.eventually(() => streams.every(({ended}) => ended))

  const open = await startApi(t)
  open.access.start()
  const local = await Stream.open(open, '/v1/events')
  await open.post('/v1/acl/bootstrap')
  await open.eventually(() => local.ended)
})

test('a token without its store stays valid for a while, then it is 503 and not 401', async (t) => {
  let isAway = false
  const wrapStore = (store: Store) =>
    faultyStore(store, {fault: () => (isAway ? 'unavailable' : 'none')})
  const locked = await started(await startLockedApi(t, {wrapStore}))
  const {api} = locked
  const prometheus = await locked.token('metrics')
  const reader = await locked.token('read')
  const stream = await Stream.open(api, '/v1/events', reader.headers)
  isAway = true
  await api.clock.advance(STALE_MAX_MS - 10_000)
  assert.equal((await prometheus.call('GET', '/metrics')).status, 200)
  assert.equal((await api.get('/metrics', {'x-service-token': 'wrong'})).status, 401)
  assert.equal(stream.ended, false)
  await api.clock.advance(20_000)
  const late = await prometheus.call('GET', '/metrics')
  assert.deepEqual([late.status, late.json.code], [503, 'store_unavailable'])
  assert.ok(late.headers['retry-after'] !== undefined)
  await api.eventually(() => stream.ended)
  assert.equal((await api.get('/metrics', {'x-service-token': ADMIN})).status, 200)
  isAway = false
  await api.clock.advance(REACHES_MS)
  assert.equal((await prometheus.call('GET', '/metrics')).status, 200)
})

test('the use of a token is recorded rarely, and costs a request nothing', async (t) => {
  const calls: string[] = []
  const wrapStore = (store: Store) =>
    faultyStore(store, {fault: () => 'none', called: (method) => void calls.push(method)})
  const locked = await started(await startLockedApi(t, {wrapStore}))
  const {api, admin} = locked
  const reader = await locked.token('read')
  const lastUsed = async () =>
    (await admin.call('GET', `/v1/acl/tokens/${reader.accessor}`)).json.last_used_at
  assert.equal(await lastUsed(), null)
  calls.length = 0
  for (let count = 0; count < 50; count += 1) await reader.call('GET', '/metrics')
  assert.deepEqual(calls, [], 'no query')
  await api.clock.advance(61_000)
  assert.notEqual(await lastUsed(), null)
  calls.length = 0
  for (let minute = 0; minute < 20; minute += 1) {
    await reader.call('GET', '/metrics')
    await api.clock.advance(60_000)
  }
  const writes = calls.filter((method) => method === 'recordTokenUse').length
  assert.ok(writes >= 2 && writes <= 5, `${writes} writes in 20 minutes`)
})

test('wrong tokens are limited on public routes too; right ones, and no token, never', async (t) => {
  const {api, headers, token} = await startLockedApi(t)
  const prometheus = await token('metrics')
  const wrong = {'x-service-token': 'belfry_guess'}
  for (let count = 0; count < FAILURES_MAX; count += 1)
    assert.equal((await api.get('/readyz', wrong)).status, 200)
  assert.equal((await api.get('/readyz', wrong)).json.code, 'too_many_failures')
  assert.equal((await api.get('/v1/jobs', wrong)).status, 429)
  assert.equal((await api.get('/readyz')).status, 200)
  assert.equal((await api.get('/readyz', headers)).status, 200)
  // Known, but not allowed: no failure of authentication.
  for (let count = 0; count < FAILURES_MAX + 10; count += 1)
    assert.equal((await prometheus.call('GET', '/v1/jobs')).status, 403)
  assert.equal((await prometheus.call('GET', '/metrics')).status, 200)
})

test('the question what a token may do names the policy and the glob that decide', async (t) => {
  const {admin, client} = await startLockedApi(t)
  const {accessor} = await client('team-a', TEAM_A)
  const ask = async (method: string, path: string) => {
    const query = new URLSearchParams({method, path})
    return (await admin.call('GET', `/v1/acl/tokens/${accessor}/check?${query.toString()}`)).json
  }
  const run = await ask('POST', '/v1/jobs/team-a-x/run')
  assert.deepEqual(
    [run.allowed, run.checks[0]],
    [
      true,
      {
        capability: 'create',
        path: '/v1/jobs/team-a-x/run',
        allowed: true,
        policy: 'team-a',
        glob: '/v1/jobs/team-a-*/**',
        reason: '',
      },
    ],
  )
  const foreign = await ask('DELETE', '/v1/jobs/team-b-x?force=true')
  assert.deepEqual([foreign.allowed, foreign.checks[0].glob], [false, null])
  assert.match(foreign.reason, /may not delete \/v1\/jobs\/team-b-x: no glob/)
  const put = await ask('put', '/v1/jobs/team-a-x')
  assert.deepEqual(
    put.checks.map(({capability}: {capability: string}) => capability),
    ['create', 'update'],
  )
  assert.match((await ask('POST', '/v1/jobs')).reason, /The body decides/)
  assert.equal((await ask('GET', '/v1/nothing')).code, 'query_invalid')
})

test('a policy acts at once, and invalid rules grant nothing', async (t) => {
  const {policy, token} = await startLockedApi(t)
  const ci = await token('client', {policies: ['invalid', 'valid', 'missing']})
  const status = async () => (await ci.call('GET', '/v1/leader')).status
  assert.equal(await status(), 403)
  await policy('invalid', {Rules: '{"path": {"/v1/**": {"capabilities": ["read", "sudo"]}}}'})
  assert.equal(await status(), 403)
  const leader = {path: {'/v1/leader': {capabilities: ['read']}}}
  await policy('valid', leader)
  assert.equal(await status(), 503)
  await policy('missing', {path: {'/v1/leader': {capabilities: ['deny']}}})
  assert.equal(await status(), 403)
})

test('a thousand tokens with two hundred policies cost a request no query and no compilation', async (t) => {
  const calls: string[] = []
  const wrapStore = (store: Store) =>
    faultyStore(store, {fault: () => 'none', called: (method) => void calls.push(method)})
  const {api, headers} = await startLockedApi(t, {wrapStore})
  const rules = (team: number) =>
    JSON.stringify({path: {[`/v1/jobs/team-${team}-*`]: {capabilities: ['read']}}})
  for (let team = 0; team < 200; team += 1)
    await api.store.putPolicy({name: `p-${team}`, rules: rules(team)})
  for (let index = 0; index < 1_000; index += 1)
    await api.store.createToken({
      accessor: `id-${index}`,
      digest: digestOf(`secret-${index}`),
      name: `token ${index}`,
      kind: 'client',
      policies: [`p-${index % 200}`],
      expiresAt: null,
      isFirst: false,
    })
  await api.access.refresh()
  const rulesOf = (index: number) => api.access.principal(`id-${index}`)!.rules
  assert.equal(rulesOf(3), rulesOf(203), 'tokens with the same policies share their rules')
  const before = rulesOf(7)
  calls.length = 0
  for (let index = 0; index < 1_000; index += 50) {
    const own = {'x-service-token': `secret-${index}`}
    assert.equal((await api.get(`/v1/jobs/team-${index % 200}-x`, own)).status, 404)
    assert.equal((await api.get(`/v1/jobs/team-${(index + 1) % 200}-x`, own)).status, 403)
  }
  assert.deepEqual(new Set(calls), new Set(['job']), 'only the question itself')
  // A change of one policy compiles that one again.
  await api.store.putPolicy({name: 'p-3', rules: '{"path": {}}'})
  await api.access.refresh()
  assert.equal(rulesOf(7), before)
  assert.equal((await api.get('/v1/jobs/team-3-x', {'x-service-token': 'secret-3'})).status, 403)
  assert.equal((await api.get('/v1/acl/tokens', headers)).json.length, 1_000)
})
