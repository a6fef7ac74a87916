/** Incidents, messages and previews over HTTP: pages, filters, who sees what, and sending again. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {closedPort, MailGuard} from '../notices/receivers.ts'
import {type Api, startApi} from './harness.ts'
import {type LockedApi, startLockedApi} from './tokens.ts'

const INCIDENTS = '/v1/notices/incidents'
const MESSAGES = '/v1/notices/messages'
const HOOK = {kind: 'webhook', config: {url: 'https://example.org/'}}
const RULE = {to: ['hook'], when: {failed: {}, skipped: {}}, severity: 'critical'}

const seeds = new Map<Api, number>()

/** Evaluates as a server does, a while later. */
async function evaluate(api: Api): Promise<void> {
  await api.clock.advance(60_000)
  const seed = (seeds.get(api) ?? 0) + 1
  seeds.set(api, seed)
  await api.store.evaluateNotices({olderThanMs: 0, sweep: null, seed: `s${seed}`})
}

/** Ends the claimed messages: they are dead, or sent. */
async function deliver(api: Api, outcome: 'sent' | 'permanent'): Promise<void> {
  const claimed = await api.store.claimNotices({sender: 'me', free: {}, otherwise: 10})
  for (const {channel, message} of claimed) {
    const {id, attempt} = message
    const mark = {id, channel, attempt, sender: 'me', outcome, cause: 'the receiver refused it'}
    await api.store.markNotice(mark)
  }
}

async function kill(api: Api): Promise<void> {
  for (let attempt = 0; attempt < 6; attempt += 1) {
    await deliver(api, 'permanent')
    await api.clock.advance(2 * 3_600_000)
  }
}

async function failing(locked: LockedApi, names: readonly string[]): Promise<Api> {
  const {api, admin} = locked
  await api.join()
  await admin.call('PUT', '/v1/notices/channels/hook', HOOK)
  await admin.call('PUT', '/v1/notices/rules/rule', RULE)
  for (const name of names) {
    await locked.job(name)
    await admin.call('POST', `/v1/jobs/${name}?force`)
    await api.launch()
    const [claimed] = await api.claim()
    await api.finish(claimed!, 'failed', {text: 'the output\n'})
  }
  await evaluate(api)
  return api
}

test('incidents are listed by state, rule and job, page by page', async (t) => {
  const locked = await startLockedApi(t)
  await failing(locked, ['load', 'mart'])
  const {admin} = locked
  const list = async (query = '') => (await admin.call('GET', `${INCIDENTS}${query}`)).json
  const {incidents, next} = await list()
  assert.equal(next, null)
  assert.deepEqual(
    incidents.map(({key, state, summary, count}: Record<string, unknown>) => [
      key,
      state,
      summary,
      count,
    ]),
    [
      ['rule/mart/failed', 'open', 'mart failed: exit code 1', 1],
      ['rule/load/failed', 'open', 'load failed: exit code 1', 1],
    ],
  )
  assert.equal(typeof incidents[0].launch, 'number')
  const keys = async (query: string) =>
    (await list(query)).incidents.map(({key}: {key: string}) => key)
  assert.deepEqual(await keys('?job=LO*'), ['rule/load/failed'])
  assert.deepEqual(await keys('?state=closed'), [])
  assert.deepEqual(await keys('?rule=other'), [])
  const first = await list('?limit=1')
  assert.equal(first.incidents[0].job, 'mart')
  const second = await list(`?limit=1&after=${first.next}`)
  assert.deepEqual([second.incidents[0].job, second.next], ['load', null])
  const wrong = await admin.call('GET', `${INCIDENTS}?after=nonsense`)
  assert.deepEqual([wrong.status, wrong.json.code], [400, 'cursor_invalid'])
  assert.equal((await admin.call('GET', `${INCIDENTS}?state=odd`)).status, 400)
})

test('a dead message is listed with its cause, and is sent again with its id', async (t) => {
  const locked = await startLockedApi(t)
  const api = await failing(locked, ['load'])
  const {admin} = locked
  await kill(api)
  const {json} = await admin.call('GET', `${MESSAGES}?state=dead&rule=rule&channel=hook&job=load`)
  const [dead] = json.messages
  assert.deepEqual(
    [dead.state, dead.attempts, dead.error, dead.message.kind, dead.message.summary],
    ['dead', 4, 'the receiver refused it', 'opened', 'load failed: exit code 1'],
  )
  assert.equal(dead.message.incidents[0].output_tail, '')
  const {id} = dead.message
  const again = await admin.call('POST', `${MESSAGES}/${id}/resend`)
  assert.equal(again.status, 200, again.text)
  assert.deepEqual([again.json.state, again.json.attempts, again.json.error], ['waiting', 0, ''])
  assert(api.wakeup.notified.includes('notices'), 'servers that look rarely are woken')
  const claimed = await api.store.claimNotices({sender: 'me', free: {}, otherwise: 10})
  const sent = claimed.find(({message}) => message.id === id)!
  assert.deepEqual([sent.message.repeat, sent.message.attempt], [true, 1])
  assert.equal(sent.message.incidents[0]!.outputTail, 'the output')
  const {json: log} = await admin.call('GET', '/v1/audit?action=message.resend')
  assert.deepEqual([log[0].target, log[0].detail], [id, 'over hook, dead'])
  const unknown = await admin.call('POST', `${MESSAGES}/ntc_none/resend`)
  assert.deepEqual([unknown.status, unknown.json.code], [404, 'message_unknown'])
})

