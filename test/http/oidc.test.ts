/** Sign-in through an OpenID Connect provider: a real one, then forged answers and failures. */
import assert from 'node:assert/strict'
import {test, type TestContext} from 'node:test'
import type {OidcConfig} from '../../src/config/oidc.ts'
import {FAILURE_WINDOW_MS, FAILURES_MAX} from '../../src/http/security/auth.ts'
import {CALLBACK_PATH, issuerOwners, OidcSignIn, safeReturn} from '../../src/http/security/oidc.ts'
import {AccessTable} from '../../src/identity/token-cache.ts'
import {CLIENT, type Forged, fakeProvider, realProvider} from '../support/oidc-providers.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import type {RefusedRequest} from '../../src/http/options.ts'
import {type Api, type Reply} from './harness.ts'
import {startLockedApi} from './tokens.ts'

const PUBLIC_URL = 'https://belfry.example.org'
const ANN = {sub: 'ann-7', email: 'ann@example.org', email_verified: true, groups: ['ops', 'all']}
const GRANTS: OidcConfig['grants'] = [
  {group: 'ops', grant: 'management'},
  {group: 'auditors', grant: 'read'},
  {group: 'team-a', grant: {policy: 'team-a'}},
]

function configOf(issuer: string): OidcConfig {
  return {
    issuer,
    clientId: CLIENT.id,
    clientSecret: CLIENT.secret,
    scope: 'openid profile email',
    groupsClaim: 'groups',
    grants: GRANTS,
    publicUrl: PUBLIC_URL,
  }
}

const KEY = 'the key of the cluster'

async function startApi(t: TestContext, issuer: string, key = KEY) {
  const failures: string[] = []
  const refused: RefusedRequest[] = []
  const missing: string[] = []
  const clock = new VirtualClock()
  const oidc = new OidcSignIn(configOf(issuer), {clock, random: new SeededRandom(5), key})
  const locked = await startLockedApi(t, {
    oidc,
    allowHosts: ['belfry.example.org'],
    onSignInFailed: (failure) => void failures.push(failure.reasons),
    onPoliciesMissing: (person, policies) => void missing.push(`${person}: ${policies.join()}`),
    onRefused: (request) => void refused.push(request),
  })
  return {...locked, failures, missing, refused, signInClock: clock}
}

/** A cookie that a reply sets, as the browser sends it back. */
function cookieOf(reply: Reply, name: RegExp): string {
  const found = (reply.headers['set-cookie'] ?? []).find((text) => name.test(text))
  return found?.split(';')[0] ?? ''
}

const SIGN_IN = /^__Host-belfry-sign-in=/
const SESSION = /^__Host-belfry-session=/

/** Starts a sign-in: where the browser is sent, with its cookie. */
async function begin(api: Api, query = '') {
  const reply = await api.get(`/v1/session/oidc${query}`)
  assert.equal(reply.status, 303, reply.text)
  const set = (reply.headers['set-cookie'] ?? [])[0]!
  assert.match(set, /; Path=\/; HttpOnly; SameSite=Lax; Secure; Max-Age=600$/)
  return {url: new URL(reply.headers.location!), cookie: cookieOf(reply, SIGN_IN)}
}

/** Follows the pages of the real provider, back to the callback: its query. */
async function atProvider(url: URL): Promise<string> {
  const jar = new Map<string, string>()
  let next = url
  for (let step = 0; step < 10; step += 1) {
    if (next.origin === PUBLIC_URL) {
      assert.equal(next.pathname, CALLBACK_PATH)
      return next.search
    }
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ')
    const reply = await fetch(next, {redirect: 'manual', headers: {cookie}})
    for (const set of reply.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(set)!
      jar.set(name, value)
    }
    await reply.body?.cancel()
    next = new URL(reply.headers.get('location')!, next)
  }
  throw new Error('the provider does not send the browser back')
}

const back = (api: Api, query: string, cookie: string) =>
  api.get(`${CALLBACK_PATH}${query}`, {cookie, 'sec-fetch-site': 'cross-site'})

const started = (t: TestContext) =>
  realProvider(t, `${PUBLIC_URL}${CALLBACK_PATH}`, ANN).then(async (provider) => {
    return {provider, ...(await startApi(t, provider.issuer))}
  })

