/** A team's token tries to read, change, chain onto, restore over or run what is not its own. */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {Stream, type Reply} from './harness.ts'
import {definition, type LockedApi, startLockedApi, TEAM_A, upload} from './tokens.ts'

const OWN = 'team-a-job'
const FOREIGN = 'team-b-job'

async function twoTeams(t: Parameters<typeof startLockedApi>[0], limits: object = {}) {
  const locked = await startLockedApi(t)
  await locked.api.join({team: 'a'})
  const team = await locked.client('team-a', {...TEAM_A, ...limits})
  await locked.job(OWN)
  await locked.job(FOREIGN, {owner: 'b', metadata: {secret: 'of-b'}})
  return {...locked, team}
}

function refused(reply: Reply, about: string): void {
  assert.deepEqual([reply.status, reply.json?.code], [403, 'not_allowed'], `${about} ${reply.text}`)
}

async function names({api}: LockedApi): Promise<readonly string[]> {
  const {rows} = await api.store.jobs({
    start: 0,
    end: null,
    metadata: [],
    text: '',
    status: null,
    disabled: null,
    sort: 'name',
    order: 'asc',
  })
  return rows.map(({spec}) => spec.name)
}

test('a submit is judged by the name in its body, on every route', async (t) => {
  const parts = await twoTeams(t)
  const {team, admin} = parts
  const before = (await admin.call('GET', `/v1/jobs/${FOREIGN}`)).text
  for (const [method, path] of [
    ['POST', '/v1/jobs'],
    ['PATCH', '/v1/jobs'],
    ['PUT', `/v1/jobs/${OWN}`],
    ['PUT', `/v1/jobs/${FOREIGN}`],
  ] as const) {
    refused(await team.call(method, path, definition(FOREIGN)), `${method} ${path}`)
    refused(await team.call(method, path, definition('team-b-new')), `${method} ${path}`)
  }
  // The body has no name: that of the path counts.
  refused(await team.call('PUT', `/v1/jobs/${FOREIGN}`, {schedule: '@daily'}), 'no name')
  const mixed = await team.call('PUT', `/v1/jobs/${FOREIGN}`, definition(OWN))
  assert.equal(mixed.status, 400)
  assert.equal((await admin.call('GET', `/v1/jobs/${FOREIGN}`)).text, before)
  assert.deepEqual(await names(parts), [OWN, FOREIGN])
  assert.equal((await team.call('POST', '/v1/jobs', definition('team-a-new'))).status, 201)
})

test('a submit is checked in this order: token, pause, JSON, permission, definition, parent', async (t) => {
  const {team, admin, token} = await twoTeams(t)
  const viewer = await token('read')
  const invalid = {name: FOREIGN, schedule: 'never'}
  const statusOf = async ({call}: typeof viewer, body: unknown) => {
    const reply = await call('POST', '/v1/jobs', body)
    return [reply.status, String(reply.headers['content-type']).split(';')[0]]
  }
  await admin.call('POST', '/v1/pause')
  for (const body of [invalid, '{', definition(FOREIGN), definition(OWN)])
    for (const caller of [viewer, team])
      assert.deepEqual(await statusOf(caller, body), [503, 'text/plain'], JSON.stringify(body))
  await admin.call('POST', '/v1/unpause')
  for (const caller of [viewer, team]) {
    assert.deepEqual(await statusOf(caller, '{'), [400, 'text/plain'])
    assert.deepEqual(await statusOf(caller, invalid), [403, 'application/problem+json'])
  }
  const own = {...invalid, name: 'team-a-new'}
  assert.deepEqual(await statusOf(team, own), [400, 'text/plain'])
  assert.deepEqual(await statusOf(team, {...own, parent_job: FOREIGN}), [
    403,
    'application/problem+json',
  ])
  const child = definition('team-a-new', {parent_job: 'team-a-nobody'})
  assert.deepEqual(await statusOf(team, child), [404, 'text/plain'])
})

