/** Requests as public clients of this interface send them, with the effect that their users expect. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi} from './harness.ts'

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

test('a client of interface 0.10 sets environment variables beside the executor', async (t) => {
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