test('a person signs in through a real provider, and is what the groups grant', async (t) => {
  const {provider, api, admin, failures, missing, refused: recorded, job} = await started(t)
  const signIn = async () => {
    const {url, cookie} = await begin(api, '?return=/docs')
    const query = await atProvider(url)
    return {reply: await back(api, query, cookie), query, cookie}
  }
  const {reply, query, cookie} = await signIn()
  assert.equal(reply.status, 200, failures.join())
  assert.match(reply.text, /You are signed in as ann@example\.org\./)
  assert.match(reply.text, /content="0; url=\/docs"/)
  const session = cookieOf(reply, SESSION)
  const who = (await api.get('/v1/session', {cookie: session})).json
  assert.deepEqual([who.name, who.type, who.session], ['ann@example.org', 'management', true])
  const audited = (await admin.call('GET', '/v1/audit?action=session')).json[0]
  assert.deepEqual([audited.action, audited.actor], ['session.open', 'ann@example.org'])

  const replayed = await back(api, query, cookie)
  assert.equal(replayed.status, 400, 'a code is used once')
  assert.equal(cookieOf(replayed, SESSION), '')
  assert.match(cookieOf(reply, SIGN_IN), /=$/, 'the cookie of the sign-in is removed')

  for (const [groups, expected] of [
    [['team-a', 'auditors'], 'client'],
    [['auditors'], 'read'],
  ] as const) {
    provider.account.current = {...ANN, groups}
    const cookieNow = cookieOf((await signIn()).reply, SESSION)
    assert.equal((await api.get('/v1/session', {cookie: cookieNow})).json.type, expected)
    await job('nightly')
    const jobs = (await api.get('/v1/jobs', {cookie: cookieNow})).json
    assert.equal(jobs.length, 1, 'a policy beside it takes away nothing of `read`')
  }
  assert.deepEqual(missing, ['ann@example.org: team-a'], 'the log says that it is not stored')
  provider.account.current = {...ANN, groups: ['all', 'Ops', 'ops ']}
  const refused = (await signIn()).reply
  assert.deepEqual([refused.status, cookieOf(refused, SESSION)], [403, ''])
  assert.deepEqual(
    recorded.map(({principal, code}) => `${principal?.name} ${code}`),
    ['ann@example.org not_allowed'],
    'for the audit log',
  )
  assert.match(refused.text, /ann@example\.org may not use Belfry: none of the groups/)
})

test('a wrong state, another browser and a refusal of the provider open nothing', async (t) => {
  const {provider, api} = await started(t)
  const {url, cookie} = await begin(api)
  const query = await atProvider(url)
  const changed = query.replace(/state=[^&]+/, 'state=wrong')
  const iss = `iss=${encodeURIComponent(provider.issuer)}`
  const other = await begin(api)
  for (const [sent, jar, status] of [
    [changed, cookie, 400],
    [query.replace(/&?state=[^&]+/, ''), cookie, 400],
    [query, other.cookie, 400],
    [query, '', 400],
    [query, '__Host-belfry-sign-in=', 400],
    [query, '__Host-belfry-sign-in=a.b', 400],
    [query, cookie.replace('__Host-', ''), 400],
    ['', cookie, 400],
  ] as const) {
    const reply = await back(api, sent, jar)
    assert.deepEqual([reply.status, cookieOf(reply, SESSION)], [status, ''], sent)
    assert.match(reply.text, /<h1>Sign-in failed<\/h1>/)
  }
  assert.equal((await back(api, query, cookie)).status, 200, 'and the right one does')
  for (const [answer, status] of [
    [`?error=access_denied&${iss}`, 403],
    ['?code=c&iss=https%3A%2F%2Fevil.example', 400],
  ] as const) {
    const next = await begin(api)
    const sent = `${answer}&state=${next.url.searchParams.get('state')}`
    const reply = await back(api, sent, next.cookie)
    assert.deepEqual([reply.status, cookieOf(reply, SESSION)], [status, ''], sent)
  }
  assert.deepEqual(api.faults, [])
})