test('names that only look like own ones are refused or unknown', async (t) => {
  const parts = await twoTeams(t)
  const {team, api} = parts
  const paths = [
    `/v1/jobs/team-a-%2F..%2F${FOREIGN}`,
    `/v1/jobs/team-a-x%2f..%2f..%2facl%2ftokens`,
    `/v1/jobs/TEAM-A-JOB`,
    `/v1/jobs/%74eam-b-job`,
    `/v1/jobs/team-b-job%00team-a-`,
    `/v1/jobs/..%2Fjobs%2F${FOREIGN}`,
    `/v1/jobs/${OWN}/../${FOREIGN}`,
    `/v1/jobs/./${FOREIGN}`,
    `/v1//jobs/${FOREIGN}`,
    `/v1/jobs/${FOREIGN}/`,
    `//v1/jobs/${FOREIGN}`,
    `/v1/jobs/team-a-%252F${FOREIGN}`,
    `/v1/executions/${FOREIGN}`,
    `/V1/jobs/${FOREIGN}`,
    `/v1/jobs/${FOREIGN}?name=${OWN}`,
    `/v1/jobs/${FOREIGN}/executions/1-node-a-1/output`,
  ]
  for (const path of paths) {
    for (const method of ['GET', 'POST', 'DELETE']) {
      const reply = await team.call(method, path)
      assert.ok([400, 403, 404, 405].includes(reply.status), `${method} ${path} ${reply.status}`)
      assert.ok(!reply.text.includes('of-b'), path)
    }
  }
  for (const name of ['team-a-x/../team-b-job', 'Team-a-x', ' team-a-job', 'team-b-job\u200b', ''])
    assert.ok((await team.call('POST', '/v1/jobs', definition(name))).status >= 400, name)
  assert.deepEqual(await names(parts), [OWN, FOREIGN])
  assert.deepEqual(api.faults, [])
})

test('a foreign job cannot be run, toggled, cancelled, deleted or reset', async (t) => {
  const {team, api} = await twoTeams(t)
  await api.store.requestRun({name: FOREIGN, forced: true, idempotency: null})
  await api.launch()
  const {execution} = (await api.claim())[0]!
  const id = `${execution.group}-${execution.node}-${execution.attempt}`
  const at = `/v1/jobs/${FOREIGN}`
  const runs = [
    at,
    `${at}?force=true`,
    `${at}/run`,
    `${at}/toggle`,
    `${at}/executions/${id}/cancel`,
  ]
  for (const path of runs) refused(await team.call('POST', path), path)
  for (const path of [at, `${at}/executions`]) refused(await team.call('DELETE', path), path)
  for (const below of ['', '/executions', `/executions/${id}`, `/executions/${id}/output`, '/next'])
    refused(await team.call('GET', `${at}${below}`), below)
  for (const below of ['/launches', `/launches/${execution.group}`])
    refused(await team.call('GET', `${at}${below}`), below)
  const stream = await Stream.open(api, `${at}/executions/${id}/output`, team.headers)
  assert.equal(stream.status, 403)
  assert.equal((await api.store.job(FOREIGN))!.spec.disabled, false)
})

test('a missing job is refused like an existing job', async (t) => {
  const {team} = await twoTeams(t)
  const detail = async (name: string) => {
    const reply = await team.call('GET', `/v1/jobs/${name}`)
    return [reply.status, reply.json.detail.replace(name, 'X')]
  }
  assert.deepEqual(await detail(FOREIGN), await detail('team-b-unknown'))
  assert.equal((await team.call('GET', '/v1/jobs/team-a-unknown')).status, 404)
})

test('naming a parent requires update of that parent', async (t) => {
  const {team, admin, client, api} = await twoTeams(t)
  const onto = (parent: string) => definition('team-a-child', {parent_job: parent})
  for (const parent of [FOREIGN, 'team-b-unknown'])
    refused(await team.call('POST', '/v1/jobs', onto(parent)), parent)
  assert.equal((await team.call('POST', '/v1/jobs', onto('team-a-unknown'))).status, 404)
  assert.equal((await team.call('POST', '/v1/jobs', onto(OWN))).status, 201)
  // Existing children as well, by an edit and by a restore.
  refused(await team.call('PUT', '/v1/jobs/team-a-child', onto(FOREIGN)), 'edit')
  const {body, headers} = upload([onto(FOREIGN)])
  const options = {body, headers: {...headers, ...team.headers}}
  refused(await api.call('POST', '/v1/restore', options), 'restore')
  assert.equal((await admin.call('GET', '/v1/jobs/team-a-child')).json.parent_job, OWN)
  const creator = await client('creator', {
    path: {'/v1/jobs/team-a-*': {capabilities: ['create']}},
  })
  refused(
    await creator.call('POST', '/v1/jobs', definition('team-a-y', {parent_job: OWN})),
    'create',
  )
})

