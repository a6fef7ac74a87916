/** Rules of notices and mutes over HTTP: defaults, all faults at once, and who may store them. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {type Api, startApi} from './harness.ts'
import {startLockedApi} from './tokens.ts'

const PATH = '/v1/notices/rules'
const MUTES = '/v1/notices/mutes'
const CHANNEL = {kind: 'webhook', config: {url: 'https://example.org/'}}

async function withChannel(api: Api): Promise<void> {
  const {status} = await api.call('PUT', '/v1/notices/channels/mail', {body: CHANNEL})
  assert.equal(status, 200)
}

const put = (api: Api, body: unknown, name = 'all-jobs') =>
  api.call('PUT', `${PATH}/${name}`, {body})

test('a rule has defaults, can be stored again as it is shown, and is deleted', async (t) => {
  const api = await startApi(t)
  await withChannel(api)
  const stored = await put(api, {to: ['mail'], when: {failed: {after: 2}, disabled: {for: '15m'}}})
  assert.equal(stored.status, 200, stored.text)
  const {revision, updated_at: _at, updated_by: by, ...shown} = stored.json
  assert.deepEqual([revision, by], [1, 'local'])
  assert.deepEqual(shown, {
    name: 'all-jobs',
    jobs: '*',
    metadata: {},
    owner: '',
    severity: 'error',
    to: ['mail'],
    when: {failed: {after: 2}, disabled: {for: '15m'}},
    recovered: true,
    group_wait: '5s',
    repeat: '24h',
    quiet: [],
    output_lines: 20,
  })
  const quiet = [{from: '22:00', to: '06:00', timezone: 'Europe/Berlin'}]
  const again = await put(api, {...shown, quiet})
  assert.equal(again.json.revision, 2, again.text)
  assert.deepEqual(again.json.quiet, [{...quiet[0], days: [], except: ''}])
  assert.deepEqual((await api.get(`${PATH}/all-jobs`)).json, again.json)
  assert.deepEqual((await api.get(PATH)).json, {rules: [again.json]})
  const inUse = await api.delete('/v1/notices/channels/mail')
  assert.deepEqual([inUse.status, inUse.json.code], [409, 'channel_in_use'])
  assert.match(inUse.json.detail, /the rules all-jobs send over it/)
  assert.deepEqual((await api.delete(`${PATH}/all-jobs`)).json, again.json)
  for (const reply of [await api.get(`${PATH}/all-jobs`), await api.delete(`${PATH}/all-jobs`)])
    assert.deepEqual([reply.status, reply.json.code], [404, 'rule_unknown'])
})

test('a channel that is pinged for the cluster belongs to no rule', async (t) => {
  const api = await startApi(t)
  const ping = (config: object) =>
    api.call('PUT', '/v1/notices/channels/ping', {body: {kind: 'ping', config}})
  const url = 'https://hc-ping.com/uuid'
  assert.equal((await ping({url, cluster: true})).status, 200)
  const refused = await put(api, {to: ['ping'], when: {failed: {}}})
  assert.deepEqual([refused.status, refused.json.code], [400, 'rule_invalid'])
  assert.match(
    refused.json.detail,
    /to: "ping" is pinged while Belfry works, and sends no messages/,
  )
  assert.equal((await ping({url})).status, 200)
  assert.equal((await put(api, {to: ['ping'], when: {failed: {}}})).status, 200)
  const inUse = await ping({url, cluster: true})
  assert.deepEqual([inUse.status, inUse.json.code], [400, 'channel_invalid'])
  assert.match(inUse.json.detail, /cluster: the rules all-jobs send over it/)
})

test('a rule that is invalid is refused with all faults at once, by field', async (t) => {
  const api = await startApi(t)
  await withChannel(api)
  const rows: readonly (readonly [body: unknown, details: readonly RegExp[]])[] = [
    [{}, [/to: is missing/, /when: is missing/]],
    [
      {
        jobs: 'a b',
        severity: 'urgent',
        to: [],
        when: {failed: {after: 0}, disabled: {by: '1h'}, late: {by: '1s'}, failed_times: {}},
        repeat: '1s',
        output_lines: 5_000,
        recovered: 'yes',
      },
      [
        /jobs: must be a name/,
        /severity: must be one of/,
        /to: must name at least one channel/,
        /when\.failed\.after: must be/,
        /when\.disabled\.by: is no parameter/,
        /when\.late\.by: must be from 30s/,
        /when\.failed_times: must have "times"/,
        /repeat: must be from/,
        /output_lines: must be a whole/,
        /recovered: must be true or false/,
      ],
    ],
    [{to: ['mail'], when: 'failed'}, [/when: must be a JSON object of conditions/]],
    [{to: ['mail'], when: {failed: {}}, quiet: [{from: '22:00'}]}, [/quiet: must be a list of ob/]],
    [{to: ['mail'], when: {failed: {}}, wen: {}}, [/unknown field "wen"[^]*"when"/]],
    [{name: 'x', to: ['mail'], when: {failed: {}}}, [/name: must be "all-jobs"/]],
    [{to: ['chat'], when: {failed: {}}}, [/to: there is no channel "chat"/]],
  ]
  for (const [body, details] of rows) {
    const {status, json, text} = await put(api, body)
    assert.equal(status, 400, text)
    assert.equal(json.code, 'rule_invalid')
    for (const detail of details) assert.match(json.detail, detail)
  }
  const named = await put(api, {to: ['mail'], when: {failed: {}}}, 'x'.repeat(65))
  assert.match(named.json.detail, /name: must have 1 to 64/)
  assert.deepEqual(await api.store.rules(), [])
})

test('a token stores rules that its policies name, over channels that it may read', async (t) => {
  const locked = await startLockedApi(t)
  const {admin, api} = locked
  const team = await locked.client('team', {
    path: {
      '/v1/notices/rules': {capabilities: ['list']},
      '/v1/notices/rules/team-*': {capabilities: ['read', 'update']},
      '/v1/notices/channels/team-mail': {capabilities: ['read']},
    },
  })
  for (const name of ['team-mail', 'ops'])
    await admin.call('PUT', `/v1/notices/channels/${name}`, CHANNEL)
  const store = async (caller: typeof team, name: string, ...to: readonly string[]) =>
    (await caller.call('PUT', `${PATH}/${name}`, {to, when: {failed: {}}})).status
  assert.equal(await store(admin, 'all', 'ops'), 200)
  assert.deepEqual(
    [
      await store(team, 'all', 'team-mail'),
      await store(team, 'team-a', 'team-mail'),
      await store(team, 'team-a', 'team-mail', 'ops'),
      // The 403 precedes the problem, so that a refusal does not tell which channels exist.
      await store(team, 'team-a', 'unknown'),
    ],
    [403, 200, 403, 403],
  )
  const {json} = await team.call('GET', PATH)
  assert.deepEqual(
    json.rules.map(({name}: {name: string}) => name),
    ['team-a'],
  )
  const {author} = (await api.store.rule('team-a'))!
  assert.deepEqual([author.name, author.kind, author.policies.length], ['team', 'client', 1])
})

test('a mute has an end within thirty days, and is ended by its id', async (t) => {
  const api = await startApi(t)
  const at = new Date(api.clock.now() + 3_600_000).toISOString()
  const muted = await api.post(MUTES, {jobs: 'etl-**', until: at, reason: 'move'})
  assert.deepEqual(
    [muted.status, muted.json.jobs, muted.json.until, muted.json.muted_by],
    [201, 'etl-*', at, 'local'],
  )
  assert.deepEqual((await api.get(MUTES)).json, {mutes: [muted.json]})
  const rows: readonly (readonly [body: unknown, detail: RegExp])[] = [
    [{}, /until: is missing/],
    [{until: ''}, /until: must be a time such/],
    [{until: 'tomorrow'}, /until: must be a time such as/],
    [{until: '31d'}, /until: must be in the future, at most 30d from now/],
    [{until: '2020-01-01T00:00:00Z'}, /until: must be in the future/],
    [{until: '1h', jobs: 'a b'}, /jobs: must be a name/],
    [{until: '1h', reason: 'a\nb'}, /reason: must be a text on one line/],
  ]
  for (const [body, detail] of rows) {
    const {status, json} = await api.post(MUTES, body)
    assert.equal(status, 400)
    assert.match(json.detail, detail)
  }
  const unknown = await api.post(MUTES, {until: '1h', rule: 'none'})
  assert.deepEqual([unknown.status, unknown.json.code], [404, 'rule_unknown'])
  const ended = await api.delete(`${MUTES}/${muted.json.id}`)
  assert.equal(ended.json.until, new Date(api.clock.now()).toISOString())
  for (const id of [muted.json.id, 'x', '9'.repeat(30)])
    assert.equal((await api.delete(`${MUTES}/${id}`)).json.code, 'mute_unknown')
  assert.deepEqual((await api.get(MUTES)).json, {mutes: []})
})
