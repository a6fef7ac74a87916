/**
 * The audit log over HTTP. Every route of the OpenAPI document that changes something leaves exactly one
 * entry with the name of the token, and none when it is refused: a new route without a row here fails.
 */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AUDIT_ACTIONS, BELFRY} from '../../src/core/audit.ts'
import {REFUSALS_EVERY_MS, RefusalLog} from '../../src/http/security/refusals.ts'
import type {AuditEntryJson} from '../../src/wire/audit.ts'
import type {Reply} from './harness.ts'
import {definition, type LockedApi, startLockedApi, TEAM_A, upload} from './tokens.ts'

type Call = (method: string, path: string, body?: unknown) => Promise<Reply>

/** A job, a policy, … that the route can change. Made by the token of the configuration. */
type Prepare = (locked: LockedApi) => Promise<unknown>

interface Route {
  readonly action: string
  readonly prepare?: Prepare
  /** The request that changes something; absent = the route, with `x` for its parameters. */
  readonly call?: (call: Call, locked: LockedApi, prepared: unknown) => Promise<Reply>
}

const JOB: Prepare = ({job}) => job('x')
const POLICY: Prepare = ({policy}) => policy('x', {path: {}})

/** Claims an execution of the job `x`; returns its id. */
const CLAIMED: Route['prepare'] = async ({api, admin, job}) => {
  await job('x')
  await admin.call('POST', '/v1/jobs/x')
  await api.launch()
  const [claimed] = await api.claim()
  const {group, node, attempt} = claimed!.execution
  return `${group}-${node}-${attempt}`
}

/** Channel at an address that is never connected to. */
const CHANNEL = {kind: 'webhook', config: {url: 'http://169.254.169.254/'}}

const RULE = {to: ['x'], when: {failed: {}}}