test('a token sees no names of foreign jobs that depend on its own', async (t) => {
  const locked = await startLockedApi(t)
  const team = await locked.client('team-a', TEAM_A)
  await locked.job('team-a-parent')
  await locked.job('team-a-child', {schedule: '', parent_job: 'team-a-parent'})
  await locked.job('team-b-secret', {schedule: '', parent_job: 'team-a-parent'})
  const {json, text} = await team.call('GET', '/v1/jobs/team-a-parent')
  assert.deepEqual(json.dependent_jobs, ['team-a-child'])
  const whole = await locked.admin.call('GET', '/v1/jobs/team-a-parent')
  assert.deepEqual(whole.json.dependent_jobs, ['team-a-child', 'team-b-secret'])
  const own = definition('team-a-parent', {displayname: 'new'})
  const texts = [
    text,
    (await team.call('GET', '/v1/jobs')).text,
    (await team.call('POST', '/v1/jobs', own)).text,
    (await team.call('POST', '/v1/jobs/team-a-parent/toggle')).text,
    (await team.call('DELETE', '/v1/jobs/team-a-parent')).text,
    (await team.call('POST', '/v1/jobs', {...own, ephemeral: true})).text,
    (await team.call('POST', '/v1/jobs', {...own, parent_job: 'team-a-child'})).text,
  ]
  for (const each of texts) assert.ok(!each.includes('team-b-secret'), each)
  await team.call('DELETE', '/v1/jobs/team-a-child')
  const refused = await team.call('DELETE', '/v1/jobs/team-a-parent')
  assert.equal(refused.json.code, 'job_has_dependents')
  assert.deepEqual(refused.json.dependent_jobs, [])
})

test('a restore is judged job by job, and changes nothing if one is refused', async (t) => {
  const parts = await twoTeams(t)
  const {team, api} = parts
  const restore = (jobs: unknown, query = '') => {
    const file = upload(jobs)
    const headers = {...file.headers, ...team.headers}
    return api.call('POST', `/v1/restore${query}`, {body: file.body, headers})
  }
  const reply = await restore([definition('team-a-2'), definition(FOREIGN)])
  refused(reply, 'restore')
  assert.deepEqual(
    reply.json.errors.map(({name}: {name: string}) => name),
    [FOREIGN],
  )
  refused(await restore([definition('team-a-2'), definition('team-b-2')], '?disabled=true'), 'new')
  refused(await restore([definition('team-a-2', {parent_job: FOREIGN})]), 'chained')
  refused(await restore([{name: FOREIGN}]), 'invalid and foreign')
  refused(await restore([{}]), 'without a name')
  assert.deepEqual(await names(parts), [OWN, FOREIGN])
  assert.equal((await restore([definition('team-a-2'), definition(OWN)])).status, 200)
  assert.deepEqual(await names(parts), ['team-a-2', OWN, FOREIGN])
})

test('a refused restore names no jobs of others', async (t) => {
  const {api, team, admin, job} = await twoTeams(t)
  await job('team-b-child', {schedule: '', parent_job: OWN})
  await job('team-a-child', {schedule: '', parent_job: 'team-b-child'})
  type Fields = Readonly<Record<string, unknown>>
  const problemsFor = async (headers: Readonly<Record<string, string>>, more: Fields) => {
    const file = upload([definition(OWN, more)])
    const sent = {...file.headers, ...headers}
    const reply = await api.call('POST', '/v1/restore', {body: file.body, headers: sent})
    assert.equal(reply.status, 400, reply.text)
    return [...reply.json.errors.map((each: {problem: string}) => each.problem), reply.text]
  }
  for (const [more, own, all] of [
    [
      {ephemeral: true},
      'is ephemeral, and jobs depend on it',
      'is ephemeral, and jobs depend on it: team-b-child',
    ],
    [
      {schedule: '', parent_job: 'team-a-child'},
      'is its own ancestor: team-a-job -> team-a-child -> … -> team-a-job',
      'is its own ancestor: team-a-job -> team-a-child -> team-b-child -> team-a-job',
    ],
  ] as const) {
    const [problem, text] = await problemsFor(team.headers, more)
    assert.equal(problem, own)
    assert.ok(!text.includes('team-b'), text)
    assert.equal((await problemsFor(admin.headers, more))[0], all)
  }
})

