/** Secrets over HTTP: set without ever being read, listed by name, deleted, and what policies allow. */
import assert from 'node:assert/strict'
import {randomBytes} from 'node:crypto'
import {test} from 'node:test'
import {SecretVault} from '../../src/platform/secret-vault.ts'
import {startApi} from './harness.ts'
import {definition, startLockedApi, upload} from './tokens.ts'

const VALUE = 'hunter2-hunter2'

test('no reply has the value of a secret, which is stored encrypted', async (t) => {
  const api = await startApi(t)
  const put = await api.call('PUT', '/v1/secrets/db.password', {body: {value: VALUE}})
  assert.equal(put.status, 200)
  assert.deepEqual(put.json, {
    name: 'db.password',
    set_at: new Date(api.clock.now()).toISOString(),
    set_by: 'local',
  })
  assert.deepEqual((await api.get('/v1/secrets')).json, [put.json])
  assert.equal((await api.get('/v1/secrets/db.password')).status, 405)
  const [sealed] = await api.store.sealedSecrets(['db.password'])
  assert.match(sealed!.ciphertext, /^v1\.[\w-]{50,}$/)
  const deleted = await api.delete('/v1/secrets/db.password')
  assert.deepEqual([deleted.status, deleted.json.name], [200, 'db.password'])
  assert.equal((await api.delete('/v1/secrets/db.password')).json.code, 'secret_unknown')
  assert.deepEqual((await api.get('/v1/secrets')).json, [])
})

test('a value that cannot be a secret is refused, without repeating it', async (t) => {
  const api = await startApi(t)
  const rows: readonly (readonly [body: unknown, detail: RegExp])[] = [
    [{value: 'abcde'}, /value: must have at least 6 characters/],
    [{value: '   abcde   '}, /value: must have at least 6 characters/],
    [{value: 'x'.repeat(8 * 1024 + 1)}, /value: must have at most 8192 bytes/],
    [{value: 'ö'.repeat(5_000)}, /value: must have at most 8192 bytes/],
    [{value: 'abc\u001bdefgh'}, /value: cannot contain control characters/],
    [{value: 12345678}, /value: must be a string/],
    [{}, /value: is missing\. Send \{"value":"\.\.\."\}/],
    [['hunter2-hunter2'], /the body must be a JSON object with value/],
    ['{"value": hunter2-hunter2}', /^Unable to parse payload: the body must be JSON/],
    ['hunter2-hunter2', /^Unable to parse payload: the body must be JSON/],
  ]
  for (const [body, detail] of rows) {
    const {status, json, text} = await api.call('PUT', '/v1/secrets/x', {body})
    assert.equal(status, 400)
    assert.match(json.detail, detail)
    assert.ok(!text.includes('hunter2') && !text.includes('abcde'), text)
  }
  for (const name of ['a%20b', 'a%2Fb', '%C3%BC', 'x'.repeat(129)]) {
    const put = await api.call('PUT', `/v1/secrets/${name}`, {body: {value: VALUE}})
    assert.equal(put.json.code, 'secret_invalid', name)
  }
  assert.deepEqual(await api.store.secrets(), [])
})

test('without a key, and with another one, setting a secret is refused with the fix', async (t) => {
  const api = await startApi(t, {dependencies: {vault: new SecretVault(null, null)}})
  const put = await api.call('PUT', '/v1/secrets/x', {body: {value: VALUE}})
  assert.deepEqual([put.status, put.json.code], [409, 'secret_key_unusable'])
  assert.match(put.json.detail, /\/dev\/urandom[^]*--secret-key-file/)
  const may = {create: true, update: true}
  const other = await new SecretVault(randomBytes(32), null).seal('y', VALUE)
  await api.store.putSecret({name: 'y', ...other!, may})
  const locked = await startApi(t, {
    wrapStore: (store) => ({...store, putSecret: async () => ({kind: 'other_key'})}),
  })
  const differs = await locked.call('PUT', '/v1/secrets/x', {body: {value: VALUE}})
  assert.match(differs.json.detail, /another key than that of this server/)
})