const ROUTES: Readonly<Record<string, Route>> = {
  'POST /v1/jobs': {
    action: 'job.create',
    call: (call) => call('POST', '/v1/jobs', definition('x')),
  },
  'PATCH /v1/jobs': {
    action: 'job.update',
    prepare: JOB,
    call: (call) => call('PATCH', '/v1/jobs', definition('x', {retries: 1})),
  },
  'PUT /v1/jobs/{name}': {
    action: 'job.create',
    call: (call) => call('PUT', '/v1/jobs/x', definition('x')),
  },
  'PATCH /v1/jobs/{name}': {
    action: 'job.update',
    prepare: JOB,
    call: (call) => call('PATCH', '/v1/jobs/x', {retries: 1}),
  },
  'POST /v1/jobs/{name}': {action: 'job.run', prepare: JOB},
  'POST /v1/jobs/{name}/run': {action: 'job.run', prepare: JOB},
  'POST /v1/jobs/{name}/revisions/{revision}/restore': {
    action: 'job.revert',
    prepare: async ({job}) => {
      await job('x')
      await job('x', {retries: 1})
    },
    call: (call) => call('POST', '/v1/jobs/x/revisions/1/restore'),
  },
  'POST /v1/jobs/{name}/toggle': {action: 'job.toggle', prepare: JOB},
  'POST /v1/jobs/{name}/disable': {action: 'job.toggle', prepare: JOB},
  'POST /v1/jobs/{name}/enable': {
    action: 'job.toggle',
    prepare: async (scene) => {
      await JOB(scene)
      await scene.admin.call('POST', '/v1/jobs/x/disable')
    },
  },
  'DELETE /v1/jobs/{name}': {action: 'job.delete', prepare: JOB},
  'DELETE /v1/jobs/{name}/executions': {action: 'job.reset', prepare: JOB},
  'POST /v1/jobs/{name}/executions/cancel': {action: 'execution.cancel', prepare: CLAIMED},
  'POST /v1/jobs/{name}/executions/{execution}/cancel': {
    action: 'execution.cancel',
    prepare: CLAIMED,
    call: (call, _locked, id) => call('POST', `/v1/jobs/x/executions/${String(id)}/cancel`),
  },
  'DELETE /v1/members/{member}': {
    action: 'member.remove',
    prepare: async ({api}) => {
      const fixed = {address: 'a', port: 1, tags: {}, server: false, runs: true, version: '1'}
      const member = {...fixed, id: 'gone', name: 'x', incarnation: 'i', slots: 1}
      await api.store.join({member}, 10_000)
      await api.store.beat([{nodeId: 'gone', incarnation: 'i', status: 'left'}])
    },
  },
  'POST /v1/members/{member}/cordon': {
    action: 'member.cordon',
    call: (call) => call('POST', '/v1/members/node-a/cordon'),
  },
  'POST /v1/members/{member}/drain': {
    action: 'member.drain',
    call: (call) => call('POST', '/v1/members/node-a/drain'),
  },
  'POST /v1/members/{member}/uncordon': {
    action: 'member.uncordon',
    prepare: ({admin}) => admin.call('POST', '/v1/members/node-a/cordon'),
    call: (call) => call('POST', '/v1/members/node-a/uncordon'),
  },
  'POST /v1/leave': {action: 'member.leave'},
  'POST /v1/pause': {action: 'submissions.pause'},
  'POST /v1/unpause': {
    action: 'submissions.resume',
    prepare: ({admin}) => admin.call('POST', '/v1/pause'),
  },
  'PATCH /v1/settings': {
    action: 'settings.update',
    call: (call) => call('PATCH', '/v1/settings', {timezone: 'Europe/Berlin'}),
  },
  'POST /v1/firing/pause': {action: 'firing.pause'},
  'POST /v1/firing/resume': {
    action: 'firing.resume',
    prepare: ({admin}) => admin.call('POST', '/v1/firing/pause'),
  },
  'POST /v1/restore': {
    action: 'job.restore',
    call: (call) => call('POST', '/v1/restore', [definition('x')]),
  },
  'POST /v1/acl/policies/{name}': {
    action: 'policy.set',
    call: (call) => call('POST', '/v1/acl/policies/x', {path: {}}),
  },
  'DELETE /v1/acl/policies/{name}': {action: 'policy.delete', prepare: POLICY},
  'POST /v1/acl/tokens': {
    action: 'token.create',
    call: (call) => call('POST', '/v1/acl/tokens', {name: 'x', type: 'read'}),
  },
  'DELETE /v1/acl/tokens/{accessor}': {
    action: 'token.revoke',
    prepare: async ({token}) => (await token('read', {name: 'x'})).accessor,
    call: (call, _locked, accessor) => call('DELETE', `/v1/acl/tokens/${String(accessor)}`),
  },
  'PUT /v1/secrets/{name}': {
    action: 'secret.set',
    call: (call) => call('PUT', '/v1/secrets/x', {value: 'hunter2-hunter2'}),
  },
  'DELETE /v1/secrets/{name}': {
    action: 'secret.delete',
    prepare: ({admin}) => admin.call('PUT', '/v1/secrets/x', {value: 'hunter2-hunter2'}),
  },
  'PUT /v1/notices/channels/{name}': {
    action: 'channel.set',
    call: (call) => call('PUT', '/v1/notices/channels/x', CHANNEL),
  },
  'DELETE /v1/notices/channels/{name}': {
    action: 'channel.delete',
    prepare: ({admin}) => admin.call('PUT', '/v1/notices/channels/x', CHANNEL),
  },
  'PUT /v1/notices/rules/{name}': {
    action: 'rule.set',
    prepare: ({admin}) => admin.call('PUT', '/v1/notices/channels/x', CHANNEL),
    call: (call) => call('PUT', '/v1/notices/rules/x', RULE),
  },
  'DELETE /v1/notices/rules/{name}': {
    action: 'rule.delete',
    prepare: async ({admin}) => {
      await admin.call('PUT', '/v1/notices/channels/x', CHANNEL)
      await admin.call('PUT', '/v1/notices/rules/x', RULE)
    },
  },
  'POST /v1/notices/messages/{id}/resend': {
    action: 'message.resend',
    prepare: async ({api, admin, job}) => {
      await admin.call('PUT', '/v1/notices/channels/x', CHANNEL)
      await admin.call('PUT', '/v1/notices/rules/x', {...RULE, when: {deleted: {}}})
      await job('x')
      await admin.call('DELETE', '/v1/jobs/x')
      await api.clock.advance(60_000)
      await api.store.evaluateNotices({olderThanMs: 0, sweep: null, seed: 'x'})
      return (await admin.call('GET', '/v1/notices/messages')).json.messages[0].message.id
    },
    call: (call, _locked, id) => call('POST', `/v1/notices/messages/${String(id)}/resend`),
  },
  'POST /v1/notices/mutes': {
    action: 'mute.set',
    call: (call) => call('POST', '/v1/notices/mutes', {until: '1h'}),
  },
  'DELETE /v1/notices/mutes/{id}': {
    action: 'mute.end',
    prepare: async ({admin}) =>
      (await admin.call('POST', '/v1/notices/mutes', {until: '1h'})).json.id,
    call: (call, _locked, id) => call('DELETE', `/v1/notices/mutes/${String(id)}`),
  },
  'POST /v1/notices/channels/{name}/test': {
    action: 'channel.test',
    prepare: ({admin}) => admin.call('PUT', '/v1/notices/channels/x', CHANNEL),
  },
}