test('create and update are two capabilities, also when the job appears meanwhile', async (t) => {
  const {client, api, job} = await twoTeams(t)
  const only = (capability: string) =>
    client(`only-${capability}`, {
      path: {'/v1/jobs/**': {capabilities: [capability]}},
    })
  const [creator, updater] = [await only('create'), await only('update')]
  await job('there')
  refused(await creator.call('POST', '/v1/jobs', definition('there', {retries: 1})), 'replaces')
  refused(await updater.call('POST', '/v1/jobs', definition('not-there')), 'creates')
  refused(
    await creator.call('POST', '/v1/jobs', {name: 'there'}),
    'is refused before it is invalid',
  )
  assert.equal((await updater.call('POST', '/v1/jobs', {name: 'there', schedule: 'x'})).status, 400)
  assert.equal((await creator.call('POST', '/v1/jobs', definition('fresh'))).status, 201)
  assert.equal(
    (await updater.call('POST', '/v1/jobs', definition('there', {retries: 2}))).status,
    201,
  )
  assert.equal((await api.store.job('there'))!.spec.retries, 2)
  const file = upload([definition('there'), definition('fresher')])
  for (const {headers} of [creator, updater]) {
    const options = {body: file.body, headers: {...file.headers, ...headers}}
    refused(await api.call('POST', '/v1/restore', options), 'restore')
  }
})

test('limits hold for executors, accounts, node tags and log directories', async (t) => {
  const limits = {executors: ['http', 'shell'], su: ['', 'deploy'], tags: {team: ['a']}}
  const {team, api, client} = await twoTeams(t, limits)
  const fits = {tags: {team: 'a'}}
  const submit = async (more: object) => {
    const reply = await team.call(
      'POST',
      '/v1/jobs',
      definition('team-a-limited', {...fits, ...more}),
    )
    return reply.status
  }
  assert.equal(await submit({}), 201)
  assert.equal(await submit({tags: {team: 'a:1', disk: 'ssd'}}), 201)
  assert.equal(await submit({executor_config: {command: 'x', su: 'deploy'}}), 201)
  for (const [about, more] of Object.entries({
    'no tag': {tags: {}},
    'tag of another team': {tags: {team: 'b'}},
    'tag that only begins alike': {tags: {team: 'a-and-b'}},
    'count as tag': {tags: {team: '1'}},
    account: {executor_config: {command: 'x', su: 'root'}},
    'account and group': {executor_config: {command: 'x', su: 'deploy:root'}},
    'no executor': {executor: '', executor_config: {}},
    'older command field': {executor: '', executor_config: {}, command: 'x', tags: {}},
  }))
    assert.equal(await submit(more), 403, about)
  const stored = (await api.store.job('team-a-limited'))!.spec
  assert.equal(stored.executorConfig['su'], 'deploy')

  const http = await client('http-only', {...TEAM_A, executors: ['http']})
  const call = (more: object) =>
    http.call('POST', '/v1/jobs', {
      name: 'team-a-call',
      schedule: '@daily',
      executor: 'http',
      executor_config: {url: 'http://127.0.0.1/'},
      ...more,
    })
  assert.equal((await call({})).status, 201)
  refused(await call({executor: 'shell', executor_config: {command: 'x'}}), 'shell')
  refused(await call({executor: '', executor_config: {}, command: 'x', shell: true}), 'command')
  refused(await call({processors: {files: {log_dir: '/etc'}}}), 'log_dir')
  for (const name of ['tlsCertificateFile', 'tlsCertificateKeyFile', 'tlsRootCAsFile']) {
    const config = {url: 'https://127.0.0.1/', [name]: '/etc/pki/payroll.pem'}
    refused(await call({executor_config: config}), name)
  }
  assert.equal((await call({processors: {files: {}}})).status, 201)
})

test('limits hold for an edit that leaves them as the administrator set them', async (t) => {
  const {team, job, api, headers} = await twoTeams(t, {su: ['']})
  const asRoot = {executor_config: {command: 'backup', su: 'root'}}
  await job('team-a-root', asRoot)
  const edited = definition('team-a-root', {executor_config: {command: 'evil', su: 'root'}})
  refused(await team.call('PUT', '/v1/jobs/team-a-root', edited), 'edit')
  const file = upload([edited])
  const restore = {body: file.body, headers: {...file.headers, ...team.headers}}
  refused(await api.call('POST', '/v1/restore', restore), 'restore')
  // A run of the job as it is chooses nothing.
  assert.equal((await team.call('POST', '/v1/jobs/team-a-root/run')).status, 202)
  assert.equal(
    (await api.get('/v1/jobs/team-a-root', headers)).json.executor_config.command,
    'backup',
  )
})