test('forged and foreign ID tokens open nothing', async (t) => {
  const provider = await fakeProvider(t)
  const {api, failures} = await startApi(t, provider.issuer)
  const now = Math.floor(Date.now() / 1000)
  const signIn = async (forged: Forged) => {
    const {url, cookie} = await begin(api)
    provider.next.forged = forged
    provider.next.nonce = url.searchParams.get('nonce')!
    return back(api, `?code=c&state=${url.searchParams.get('state')}`, cookie)
  }
  assert.equal((await signIn({})).status, 200, failures.join())
  const table: readonly (readonly [string, Forged])[] = [
    ['alg none', {header: {alg: 'none'}, signed: 'none'}],
    ['alg none in capitals', {header: {alg: 'NONE'}, signed: 'none'}],
    ['no signature', {signed: 'none'}],
    ['signed by another key', {signed: 'other key'}],
    ['a key that is shared', {header: {alg: 'HS256'}}],
    ['another audience', {claims: {aud: 'another-client'}}],
    ['several audiences', {claims: {aud: [CLIENT.id, 'another-client'], azp: 'another-client'}}],
    ['another issuer', {claims: {iss: 'https://evil.example'}}],
    ['expired', {claims: {iat: now - 7_200, exp: now - 3_600}}],
    ['no expiry', {claims: {exp: undefined}}],
    ['another nonce', {claims: {nonce: 'another'}}],
    ['no nonce', {claims: {nonce: undefined}}],
    ['no subject', {claims: {sub: undefined}}],
  ]
  for (const [about, forged] of table) {
    const reply = await signIn(forged)
    assert.deepEqual([reply.status, cookieOf(reply, SESSION)], [400, ''], about)
  }
  const markup = await signIn({claims: {email: '<script>alert(1)</script>"'}})
  assert.ok(!markup.text.includes('<script>'))
  assert.deepEqual(api.faults, [])
})

test('a cookie that no server of the cluster made causes no request to the provider', async (t) => {
  const provider = await fakeProvider(t)
  const {api} = await startApi(t, provider.issuer)
  const s = 's'.repeat(43)
  const stranger = `__Host-belfry-sign-in=${s}.${s}.${s}.L3VpLw`
  const {cookie: own} = await begin((await startApi(t, provider.issuer, 'another key')).api)
  const {url, cookie} = await begin(api)
  const state = url.searchParams.get('state')
  for (const sent of [stranger, `${stranger}.0.`, own, cookie.slice(0, -2), `${cookie}x`]) {
    const stateOf = /=([^.]*)/.exec(sent)![1]
    const reply = await back(api, `?code=c&state=${stateOf}`, sent)
    assert.deepEqual([reply.status, provider.next.tokenRequests], [400, 0], sent)
  }
  provider.next.nonce = url.searchParams.get('nonce')!
  const other = await startApi(t, provider.issuer)
  const ended = await back(other.api, `?code=c&state=${state}`, cookie)
  assert.equal(ended.status, 200, 'another server of the cluster ends it')
})

test('a sign-in link works once, and for ten minutes', async (t) => {
  const provider = await fakeProvider(t)
  const {api, signInClock} = await startApi(t, provider.issuer)
  const first = await begin(api)
  const query = ({url}: typeof first) => `?code=c&state=${url.searchParams.get('state')}`
  for (const status of [400, 400])
    assert.equal((await back(api, query(first), first.cookie)).status, status)
  assert.equal(provider.next.tokenRequests, 1)
  const second = await begin(api)
  await signInClock.advance(601_000)
  assert.equal((await back(api, query(second), second.cookie)).status, 400)
  assert.equal(provider.next.tokenRequests, 1)
})

test('failed callbacks count as failed authentication, and do not close the sign-in of others', async (t) => {
  const provider = await fakeProvider(t)
  const {api} = await startApi(t, provider.issuer)
  for (let count = 0; count < FAILURES_MAX; count += 1)
    assert.equal((await back(api, '?code=c&state=s', '')).status, 400)
  assert.equal((await back(api, '?code=c&state=s', '')).status, 429)
  assert.equal((await api.get('/v1/jobs', {'x-service-token': 'wrong'})).status, 429)
  const {url, cookie} = await begin(api)
  provider.next.nonce = url.searchParams.get('nonce')!
  const ended = await back(api, `?code=c&state=${url.searchParams.get('state')}`, cookie)
  assert.equal(ended.status, 200, 'a proxy gives all people one address')
})