/** Routes that change something and are not in the table, with the reason. */
const EXEMPT: Readonly<Record<string, string>> = {
  'POST /v1/acl/bootstrap': 'needs that there is no management token; a test of its own',
  'POST /v1/session': 'refused to no token that can change anything; a test of its own',
  'DELETE /v1/session': 'the same',
  'POST /v1/notices/preview': 'changes nothing',
  'POST /v1/resume': 'needs a store that was put back; a case of the store',
}

/** Actions that the tests above the last one found in the log. */
const RECORDED = new Set<string>()

/** An API with a management token called `ann`, and the calls of tokens. */
async function startAudited(t: Parameters<typeof startLockedApi>[0]) {
  const locked = await startLockedApi(t)
  await locked.api.join()
  const ann = await locked.token('management', {name: 'ann'})
  return {locked, ann}
}

async function entries({admin}: LockedApi, query = ''): Promise<AuditEntryJson[]> {
  const reply = await admin.call('GET', `/v1/audit${query}`)
  assert.equal(reply.status, 200, reply.text)
  for (const {action} of reply.json as AuditEntryJson[]) RECORDED.add(action)
  return reply.json
}

function callsAs({api}: LockedApi, headers: Readonly<Record<string, string>>): Call {
  return (method, path, body) => {
    const file = path === '/v1/restore' ? upload(body) : null
    const more = {...headers, ...file?.headers}
    return api.call(method, path, {body: file?.body ?? body, headers: more})
  }
}

function request(route: string, {call: own}: Route, call: Call, locked: LockedApi, made: unknown) {
  if (own !== undefined) return own(call, locked, made)
  const [method = '', path = ''] = route.split(' ')
  return call(method, path.replaceAll(/\{\w+\}/g, 'x'))
}

test('every route that changes something is known here', async (t) => {
  const {locked} = await startAudited(t)
  const {json} = await locked.admin.call('GET', '/v1/openapi.json')
  const changing = Object.entries(json.paths as Record<string, object>).flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => method !== 'get')
      .map((method) => `${method.toUpperCase()} ${path}`),
  )
  const known = [...Object.keys(ROUTES), ...Object.keys(EXEMPT)]
  assert.deepEqual(changing.toSorted(), known.toSorted())
})

for (const [route, row] of Object.entries(ROUTES)) {
  test(`${route} leaves one entry with the name of the token, and none when refused`, async (t) => {
    const {locked, ann} = await startAudited(t)
    const made = await row.prepare?.(locked)
    const before = await entries(locked, '?result=done')
    const reader = await locked.token('read')
    const created = await entries(locked, '?result=done')
    assert.equal(created.length, before.length + 1)
    const refused = await request(route, row, callsAs(locked, reader.headers), locked, made)
    assert.equal(refused.status, 403, refused.text)
    assert.deepEqual(await entries(locked, '?result=done'), created)
    const reply = await request(route, row, callsAs(locked, ann.headers), locked, made)
    assert(reply.status < 300, reply.text)
    const [entry, ...others] = await entries(locked, '?result=done')
    assert.equal(others.length, created.length)
    const {actor, accessor, token_type, address, action, result} = entry!
    assert.deepEqual(
      {actor, accessor, token_type, address, action, result},
      {
        actor: 'ann',
        accessor: ann.accessor,
        token_type: 'management',
        address: '127.0.0.1',
        action: row.action,
        result: 'done',
      },
    )
  })
}