test('a token sets only secrets that it may create or update, and lists only those it may use', async (t) => {
  const locked = await startLockedApi(t)
  const {admin} = locked
  const team = await locked.client('team', {
    path: {
      '/v1/secrets': {capabilities: ['list']},
      '/v1/secrets/team-*': {capabilities: ['create', 'read']},
      '/v1/secrets/shared': {capabilities: ['update']},
    },
  })
  const put = async (caller: typeof team, name: string) =>
    (await caller.call('PUT', `/v1/secrets/${name}`, {value: VALUE})).status
  assert.equal(await put(admin, 'shared'), 200)
  assert.equal(await put(admin, 'foreign'), 200)
  assert.deepEqual(
    [
      await put(team, 'team-db'),
      await put(team, 'team-db'), // it may not update it
      await put(team, 'shared'),
      await put(team, 'foreign'),
      await put(team, 'other'),
    ],
    [200, 403, 200, 403, 403],
  )
  const names = async (caller: typeof team) =>
    (await caller.call('GET', '/v1/secrets')).json.map(({name}: {name: string}) => name)
  assert.deepEqual(await names(team), ['team-db'])
  assert.deepEqual(await names(admin), ['foreign', 'shared', 'team-db'])
  assert.equal((await team.call('DELETE', '/v1/secrets/team-db')).status, 403)
  const {json} = await admin.call('GET', '/v1/secrets')
  assert.deepEqual(json.at(-1).set_by, 'team')
})

const shell = (env: string, more: object = {}) => ({
  executor_config: {command: 'true', env, ...more},
})

test('a job names secrets that exist, where its executor takes them', async (t) => {
  const api = await startApi(t)
  await api.call('PUT', '/v1/secrets/db', {body: {value: VALUE}})
  const many = Array.from({length: 17}, (_, index) => `A=\${secret:s${index}}`).join(',')
  const rows: readonly (readonly [job: object, problem: RegExp | null])[] = [
    [shell('A=${secret:db}'), null],
    [shell('A=${secret:none}'), /executor_config: there is no secret "none"; set it with belfry/],
    [shell('A=${secret:a b}'), /env names a secret, and "a b" is no name of one/],
    [shell('A=${secret:db'), /env names a secret, and "" is no name of one/],
    [shell('', {command: 'echo ${secret:db}'}), /command cannot name a secret: use env/],
    [shell('', {cwd: '/${secret:db}'}), /cwd cannot name a secret: use env/],
    [shell(many), /a job can name at most 16 secrets/],
    [
      {...shell(''), processors: {files: {log_dir: '/${secret:db}'}}},
      /processors.files: log_dir cannot name a secret/,
    ],
  ]
  for (const [more, problem] of rows) {
    const {status, text} = await api.post('/v1/jobs', definition('job', {...more}))
    assert.equal(status, problem === null ? 201 : 400, text)
    if (problem !== null) assert.match(text, problem)
  }
  const job = await api.get('/v1/jobs/job')
  assert.equal(job.json.executor_config.env, 'A=${secret:db}')
})

test('a repeated submit gets its first reply, also if the secret is deleted since', async (t) => {
  const api = await startApi(t)
  await api.call('PUT', '/v1/secrets/db', {body: {value: VALUE}})
  const submit = (key: string) =>
    api.post('/v1/jobs', definition('job', shell('A=${secret:db}')), {'idempotency-key': key})
  assert.equal((await submit('1')).status, 201)
  await api.delete('/v1/secrets/db')
  assert.deepEqual([(await submit('1')).status, (await submit('2')).status], [201, 400])
})

