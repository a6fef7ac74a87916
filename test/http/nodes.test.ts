/** Cordon, drain and uncordon through the API, and what members show of their work. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi, type Api} from './harness.ts'

type Shown = Record<string, unknown>

const WORK = ['scheduling', 'cordonedAt', 'drainUntil', 'leader', 'slots', 'running', 'waiting']

async function shown(api: Api): Promise<unknown[]> {
  const [member] = (await api.get('/v1/members')).json as Shown[]
  return WORK.map((field) => member![field])
}

test('members show whether they lead and take work, their slots, and what runs and waits', async (t) => {
  const api = await startApi(t)
  await api.join()
  const {slots} = (await api.store.members())[0]!
  assert.deepEqual(await shown(api), ['active', null, null, true, slots, 0, 0])
  await api.job('w')
  await api.running('w')
  await api.job('v')
  await api.post('/v1/jobs/v/run')
  await api.launch()
  assert.deepEqual(await shown(api), ['active', null, null, true, slots, 1, 1])
  assert.equal((await api.get('/v1/leader')).json.leader, true)
})

test('a node is cordoned, drained and uncordoned, with audit entries and events', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('w')
  await api.running('w')
  const now = new Date(api.clock.now()).toISOString()
  const cordoned = await api.post('/v1/members/node-a/cordon')
  assert.deepEqual([cordoned.status, cordoned.json.scheduling], [200, 'cordoned'])
  assert.deepEqual([cordoned.json.cordonedAt, cordoned.json.drainUntil], [now, null])
  const until = (ms: number) => new Date(api.clock.now() + ms).toISOString()
  const drained = await api.post('/v1/members/id-of-node-a/drain?deadline=1h')
  assert.deepEqual(
    [drained.json.scheduling, drained.json.drainUntil],
    ['draining', until(3_600_000)],
  )
  const short = await api.post('/v1/members/node-a/drain', {deadline: '15s'})
  assert.equal(short.json.drainUntil, until(15_000))
  assert.equal((await api.post('/v1/members/node-a/drain')).json.drainUntil, until(600_000))
  const active = await api.post('/v1/members/node-a/uncordon')
  assert.deepEqual([active.json.scheduling, active.json.cordonedAt], ['active', null])
  assert.deepEqual(
    api.events.of('scheduling_changed').map(({node, scheduling}) => `${node} ${scheduling}`),
    ['node-a cordoned', 'node-a draining', 'node-a draining', 'node-a draining', 'node-a active'],
  )
  const entries = (await api.get('/v1/audit?target=node-a')).json as Shown[]
  assert.deepEqual(
    entries.map(({action, detail}) => [action, detail]),
    [
      ['member.uncordon', 'id id-of-node-a'],
      ['member.drain', 'id id-of-node-a, deadline 10m'],
      ['member.drain', 'id id-of-node-a, deadline 15s'],
      ['member.drain', 'id id-of-node-a, deadline 1h'],
      ['member.cordon', 'id id-of-node-a'],
    ],
  )
})

test('a wrong node or deadline is refused, and nothing changes', async (t) => {
  const api = await startApi(t)
  await api.join()
  const unknown = await api.post('/v1/members/nobody/cordon')
  assert.deepEqual([unknown.status, unknown.json.code], [404, 'member_unknown'])
  for (const [deadline, problem] of [
    ['soon', /^deadline: must be a duration such as 10m or 1h30m, not "soon"/],
    ['8d', /^deadline: must be at most 7d, not 8d/],
  ] as const) {
    const refused = await api.post(`/v1/members/node-a/drain?deadline=${deadline}`)
    assert.deepEqual([refused.status, refused.json.code], [400, 'query_invalid'])
    assert.match(refused.json.detail, problem)
  }
  for (const [path, body, problem] of [
    [
      'drain',
      {deadline: 15},
      /^The drain is invalid: deadline: must be a duration such as "10m" or "1h30m"\.$/,
    ],
    ['drain', {deadline: '8d'}, /^deadline: must be at most 7d, not 8d\.$/],
    [
      'drain',
      {deadlin: '15s'},
      /^The drain is invalid: unknown field "deadlin"; did you mean "deadline"\?$/,
    ],
    ['drain?deadline=10s', {deadline: '15s'}, /15s in the body and 10s in the query\. Send one/],
    [
      'cordon',
      {deadline: '15s'},
      /^The cordon is invalid: unknown field "deadline"; send an empty body\.$/,
    ],
    ['uncordon', [], /^The uncordon is invalid: the body must be empty\.$/],
  ] as const) {
    const refused = await api.post(`/v1/members/node-a/${path}`, body)
    assert.deepEqual([refused.status, refused.json.code], [400, 'body_invalid'])
    assert.match(refused.json.detail, problem)
  }
  assert.equal((await shown(api))[0], 'active')
})

test('a run that only cordoned nodes match is refused with that cause', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('w')
  await api.post('/v1/members/node-a/cordon')
  const refused = await api.post('/v1/jobs/w/run')
  assert.deepEqual([refused.status, refused.json.code], [409, 'no_target'])
  assert.match(refused.json.detail, /the node that matches is cordoned\. .* Uncordon a node/)
})