test('an address asks the provider for at most 200 sign-ins that fail, in ten seconds', async (t) => {
  const provider = await fakeProvider(t)
  const {api, signInClock} = await startApi(t, provider.issuer)
  const fail = async () => {
    const {url, cookie} = await begin(api)
    return (await back(api, `?code=c&state=${url.searchParams.get('state')}`, cookie)).status
  }
  for (let count = 0; count < FAILURES_MAX; count += 1) assert.equal(await fail(), 400)
  assert.equal(await fail(), 429)
  assert.equal(provider.next.tokenRequests, FAILURES_MAX)
  await signInClock.advance(FAILURE_WINDOW_MS)
  assert.equal(await fail(), 429, 'a guess of a token is still limited')
  assert.equal(provider.next.tokenRequests, FAILURES_MAX + 1)
})

test('sign-ins that wait for the provider leave places for others to begin', async (t) => {
  const provider = await fakeProvider(t)
  const {api} = await startApi(t, provider.issuer)
  const started = await Promise.all(Array.from({length: 25}, () => begin(api)))
  const answers = provider.holdTokens()
  const ends = started.map(({url, cookie}) =>
    back(api, `?code=c&state=${url.searchParams.get('state')}`, cookie),
  )
  const refused = (await Promise.race([Promise.all(ends), busyOf(ends, 5)])).map(
    ({status}) => status,
  )
  assert.deepEqual(refused, Array<number>(5).fill(503))
  await begin(api)
  answers.release()
  assert.equal((await Promise.all(ends)).filter(({status}) => status === 503).length, 5)
})

/** The first `count` replies. */
async function busyOf(replies: readonly Promise<Reply>[], count: number): Promise<Reply[]> {
  const found: Reply[] = []
  const {promise, resolve} = Promise.withResolvers<Reply[]>()
  for (const reply of replies)
    void reply.then((each) => found.push(each) === count && resolve([...found]))
  return promise
}

test('an unreachable provider fails sign-ins only, names the cause, and is retried', async (t) => {
  const {provider, api, admin, failures} = await started(t)
  const {url, cookie} = await begin(api)
  const query = await atProvider(url)
  await provider.close()
  const late = await back(api, query, cookie)
  assert.deepEqual([late.status, cookieOf(late, SESSION)], [503, ''], failures.join())
  assert.match(late.text, /does not answer/)
  assert.equal((await admin.call('GET', '/v1/jobs')).status, 200)

  const away = await startApi(t, provider.issuer)
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const page = await away.api.get('/v1/session/oidc')
    assert.equal(page.status, 503)
    assert.match(page.text, /The sign-in provider does not answer/)
  }
  assert.equal(away.failures.length, 2, 'asked again')
  assert.equal((await away.admin.call('POST', '/v1/session')).status, 201)
  assert.match((await away.api.get('/ui/')).text, /<p id="provider">/)
})

test('a sign-in leads on only to a path of this server', async () => {
  for (const path of ['/ui/', '/docs', '/v1/jobs?q=a%20b#c', '/'])
    assert.equal(safeReturn(path), path)
  for (const path of [
    null,
    '',
    'docs',
    '//evil.example',
    '/\\evil.example',
    '\\\\evil.example',
    '/\t/evil.example',
    '/a\\b',
    'https://evil.example',
    'javascript:alert(1)',
    '/a b',
    '/ä',
    '/\nx',
    `/${'a'.repeat(1_001)}`,
  ])
    assert.equal(safeReturn(path), '/ui/', JSON.stringify(path))
})

test('sessions of people are accepted only while their provider is configured', async (t) => {
  const {provider, api} = await started(t)
  const {url, cookie} = await begin(api)
  await back(api, await atProvider(url), cookie)
  const {accessor} = (await api.store.sessions())[0]!
  const acceptedWith = async (personOwnerPrefix: string | undefined) => {
    const parts = {store: api.store, clock: api.clock, events: api.events, wakeup: api.wakeup}
    const table = new AccessTable({
      ...parts,
      traits: {executors: [], processors: []},
      token: null,
      personOwnerPrefix,
    })
    await table.refresh()
    return [table.principal(accessor) !== null, table.isLocked]
  }
  assert.deepEqual(await acceptedWith(issuerOwners(provider.issuer)), [true, true])
  assert.deepEqual(await acceptedWith(issuerOwners('https://other.example')), [false, true])
  assert.deepEqual(await acceptedWith(undefined), [false, false])
})
