/** Requests as public clients of this interface send them, with the effect that their users expect. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {StoreUnavailable} from '../../src/ports/store-errors.ts'
import {restore, startApi} from './harness.ts'

test('a client of interface 0.9 changes the command of a job that it has read', async (t) => {
  const api = await startApi(t)
  await api.post('/v1/jobs', {
    name: 'lc',
    schedule: '@every 1h',
    executor: 'shell',
    executor_config: {command: 'echo hi; sleep 0.2', shell: 'true'},
  })
  const read = (await api.get('/v1/jobs/lc')).json
  const edited = await api.post('/v1/jobs', {...read, command: 'echo edited', shell: true})
  assert.equal(edited.status, 201)
  assert.deepEqual(edited.json.executor_config, {command: 'echo edited', shell: 'true'})
})

test('environment variables at the top level, as in interface 0.10, reach the command', async (t) => {
  const api = await startApi(t)
  const stored = await api.post('/v1/jobs', {
    name: 'env',
    schedule: '@every 1h',
    executor: 'shell',
    executor_config: {command: 'env'},
    environment_variables: ['A=1', 'B=x,y'],
  })
  assert.equal(stored.headers['x-ignored-fields'], undefined)
  assert.deepEqual(stored.json.executor_config, {command: 'env', env: 'A=1,B=x\\,y'})
})

test('processors and executors of other servers are stored with a warning', async (t) => {
  const api = await startApi(t)
  const created = await api.post(
    '/v1/jobs',
    '{"name":"hola","schedule":"@every 10s","tags":{},"retries":2,"processors":{"slack":{}},' +
      '"concurrency":"","executor":"shell","executor_config":{"command":"date"}}',
  )
  assert.equal(created.status, 201, created.text)
  assert.deepEqual(created.json.processors, {slack: {}})
  assert.equal(
    created.headers['x-warnings'],
    'processors: "slack" is on no node, so runs will skip it; known are files, log',
  )
  for (const processor of ['fluent', 'email', 'elasticsearch']) {
    const stored = await api.post('/v1/jobs', {
      name: processor,
      schedule: '@manually',
      command: 'true',
      processors: {[processor]: {any: 'thing'}},
    })
    assert.match(String(stored.headers['x-warnings']), /processors: ".*" is on no node/)
  }
  const foreign = ['kafka', 'nats', 'rabbitmq', 'grpc', 'gcppubsub'].map((executor) => {
    const executor_config = {brokerAddress: '127.0.0.1:9092', topic: 'x'}
    return {name: `on-${executor}`, schedule: '0 ~ * * * *', executor, executor_config}
  })
  for (const job of foreign) {
    const stored = await api.post('/v1/jobs', job)
    assert.equal(stored.status, 201, stored.text)
    assert.deepEqual(stored.json.executor_config, job.executor_config)
    const warning = /^executor: ".*" is on no node, so every run of this job will fail/
    assert.match(String(stored.headers['x-warnings']), warning)
  }
  const file = foreign.map((job) => ({...job, name: `restored-${job.executor}`}))
  const restored = await restore(api, file)
  assert.equal(restored.status, 200)
  assert.equal(restored.json.length, foreign.length)
  const warned = String(restored.headers.get('x-warnings')).split('; restored-')
  assert.equal(warned.length, foreign.length)
  assert.match(warned[0]!, /^restored-kafka: executor: "kafka" is on no node/)
  // Other names are mistakes.
  const wrong = await api.post('/v1/jobs', {name: 'w', schedule: '@daily', executor: 'shel'})
  assert.equal(wrong.status, 400)
  assert.match(wrong.text, /"shel" is not known; known are http, shell/)
})

test('the role of another server selects every node; tags that no node has are warned of', async (t) => {
  const api = await startApi(t)
  await api.join({disk: 'ssd'})
  const job = (name: string, tags: Record<string, string>) => {
    return {name, schedule: '@every 10m', command: 'date', executor: 'shell', tags}
  }
  const everywhere = await api.post('/v1/jobs', job('role', {role: 'dkron:1'}))
  assert.equal(everywhere.status, 201)
  assert.equal(everywhere.headers['x-warnings'], undefined)
  assert.deepEqual(everywhere.json.tags, {role: 'dkron:1'})
  assert.equal((await api.post('/v1/jobs/role')).status, 202)
  assert.equal(
    (await api.post('/v1/jobs', job('fits', {disk: 'ssd'}))).headers['x-warnings'],
    undefined,
  )
  const warning = 'tags: no node has role=web:1, so runs wait for one and are then skipped'
  const nowhere = await api.post('/v1/jobs', job('nowhere', {role: 'web:1'}))
  assert.equal(nowhere.status, 201)
  assert.equal(nowhere.headers['x-warnings'], warning)
  const restored = await restore(api, [job('a', {role: 'dkron'}), job('b', {role: 'web:1'})])
  assert.equal(restored.headers.get('x-warnings'), `b: ${warning}`)
})

test('a restore with 50 warnings names 20 of them and the total', async (t) => {
  const api = await startApi(t)
  const file = Array.from({length: 50}, (_, index) => {
    return {name: `job-${index}`, schedule: '@daily', executor: 'kafka'}
  })
  const restored = await restore(api, file)
  assert.equal(restored.json.length, 50)
  const warnings = String(restored.headers.get('x-warnings')).split('; job')
  assert.equal(warnings[0], '50 warnings, of which 20 follow')
  assert.equal(warnings.length, 21)
})

test('a submit is stored without a warning of its tags when the members cannot be read', async (t) => {
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      members: () => Promise.reject(new StoreUnavailable('down')),
    }),
  })
  const stored = await api.post('/v1/jobs', {
    name: 'tagged',
    schedule: '@daily',
    command: 'true',
    tags: {disk: 'ssd'},
  })
  assert.deepEqual([stored.status, stored.headers['x-warnings']], [201, undefined])
})

test('an execution that waits for its retry is not listed as a run, unless status asks for it', async (t) => {
  const api = await startApi(t)
  await api.join()
  const retrying = {name: 'x_retry', schedule: '@manually', retries: 3, command: 'false'}
  assert.equal((await api.post('/v1/jobs', retrying)).status, 201)
  await api.finish(await api.running('x_retry'), 'failed')
  for (const path of ['/v1/jobs/x_retry/executions', '/v1/executions/x_retry']) {
    const list = async (query: string) => {
      const {json, headers} = await api.get(`${path}${query}`)
      const statuses = json.map(({status}: {status: string}) => status)
      return [headers['x-total-count'], ...statuses]
    }
    assert.deepEqual(await list(''), ['1', 'failed'])
    assert.deepEqual(await list('?status='), ['1', 'failed'])
    assert.deepEqual(await list('?status=pending'), ['1', 'pending'])
    assert.deepEqual(await list('?status=all'), ['2', 'pending', 'failed'])
  }
  const [launch] = (await api.get('/v1/jobs/x_retry/launches')).json
  assert.equal(launch.executions.length, 2)
})

test('a policy without a body is a policy without rules', async (t) => {
  const api = await startApi(t)
  const stored = await api.post('/v1/acl/policies/ops')
  assert.equal(stored.status, 202, stored.text)
  assert.deepEqual(stored.json, {Name: 'ops', Rules: ''})
  assert.deepEqual((await api.get('/v1/acl/policies/ops')).json, stored.json)
})

test('an error has its sentence as message too, which consoles show', async (t) => {
  const api = await startApi(t)
  const {json} = await api.get('/v1/jobs/unknown')
  assert.equal(json.detail, 'There is no job named "unknown".')
  assert.equal(json.message, json.detail)
})