test('who may not read a secret can neither use it nor change a job that does', async (t) => {
  const locked = await startLockedApi(t)
  const {admin, api} = locked
  const all = ['create', 'read', 'update', 'delete']
  const rules = {
    '/v1/jobs/*': {capabilities: all},
    '/v1/secrets/*': {capabilities: ['create', 'update', 'delete', 'list']},
    '/v1/secrets/own': {capabilities: ['read']},
  }
  const team = await locked.client('team', {path: rules})
  for (const name of ['own', 'foreign'])
    await admin.call('PUT', `/v1/secrets/${name}`, {value: VALUE})
  const using = (name: string, command = 'true') =>
    definition('job', {executor_config: {command, env: `A=\${secret:${name}}`}})
  const upserts = [
    ['POST', '/v1/jobs'],
    ['PATCH', '/v1/jobs'],
    ['PUT', '/v1/jobs/job'],
  ] as const
  for (const [method, path] of upserts) {
    assert.equal((await team.call(method, path, using('own'))).status, 201)
    assert.equal((await team.call(method, path, using('foreign'))).status, 403)
    // The 403 precedes the problem, so that a refusal does not tell which secrets exist.
    assert.equal((await team.call(method, path, using('unknown'))).status, 403)
  }
  assert.equal((await admin.call('POST', '/v1/jobs', using('foreign'))).status, 201)
  for (const [method, path] of upserts)
    assert.equal((await team.call(method, path, using('foreign', 'printenv'))).status, 403)
  const restore = async (name: string, caller: typeof team) => {
    const file = upload([using(name)])
    const headers = {...file.headers, ...caller.headers}
    return api.call('POST', '/v1/restore', {body: file.body, headers})
  }
  assert.equal((await restore('foreign', team)).status, 403)
  assert.match((await restore('unknown', admin)).text, /there is no secret \\"unknown\\"/)
  assert.equal((await restore('own', team)).status, 200)
  // The job needs the secret to have something to print.
  assert.equal((await team.call('POST', '/v1/jobs', definition('job'))).status, 201)
})

test('restoring a revision that names a secret needs the permission to use the secret', async (t) => {
  const locked = await startLockedApi(t)
  const {admin} = locked
  const capabilities = ['create', 'read', 'update', 'delete', 'list']
  const team = await locked.client('team', {path: {'/v1/jobs/**': {capabilities}}})
  await admin.call('PUT', '/v1/secrets/db', {value: VALUE})
  await admin.call('POST', '/v1/jobs', definition('job', shell('A=${secret:db}')))
  await team.call('POST', '/v1/jobs', definition('job'))
  const revert = async (caller: typeof team) =>
    (await caller.call('POST', '/v1/jobs/job/revisions/1/restore')).status
  assert.equal(await revert(team), 403)
  assert.equal(await revert(admin), 200)
  await admin.call('POST', '/v1/jobs', definition('job'))
  await admin.call('DELETE', '/v1/secrets/db')
  assert.equal(await revert(admin), 400)
})

test('a claim has the values of the secrets that its definitions name', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.call('PUT', '/v1/secrets/db', {body: {value: VALUE}})
  await api.call('PUT', '/v1/secrets/gone', {body: {value: VALUE}})
  await api.call('PUT', '/v1/secrets/unused', {body: {value: VALUE}})
  await api.job('plain')
  await api.job('job', shell('A=${secret:db},B=${secret:gone}'))
  await api.delete('/v1/secrets/gone')
  const {store} = api
  const claim = async () => {
    const request = {nodeId: 'id-of-node-a', incarnation: 'first-incarnation', room: 16}
    const [result] = await store.claim([{...request, token: api.random.id()}])
    return result!
  }
  await api.post('/v1/jobs/plain/run')
  await api.launch()
  const without = await claim()
  assert.deepEqual([without.claimed.length, without.secrets], [1, {}])
  await api.post('/v1/jobs/job/run')
  await api.launch()
  const result = await claim()
  assert.deepEqual(result.secrets, {db: VALUE})
  assert.equal(result.claimed[0]!.spec.executorConfig['env'], 'A=${secret:db},B=${secret:gone}')
})