test('the first token is recorded with the local caller, and the configured one by its name', async (t) => {
  const locked = await startLockedApi(t, {token: null})
  const {api} = locked
  const {secret} = (await api.post('/v1/acl/bootstrap')).json
  const headers = {'x-service-token': String(secret)}
  const {json} = await api.get('/v1/audit', headers)
  const [{actor, action, target}] = json
  assert.deepEqual([actor, action, target], ['local', 'token.create', 'bootstrap'])
  const configured = await startLockedApi(t)
  await configured.job('x')
  assert.equal((await entries(configured))[0]!.actor, 'configured')
})

test('a session is recorded when it is opened and ended', async (t) => {
  const {locked, ann} = await startAudited(t)
  const {headers} = await locked.api.post('/v1/session', undefined, ann.headers)
  const [cookie = ''] = String(headers['set-cookie']).split(';')
  const origin = `http://127.0.0.1:${locked.api.port}`
  const page = {cookie, origin, 'sec-fetch-site': 'same-origin'}
  await locked.api.call('DELETE', '/v1/session', {headers: page})
  const recorded = await entries(locked, '?action=session')
  assert.deepEqual(
    recorded.map(({actor, action}) => `${actor} ${action}`),
    ['ann session.end', 'ann session.open'],
  )
})

test('an entry has the changed fields before and after', async (t) => {
  const {locked} = await startAudited(t)
  await locked.job('x', {retries: 1, metadata: {a: '1', b: '2'}})
  await locked.job('x', {retries: 2, metadata: {a: '1', b: '3', c: '4'}})
  await locked.policy('p', {path: {}})
  await locked.admin.call('DELETE', '/v1/jobs/x')
  const [deleted, policy, updated, created] = await entries(locked)
  assert.equal(created!.before, null)
  assert.equal(created!.after!['retries'], 1)
  assert.deepEqual(updated!.before, {retries: 1, metadata: {b: '2'}})
  assert.deepEqual(updated!.after, {retries: 2, metadata: {b: '3', c: '4'}})
  assert.deepEqual([updated!.revision_before, updated!.revision_after], [1, 2])
  assert.deepEqual([policy!.before, policy!.after], [null, {Rules: '{"path":{}}'}])
  assert.equal(deleted!.before!['retries'], 2)
  assert.equal(deleted!.after, null)
})

test('a client token sees the entries of the jobs that it may read', async (t) => {
  const {locked} = await startAudited(t)
  const rules = {path: {...TEAM_A.path, '/v1/audit': {capabilities: ['list']}}}
  const team = await locked.client('team', rules)
  for (const name of ['team-a-x', 'team-b-x']) await locked.job(name)
  await locked.admin.call('DELETE', '/v1/jobs/team-a-x')
  const seen = await team.call('GET', '/v1/audit')
  const shown = (seen.json as AuditEntryJson[]).map(({action, target}) => `${action} ${target}`)
  assert.deepEqual(shown, ['job.delete team-a-x', 'job.create team-a-x'])
  assert.equal(seen.headers['x-total-count'], '2')
  for (const query of ['?target=team-b-x', '?job=team-b-x', '?actor=configured&target=team'])
    assert.deepEqual((await team.call('GET', `/v1/audit${query}`)).json, [])
  const other = await locked.client('other', TEAM_A)
  assert.equal((await other.call('GET', '/v1/audit')).status, 403)
})

test('a client token that reads all jobs sees no changes of tokens and policies', async (t) => {
  const {locked} = await startAudited(t)
  const rules = {
    path: {'/v1/jobs/**': {capabilities: ['read']}, '/v1/audit': {capabilities: ['list']}},
  }
  const reader = await locked.client('reader', rules)
  await locked.job('any')
  const seen = await reader.call('GET', '/v1/audit')
  const shown = (seen.json as AuditEntryJson[]).map(({action, target}) => `${action} ${target}`)
  assert.deepEqual(shown, ['job.create any'])
})

