/** `GET /v1/jobs/{name}/explain`: times in the zone of the job, invalid subjects, access. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi} from './harness.ts'
import {startLockedApi, TEAM_A} from './tokens.ts'

test('an explanation has its cause, its sentences, and times with the offset of the zone', async (t) => {
  const api = await startApi(t)
  await api.join({group: 'web'})
  await api.job('r', {
    schedule: '0 0 13 * * *',
    timezone: 'Europe/Berlin',
    tags: {group: 'wbe'},
  })
  const {status, json} = await api.get('/v1/jobs/r/explain?at=2026-03-02T13:00')
  assert.equal(status, 200)
  const {facts, before, after, ...shown} = json
  assert.deepEqual(shown, {
    job: 'r',
    timezone: 'Europe/Berlin',
    at: '2026-03-02T13:00:00+01:00',
    kind: 'absent',
    code: 'planned',
    sentences: ['It is planned for 2026-03-02 13:00:00, which is still to come.'],
    advice: '',
    commands: [],
    now: {state: 'idle', sentences: ['Nothing runs or waits.']},
    next: ['02', '03', '04'].map((day) => ({
      at: `2026-03-${day}T13:00:00+01:00`,
      unless: ['no node with group=wbe takes it within 10m: then it is skipped'],
    })),
  })
  assert.deepEqual(facts, {planned_at: '2026-03-02T12:00:00.000Z'})
  assert.deepEqual([before, after], [null, null])
})

test('a launch is explained by its number, with the launches beside it', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('r')
  const first = await api.running('r')
  await api.finish(first)
  const second = await api.running('r')
  const {group} = first.execution
  const {json} = await api.get(`/v1/jobs/r/explain?launch=${group}`)
  assert.deepEqual([json.kind, json.code, json.facts.launch], ['launched', 'launched', group])
  assert.match(json.sentences[0], /^It was requested at .* launched on .*, and succeeded/)
  const now = (await api.get('/v1/jobs/r/explain')).json
  assert.equal(now.facts.launch, second.execution.group)
  assert.equal(now.now.state, 'running')
})

const INVALID: readonly (readonly [query: string, status: number, code: string])[] = [
  ['at=yesterday', 400, 'query_invalid'],
  ['at=2026-13-01', 400, 'query_invalid'],
  ['at=2026-03-01&launch=1', 400, 'query_invalid'],
  ['launch=x', 400, 'query_invalid'],
  ['launch=0', 400, 'query_invalid'],
  ['launch=999', 404, 'launch_unknown'],
  ['time=2026-03-01', 400, 'parameter_unknown'],
]
test('a subject that cannot be explained is refused, and the parameter is named', async (t) => {
  const api = await startApi(t)
  await api.job('r')
  for (const [query, status, code] of INVALID) {
    const reply = await api.get(`/v1/jobs/r/explain?${query}`)
    assert.deepEqual([reply.status, reply.json.code], [status, code], query)
    if (status === 400) assert.match(reply.json.detail, new RegExp(query.split('=')[0]!))
  }
  assert.equal((await api.get('/v1/jobs/nobody/explain')).json.code, 'job_unknown')
})

test('nodes are named only to tokens that may list the members', async (t) => {
  const {api, admin, client} = await startLockedApi(t)
  await api.join({group: 'web'})
  const team = await client('team-a', TEAM_A)
  const body = {name: 'team-a-x', schedule: '0 0 13 * * *', tags: {group: 'wbe'}}
  const executor = {executor: 'shell', executor_config: {command: 'true'}}
  await admin.call('POST', '/v1/jobs', {...body, ...executor})
  await admin.call('POST', '/v1/jobs', {name: 'team-b-x', schedule: '@daily', ...executor})
  const path = '/v1/jobs/team-a-x/explain'
  const [all, own] = [await admin.call('GET', path), await team.call('GET', path)]
  assert.deepEqual(
    [all, own].map(({json}) => json.next[0].unless.length),
    [1, 0],
  )
  assert.equal((await team.call('GET', '/v1/jobs/team-b-x/explain')).status, 403)
})