test('deny beats every other rule of the same length, over all policies of a token', async (t) => {
  const {policy, token, job} = await startLockedApi(t)
  await policy('all', {path: {'/v1/jobs/**': {capabilities: ['read', 'create', 'list']}}})
  await policy('no-secret', {
    path: {
      '/v1/jobs/secret-*/**': {capabilities: ['deny']},
      '/v1/jobs/*/run': {capabilities: ['deny']},
    },
  })
  await policy('one-secret', {path: {'/v1/jobs/secret-known/**': {capabilities: ['read']}}})
  for (const name of ['plain', 'secret-a', 'secret-known']) await job(name)
  const both = await token('client', {policies: ['all', 'no-secret', 'one-secret']})
  const status = async (path: string) => (await both.call('GET', path)).status
  assert.deepEqual(
    await Promise.all(
      ['plain', 'secret-a', 'secret-known'].map((name) => status(`/v1/jobs/${name}`)),
    ),
    [200, 403, 200],
  )
  assert.equal(await status('/v1/jobs/secret-a/executions'), 403)
  const shown = await both.call('GET', '/v1/jobs')
  assert.deepEqual(
    [shown.headers['x-total-count'], shown.json.map(({name}: {name: string}) => name)],
    ['2', ['plain', 'secret-known']],
  )
  // Two routes run a job, with the same rule.
  for (const path of ['/v1/jobs/plain', '/v1/jobs/plain/run'])
    assert.equal((await both.call('POST', path)).status, 403, path)
})

test('a token that may only run or change a job does not see its definition or output', async (t) => {
  const {api, client, job} = await startLockedApi(t)
  await api.join()
  const secret = {executor_config: {command: 'true', env: 'PASSWORD=hunter2'}}
  await job('deploy', {...secret, metadata: {secret: 'hunter2'}})
  const blind = await client('blind', {
    path: {'/v1/jobs/deploy/**': {capabilities: ['create', 'delete']}},
  })
  const run = await blind.call('POST', '/v1/jobs/deploy/run')
  assert.deepEqual([run.status, run.json.name, run.json.executor_config], [202, 'deploy', {}])
  await api.launch()
  const claimed = (await api.claim())[0]!
  await api.write(claimed, 0, 'hunter2')
  const {group, node, attempt} = claimed.execution
  const cancel = `/v1/jobs/deploy/executions/${group}-${node}-${attempt}/cancel`
  const calls = [
    ['POST', '/v1/jobs/deploy'],
    ['POST', cancel],
    ['POST', '/v1/jobs/deploy/toggle'],
    ['DELETE', '/v1/jobs/deploy/executions'],
    ['DELETE', '/v1/jobs/deploy'],
  ] as const
  for (const [method, path] of calls) {
    const reply = await blind.call(method, path)
    assert.ok(reply.status < 300, `${method} ${path} ${reply.text}`)
    assert.ok(!reply.text.includes('hunter2'), `${method} ${path} ${reply.text}`)
  }
})

test('to submit a job and run it takes both rights', async (t) => {
  const {admin, client, job} = await startLockedApi(t)
  await job('ci', {owner: 'ann'})
  const editor = await client('editor', {
    path: {'/v1/jobs/ci': {capabilities: ['update']}, '/v1/jobs/ci/run': {capabilities: ['deny']}},
  })
  const maker = await client('maker', {
    path: {'/v1/jobs/*': {capabilities: ['create']}, '/v1/jobs/*/run': {capabilities: ['deny']}},
  })
  const runner = await client('runner', {
    path: {
      '/v1/jobs/ci': {capabilities: ['update']},
      '/v1/jobs/ci/run': {capabilities: ['create']},
    },
  })
  const before = (await admin.call('GET', '/v1/jobs/ci')).text
  for (const [method, path] of [
    ['PUT', '/v1/jobs/ci'],
    ['POST', '/v1/jobs'],
    ['PATCH', '/v1/jobs'],
  ] as const) {
    const body = definition('ci', {retries: 1})
    refused(await editor.call(method, `${path}?runoncreate`, body), `${method} ${path}`)
  }
  refused(await maker.call('POST', '/v1/jobs?runoncreate', definition('new')), 'a new job')
  assert.equal((await admin.call('GET', '/v1/jobs/ci')).text, before)

  const plain = await editor.call('PUT', '/v1/jobs/ci', definition('ci', {retries: 1}))
  assert.deepEqual([plain.status, plain.json.owner, plain.json.status], [201, '', ''])
  const both = await runner.call('PUT', '/v1/jobs/ci?runoncreate', definition('ci'))
  assert.deepEqual([both.status, typeof both.headers['x-launch-id']], [201, 'string'])
})