test('a client sees incidents and messages of its own jobs only', async (t) => {
  const locked = await startLockedApi(t)
  await failing(locked, ['team-a-load', 'team-b-load'])
  const lists = {
    [INCIDENTS]: {capabilities: ['list']},
    [MESSAGES]: {capabilities: ['list']},
    [`${MESSAGES}/**`]: {capabilities: ['create']},
    '/v1/notices/preview': {capabilities: ['create']},
    '/v1/jobs/team-a-*': {capabilities: ['read']},
  }
  const team = await locked.client('team', {path: lists})
  const seen = await team.call('GET', INCIDENTS)
  assert.deepEqual(
    seen.json.incidents.map(({job}: {job: string}) => job),
    ['team-a-load'],
  )
  const {json, text} = await team.call('GET', MESSAGES)
  const [{message}] = json.messages
  assert.deepEqual([message.summary, message.more], ['team-a-load', 0])
  assert(!text.includes('team-b'), text)
  const refused = await team.call('POST', `${MESSAGES}/${message.id}/resend`)
  assert.deepEqual([refused.status, refused.json.code], [403, 'not_allowed'])
  const other = await locked.client('other', {
    path: {...lists, '/v1/jobs/team-a-*': {capabilities: ['deny']}},
  })
  assert.deepEqual((await other.call('GET', MESSAGES)).json.messages, [])
  const hidden = await other.call('POST', `${MESSAGES}/${message.id}/resend`)
  assert.equal(hidden.status, 404)
  const preview = await team.call('POST', '/v1/notices/preview', RULE)
  assert.deepEqual([preview.json.jobs, preview.json.jobs_total], [['team-a-load'], 1])
})

test('a preview counts the messages of the last days, and names what it cannot count', async (t) => {
  const locked = await startLockedApi(t)
  const api = await failing(locked, ['load', 'mart'])
  const {admin} = locked
  await admin.call('POST', '/v1/jobs/load?force')
  await api.launch()
  await api.finish((await api.claim())[0]!, 'succeeded')
  await api.clock.advance(60_000)
  const preview = async (rule: unknown) => {
    const reply = await admin.call('POST', '/v1/notices/preview', rule)
    assert.equal(reply.status, 200, reply.text)
    return reply.json
  }
  const both = await preview({...RULE, when: {failed: {}, disabled: {for: '1h'}}})
  assert.deepEqual([both.jobs, both.jobs_total, both.partial], [['load', 'mart'], 2, false])
  assert.deepEqual(both.left_out, ['disabled'])
  assert.equal(both.messages, 2)
  assert.deepEqual(
    both.newest.map(({kind, summary}: Record<string, string>) => `${kind} ${summary}`),
    ['closed load: over', 'opened load, mart failed'],
  )
  const other = await preview({...RULE, jobs: 'other-*'})
  assert.deepEqual([other.jobs, other.jobs_total, other.messages], [[], 0, 0])
  const owned = await preview({...RULE, owner: 'nobody'})
  assert.deepEqual([owned.jobs_total, owned.messages], [0, 0])
  await api.clock.advance(8 * 24 * 3_600_000)
  assert.equal((await preview(RULE)).messages, 0)
  assert.deepEqual((await admin.call('GET', '/v1/notices/rules')).json.rules.length, 1)
  const wrong = await admin.call('POST', '/v1/notices/preview', {to: [], when: {}})
  assert.deepEqual([wrong.status, wrong.json.code], [400, 'rule_invalid'])
})

