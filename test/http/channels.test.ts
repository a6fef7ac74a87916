/** Channels of notices over HTTP: their secrets, tests against real receivers, and who may store them. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {SecretVault} from '../../src/platform/secret-vault.ts'
import {NetworkGuard} from '../../src/platform/network-guard.ts'
import {closedPort, MailGuard, startHttp, startSmtp} from '../notices/receivers.ts'
import {type Api, startApi} from './harness.ts'
import {startLockedApi} from './tokens.ts'

const PATH = '/v1/notices/channels'
const SECRET = 'hunter2-hunter2'

const put = (api: Api, name: string, kind: string, config: unknown, more = {}) =>
  api.call('PUT', `${PATH}/${name}`, {body: {kind, config, ...more}})

test('the secret part of a channel is in no reply, row of the audit log or configuration', async (t) => {
  const api = await startApi(t)
  const config = {smtp: 'smtps://belfry@smtp.example.org', password: SECRET, to: ['a@example.org']}
  const stored = await put(api, 'mail', 'mail', config)
  assert.equal(stored.status, 200, stored.text)
  assert.deepEqual(stored.json, {
    name: 'mail',
    kind: 'mail',
    config: {...config, password: '${secret:notice-mail}'},
    enabled: true,
    revision: 1,
    updated_at: new Date(api.clock.now()).toISOString(),
    updated_by: 'local',
    last_ok_at: null,
    failing_since: null,
    last_error: '',
  })
  // The reply can be stored again.
  const {config: shown} = stored.json
  const again = await put(api, 'mail', 'mail', {...shown, to: ['b@example.org']}, {enabled: false})
  assert.deepEqual([again.json.revision, again.json.enabled], [2, false])
  const [sealed] = await api.store.sealedSecrets(['notice-mail'])
  assert.equal(api.vault.open('notice-mail', sealed!.ciphertext), SECRET)
  const texts = await Promise.all(
    [PATH, `${PATH}/mail`, '/v1/secrets', '/v1/audit'].map(
      async (path) => (await api.get(path)).text,
    ),
  )
  assert.match(texts.join('\n'), /channel\.set/)
  assert(!texts.join('\n').includes(SECRET))
  const deleted = await api.delete(`${PATH}/mail`)
  assert.deepEqual([deleted.status, deleted.json.revision], [200, 2])
  assert.deepEqual((await api.get('/v1/secrets')).json, [])
  assert.deepEqual((await api.get(PATH)).json, {channels: []})
  for (const reply of [
    await api.get(`${PATH}/mail`),
    await api.delete(`${PATH}/mail`),
    await api.post(`${PATH}/mail/test`),
  ])
    assert.deepEqual([reply.status, reply.json.code], [404, 'channel_unknown'])
})

test('a channel that is invalid is refused with all faults, without repeating a value', async (t) => {
  const api = await startApi(t)
  const rows: readonly (readonly [body: unknown, detail: RegExp])[] = [
    [{}, /kind: is missing[^]*config: is missing/],
    [{kind: 'fax', config: {}}, /kind must be one of webhook, mail, slack/],
    [{kind: 'slack', config: SECRET}, /config: must be a JSON object/],
    [{kind: 'slack', config: {}}, /url: is missing/],
    [{kind: 'slack', config: {url: 'http://example.org/hunter2'}}, /url must begin with https:/],
    [
      {kind: 'ntfy', config: {url: 'https://ntfy.sh/a', token: 'hunt'}},
      /token: must have at least 6/,
    ],
    [{kind: 'mail', config: {smtp: 'imap://hunter2', to: ['a b']}}, /smtp must begin with smtps:/],
    [{kind: 'slack', config: {url: '${secret:none}'}}, /config: there is no secret "none"/],
    [`{"kind": ${SECRET}}`, /^Unable to parse payload: the body must be JSON/],
    [
      {kind: 'slack', config: {url: 'https://example.org'}, hunter2: 1},
      /unknown field; the fields/,
    ],
  ]
  for (const [body, detail] of rows) {
    const {status, json, text} = await api.call('PUT', `${PATH}/x`, {body})
    assert.equal(status, 400, text)
    assert.match(json.detail, detail)
    assert(!text.includes('hunt'), text)
  }
  for (const name of ['a%20b', 'x'.repeat(65)]) {
    const {json} = await put(api, name, 'slack', {url: 'https://example.org/abc'})
    assert.match(json.detail, /^The channel is invalid: the name must have 1 to 64/)
  }
  assert.deepEqual([await api.store.channels(), await api.store.secrets()], [[], []])
})

test('a test message tells whether the receiver accepts it, and the channel shows it', async (t) => {
  const api = await startApi(t)
  const answer = {status: 204}
  const receiver = await startHttp(
    t,
    (response) => void response.writeHead(answer.status).end('secret'),
  )
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
  await put(api, 'hook', 'webhook', {url: `${receiver.url}/in`, secret})
  const run = () => api.settled(api.post(`${PATH}/hook/test`))
  assert.deepEqual((await run()).json, {delivered: true, cause: '204: accepted'})
  const [{body, headers}] = receiver.received as [(typeof receiver.received)[0]]
  const message = JSON.parse(body)
  assert.deepEqual(
    [message.kind, message.summary, message.incidents],
    ['test', 'the channel hook works', []],
  )
  assert.equal(headers['webhook-id'], message.id)
  assert.match(String(headers['webhook-signature']), /^v1,/)
  answer.status = 500
  assert.deepEqual((await run()).json, {delivered: false, cause: '500: the receiver failed'})
  const {json} = await api.get(`${PATH}/hook`)
  assert.deepEqual(
    [json.last_error, json.last_ok_at],
    ['500: the receiver failed', json.updated_at],
  )
  assert.deepEqual(
    api.events.of('notice_failed').map(({channel, cause, kind}) => [channel, cause, kind]),
    [['hook', '500: the receiver failed', 'test']],
  )
  assert.equal(api.events.of('notice_sent').length, 1)
})

test('a test message goes to a mail server with the password that is stored', async (t) => {
  const smtp = await startSmtp(t, {
    authOptional: false,
    allowInsecureAuth: true,
    onAuth: ({username, password}, _session, callback) =>
      password === SECRET ? callback(null, {user: username}) : callback(new Error('no')),
  })
  const api = await startApi(t, {addresses: new MailGuard(smtp.port)})
  const config = {smtp: 'smtp://belfry@127.0.0.1', password: SECRET, to: ['ops@example.org']}
  await put(api, 'mail', 'mail', config)
  const {json} = await api.settled(api.post(`${PATH}/mail/test`))
  assert.deepEqual(json, {delivered: true, cause: '250: accepted'})
  assert.match(smtp.mails[0]!.source, /^Subject: Test: the channel mail works\r$/m)
  assert.equal(smtp.mails[0]!.user, 'belfry')
  await api.call('PUT', '/v1/secrets/notice-mail', {body: {value: 'another password'}})
  const refused = await api.settled(api.post(`${PATH}/mail/test`))
  assert.equal(refused.json.cause, '535: the mail server refused the user or the password')
  await api.delete('/v1/secrets/notice-mail')
  const gone = await api.settled(api.post(`${PATH}/mail/test`))
  assert.equal(gone.json.cause, 'the secret notice-mail of the channel has no value')
})

test('addresses that are never allowed, or denied, are not connected to', async (t) => {
  const receiver = await startHttp(t)
  const api = await startApi(t, {addresses: new NetworkGuard([], ['127.0.0.0/8'])})
  for (const url of [
    receiver.url,
    'http://169.254.169.254/latest',
    'http://[::ffff:169.254.1.1]/',
  ]) {
    await put(api, 'hook', 'webhook', {url})
    const {json} = await api.settled(api.post(`${PATH}/hook/test`))
    assert.match(json.cause, /^the address of the receiver is not allowed/)
  }
  assert.equal(receiver.connections(), 0)
})

test('at most ten tests are in progress, and each ends after ten seconds', async (t) => {
  const api = await startApi(t)
  const receiver = await startHttp(t, () => undefined)
  await put(api, 'hook', 'webhook', {url: receiver.url})
  const tests = Array.from({length: 10}, () => api.post(`${PATH}/hook/test`))
  while (receiver.received.length < 10) await receiver.next()
  const {status, json, headers} = await api.post(`${PATH}/hook/test`)
  assert.deepEqual([status, json.code, headers['retry-after']], [429, 'too_many_tests', '10'])
  await api.clock.advance(10_000)
  for (const reply of await api.settled(Promise.all(tests)))
    assert.equal(reply.json.cause, 'the receiver did not answer within 10s')
  await put(api, 'hook', 'webhook', {url: `http://127.0.0.1:${await closedPort()}`})
  const free = await api.settled(api.post(`${PATH}/hook/test`))
  assert.equal(free.json.cause, 'the host refused the connection')
})

test('without a key a secret of a channel is refused with the fix, and nothing is stored', async (t) => {
  const api = await startApi(t, {dependencies: {vault: new SecretVault(null, null)}})
  const {status, json} = await put(api, 'chat', 'slack', {url: 'https://example.org/abc'})
  assert.deepEqual([status, json.code], [409, 'secret_key_unusable'])
  assert.match(json.detail, /notice-chat of the channel[^]*--secret-key-file/)
  assert.deepEqual(await api.store.channels(), [])
})

test('a token stores channels that its policies name, with secrets that it may use', async (t) => {
  const locked = await startLockedApi(t)
  const {admin, api} = locked
  const team = await locked.client('team', {
    path: {
      '/v1/notices/channels': {capabilities: ['list']},
      '/v1/notices/channels/team-*': {capabilities: ['read', 'update']},
      '/v1/secrets/team-hook': {capabilities: ['read']},
    },
  })
  for (const name of ['team-hook', 'foreign'])
    await admin.call('PUT', `/v1/secrets/${name}`, {value: SECRET})
  const store = async (caller: typeof team, name: string, url: string) =>
    (await caller.call('PUT', `${PATH}/${name}`, {kind: 'webhook', config: {url}})).status
  const at = 'https://example.org/'
  assert.equal(await store(admin, 'ops', at), 200)
  assert.deepEqual(
    [
      await store(team, 'ops', at),
      await store(team, 'team-a', at),
      await store(team, 'team-a', `${at}\${secret:team-hook}`),
      await store(team, 'team-a', `${at}\${secret:foreign}`),
      // The 403 precedes the problem, so that a refusal does not tell which secrets exist.
      await store(team, 'team-a', `${at}\${secret:unknown}`),
    ],
    [403, 200, 200, 403, 403],
  )
  const chat = {kind: 'slack', config: {url: `${at}abc`}}
  assert.equal((await team.call('PUT', `${PATH}/team-chat`, chat)).status, 200)
  // The secret of the channel too: who may change the address could send it elsewhere.
  const elsewhere = {kind: 'slack', config: {url: '${secret:notice-team-chat}'}}
  assert.equal((await team.call('PUT', `${PATH}/team-chat`, elsewhere)).status, 403)
  const {json} = await team.call('GET', PATH)
  assert.deepEqual(
    json.channels.map(({name}: {name: string}) => name),
    ['team-a', 'team-chat'],
  )
  assert.equal((await team.call('GET', `${PATH}/ops`)).status, 403)
  assert.equal((await team.call('DELETE', `${PATH}/team-a`)).status, 403)
  const {author} = (await api.store.channel('team-a'))!
  assert.deepEqual([author.name, author.kind, author.policies.length], ['team', 'client', 1])
})