test('the recipes of the documentation do what they say', async (t) => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/how-to/access.md'), 'utf8')
  const [teamRules, ciRules, ...others] = [...page.matchAll(/```json\n([^`]*)```/g)].map(
    ([, text]) => JSON.parse(text!) as object,
  )
  assert.deepEqual(others, [])
  const {client, job, api} = await startLockedApi(t)
  await api.join({team: 'a'})
  const tags = {team: 'a'}
  for (const name of ['deploy', 'team-a-1', 'team-b-1']) await job(name, {tags})
  const team = await client('team-a', teamRules)
  const ci = await client('ci', ciRules)
  const may = async (caller: typeof ci, ...request: Parameters<typeof ci.call>) => {
    const {status} = await caller.call(...request)
    assert.ok(status < 300 || status === 403, `${request.join(' ')} is ${status}`)
    return status !== 403
  }
  const stored = definition('team-a-2', {tags})
  const table = [
    [await may(team, 'POST', '/v1/jobs', stored), true],
    [await may(team, 'POST', '/v1/jobs', definition('team-a-3')), false],
    [await may(team, 'POST', '/v1/jobs', definition('team-b-1', {tags})), false],
    [await may(team, 'GET', '/v1/jobs/team-a-1/executions'), true],
    [await may(team, 'POST', '/v1/jobs/team-a-1/run'), true],
    [await may(team, 'POST', '/v1/jobs/team-a-1'), true],
    [await may(team, 'POST', '/v1/jobs/team-a-1/toggle'), true],
    [await may(team, 'GET', '/v1/schedules/preview?schedule=@daily'), true],
    [await may(team, 'DELETE', '/v1/jobs/team-a-2'), true],
    [await may(team, 'GET', '/v1/jobs/deploy'), false],
    [await may(ci, 'POST', '/v1/jobs/deploy/run'), true],
    [await may(ci, 'POST', '/v1/jobs/deploy'), true],
    [await may(ci, 'POST', '/v1/jobs/team-a-1/run'), false],
    [await may(ci, 'GET', '/v1/jobs/deploy'), false],
    [await may(ci, 'DELETE', '/v1/jobs/deploy'), false],
    [await may(ci, 'POST', '/v1/jobs', definition('deploy')), false],
    [await may(ci, 'POST', '/v1/jobs/deploy/toggle'), false],
  ]
  assert.deepEqual(
    table.map(([allowed]) => allowed),
    table.map(([, expected]) => expected),
  )
})

test('policies and tokens are changed by management tokens only', async (t) => {
  const {client, admin} = await startLockedApi(t)
  const all = ['create', 'read', 'update', 'delete', 'list']
  const wide = await client('wide', {path: {'/v1/**': {capabilities: all}}})
  const management = {name: 'mine', type: 'management'}
  refused(await wide.call('POST', '/v1/acl/tokens', management), 'token')
  refused(await wide.call('POST', '/v1/acl/bootstrap'), 'bootstrap')
  refused(await wide.call('POST', '/v1/acl/policies/wide', {Rules: '{"path":{}}'}), 'policy')
  refused(await wide.call('DELETE', '/v1/acl/policies/wide'), 'policy')
  refused(await wide.call('DELETE', `/v1/acl/tokens/${wide.accessor}`), 'revoke')
  assert.equal((await admin.call('GET', '/v1/acl/tokens')).json.length, 1)
})

test('a backup takes the right to read all jobs and executions', async (t) => {
  const {client} = await startLockedApi(t)
  const read = {capabilities: ['read', 'list']}
  const partly = await client('partly', {
    path: {'/v1/**': read, '/v1/jobs/payroll-*': {capabilities: ['deny']}},
  })
  refused(await partly.call('GET', '/v1/backup'), 'backup')
  const noOutput = await client('no-output', {
    path: {'/v1/**': read, '/v1/jobs/*/executions/**': {capabilities: ['deny']}},
  })
  refused(await noOutput.call('GET', '/v1/backup'), 'backup')
  const reader = await client('reader', {path: {'/v1/**': read}})
  assert.equal((await reader.call('GET', '/v1/backup')).status, 200)
})