test('a rule whose author has lost all policies says that it stopped', async (t) => {
  const locked = await startLockedApi(t)
  const {admin} = locked
  await admin.call('PUT', '/v1/notices/channels/hook', HOOK)
  const author = await locked.client('anna', {
    path: {'/v1/**': {capabilities: ['read', 'update', 'list']}},
  })
  assert.equal((await author.call('PUT', '/v1/notices/rules/rule', RULE)).status, 200)
  const shown = async () => (await admin.call('GET', '/v1/notices/rules/rule')).json
  assert.equal('stopped' in (await shown()), false)
  await admin.call('DELETE', '/v1/acl/policies/anna')
  assert.match((await shown()).stopped, /^The policies of its author anna are deleted/)
  const {json} = await admin.call('GET', '/v1/notices/rules')
  assert.match(json.rules[0].stopped, /Store it again/)
})

test('a rule that stops and acts again is one event each, however often it is evaluated', async (t) => {
  const {api, admin, client} = await startLockedApi(t)
  await admin.call('PUT', '/v1/notices/channels/hook', HOOK)
  const path = {'/v1/**': {capabilities: ['read', 'update', 'list']}}
  const author = await client('anna', {path})
  assert.equal((await author.call('PUT', '/v1/notices/rules/rule', RULE)).status, 200)
  const policy = (method: 'POST' | 'DELETE') => admin.call(method, '/v1/acl/policies/anna', {path})
  const events = () => [
    ...api.events.of('notice_rule_stopped').map(() => 'stopped'),
    ...api.events.of('notice_rule_resumed').map(() => 'resumed'),
  ]
  assert.ok((await policy('POST')).status < 300)
  assert.deepEqual(events(), [])
  assert.ok((await policy('DELETE')).status < 300)
  for (let look = 0; look < 3; look += 1)
    await api.store.evaluateNotices({olderThanMs: 0, sweep: null, seed: `s${look}`})
  assert.deepEqual(api.events.of('notice_rule_stopped'), [{rule: 'rule', author: 'anna'}])
  assert.deepEqual(events(), ['stopped'])
  assert.ok((await policy('POST')).status < 300)
  assert.deepEqual(api.events.of('notice_rule_resumed'), [{rule: 'rule', author: 'anna'}])
  await policy('DELETE')
  assert.equal((await admin.call('PUT', '/v1/notices/rules/rule', RULE)).status, 200)
  assert.deepEqual(events(), ['stopped', 'stopped', 'resumed', 'resumed'])
})

test('no secret of a channel is in a reply, the log of changes, an event or a backup', async (t) => {
  const addresses = new MailGuard(await closedPort())
  const api = await startApi(t, {addresses})
  const secret = 'hunter2-hunter2-hunter2'
  const key = `whsec_${Buffer.from(secret.repeat(2)).toString('base64')}`
  const channels: readonly (readonly [kind: string, config: object])[] = [
    ['webhook', {url: 'https://127.0.0.1:1/', secret: key}],
    ['mail', {smtp: 'smtp://a@127.0.0.1:2525', password: secret, to: ['a@example.org']}],
    ['slack', {url: `https://127.0.0.1:1/${secret}`}],
    ['discord', {url: `https://127.0.0.1:1/${secret}`}],
    ['teams', {url: `https://127.0.0.1:1/${secret}`}],
    ['ntfy', {url: 'https://127.0.0.1:1/topic', token: secret}],
    ['pagerduty', {routing_key: secret, url: 'https://127.0.0.1:1/'}],
    ['ping', {url: `https://127.0.0.1:1/${secret}`}],
  ]
  const texts: string[] = []
  for (const [kind, config] of channels) {
    const stored = await api.call('PUT', `/v1/notices/channels/${kind}`, {body: {kind, config}})
    assert.equal(stored.status, 200, stored.text)
    const tested = await api.settled(api.post(`/v1/notices/channels/${kind}/test`))
    assert.equal(tested.json.delivered, false)
    texts.push(stored.text, tested.text)
  }
  const to = channels.map(([kind]) => kind)
  const rule = {to, when: {failed: {}}}
  texts.push((await api.call('PUT', '/v1/notices/rules/rule', {body: rule})).text)
  await api.join()
  await api.job('load')
  await api.finish(await api.running('load'), 'failed')
  await evaluate(api)
  for (const path of [
    '/v1/notices/channels',
    ...to.map((name) => `/v1/notices/channels/${name}`),
    '/v1/notices/rules',
    INCIDENTS,
    MESSAGES,
    '/v1/secrets',
    '/v1/audit',
    '/v1/backup',
  ]) {
    const reply = await api.get(path)
    assert.equal(reply.status, 200, path)
    texts.push(reply.text)
  }
  texts.push(JSON.stringify(api.events.all), JSON.stringify(await api.store.channels()))
  const text = texts.join('\n')
  assert.match(text, /notice_failed/)
  assert.match(text, /load failed/)
  for (const form of [secret, key, encodeURIComponent(key), Buffer.from(secret).toString('base64')])
    assert(!text.includes(form), form)
})