test('a client token sees no definition of an earlier job of the same name', async (t) => {
  const {locked} = await startAudited(t)
  const rules = {path: {...TEAM_A.path, '/v1/audit': {capabilities: ['list']}}}
  const team = await locked.client('team', rules)
  await locked.job('team-a-x', {metadata: {old: 'hunter2'}})
  await locked.job('team-a-x', {metadata: {old: 'hunter3'}})
  await locked.admin.call('DELETE', '/v1/jobs/team-a-x')
  await locked.job('team-a-x', {metadata: {new: 'mine'}})
  const seen = await team.call('GET', '/v1/audit')
  assert.doesNotMatch(seen.text, /hunter/)
  assert.deepEqual(
    (seen.json as AuditEntryJson[]).map(({action, before, after}) => {
      return [action, before !== null, after !== null]
    }),
    [
      ['job.create', false, true],
      ['job.delete', false, false],
      ['job.update', false, false],
      ['job.create', false, false],
    ],
  )
  const [, deleted] = await entries(locked, '?target=team-a-x')
  assert.match(JSON.stringify(deleted!.before), /hunter3/, 'who reads everything sees it')
})

test('the log is filtered and paged, at most a thousand entries', async (t) => {
  const {locked} = await startAudited(t)
  for (const name of ['a', 'b', 'c']) await locked.job(name)
  const targets = async (query: string) => (await entries(locked, query)).map(({target}) => target)
  assert.deepEqual(await targets('?action=job'), ['c', 'b', 'a'])
  assert.deepEqual(await targets('?action=job&_start=1&_end=2'), ['b'])
  assert.deepEqual(await targets('?actor=configured&action=token'), ['ann'])
  assert.deepEqual(await targets('?from=2100-01-01T00:00:00Z'), [])
  assert.deepEqual(await targets('?to=1990-01-01T00:00:00Z'), [])
  for (const query of ['from=soon', 'result=maybe', '_start=x'])
    assert.equal((await locked.admin.call('GET', `/v1/audit?${query}`)).status, 400, query)
})

test('secrets of tokens are nowhere in the log', async (t) => {
  const {locked, ann} = await startAudited(t)
  const {secret} = await locked.token('read')
  await locked.admin.call('DELETE', `/v1/acl/tokens/${ann.accessor}`)
  const {text} = await locked.admin.call('GET', '/v1/audit')
  for (const hidden of [secret, ann.secret]) assert(!text.includes(hidden))
})

test('tokens of agents are recorded when a node binds or gets one', async (t) => {
  const {locked} = await startAudited(t)
  const use = {actor: BELFRY, mayReplace: false} as const
  const {accessor} = await locked.token('agent')
  await locked.api.store.bindToken({...use, accessor, node: {id: 'p-id', name: 'p'}})
  const fleet = await locked.token('join')
  const issued = {accessor: 'of-q', digest: 'digest-of-q'}
  const node = {id: 'q-id', name: 'q'}
  await locked.api.store.issueToken({...use, accessor: fleet.accessor, node, issued})
  const [second, first] = (await entries(locked, '?action=token&actor=belfry')).map(
    ({action}) => action,
  )
  assert.deepEqual([first, second], ['token.bind', 'token.issue'])
})

test('a refused access is recorded', async (t) => {
  let log: RefusalLog | null = null
  const locked = await startLockedApi(t, {onRefused: (refused) => log?.record(refused)})
  log = new RefusalLog(locked.api)
  log.start()
  t.after(() => log?.stop())
  const reader = await locked.token('read')
  await reader.call('DELETE', '/v1/jobs/x')
  await locked.api.clock.advance(REFUSALS_EVERY_MS)
  const [entry] = await entries(locked, '?result=refused')
  assert.equal(entry!.action, 'access.refused')
})

test('every action is recorded by a test above, and no other', () => {
  assert.deepEqual([...RECORDED].toSorted(), AUDIT_ACTIONS.toSorted())
})
