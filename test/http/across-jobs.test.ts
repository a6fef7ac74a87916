/** Lists over all jobs, a launch of any job, and the chain of a launch; what a token sees of them. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {ExecutionJson, LaunchJson} from '../../src/wire/execution.ts'
import type {TraceJson} from '../../src/wire/across-jobs.ts'
import {startApi} from './harness.ts'
import {startLockedApi, TEAM_A} from './tokens.ts'

test('a launch has its end, parent, root and children; those that are not set are absent', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('a')
  await api.job('b', {parent_job: 'a', schedule: ''})
  await api.finish(await api.running('a'), 'failed')
  const [b]: LaunchJson[] = (await api.get('/v1/jobs/b/launches')).json
  const {json: a} = await api.get(`/v1/launches/${b!.root}`)
  assert.deepEqual(a, (await api.get(`/v1/jobs/a/launches/${b!.root}`)).json)
  assert.deepEqual([a.status, 'parent' in a, 'root' in a], ['failed', false, false])
  assert.ok(Date.parse(a.ended_at) >= Date.parse(a.decided_at))
  assert.deepEqual(a.children, [{job: 'b', group: b!.group, decision: 'skipped', status: ''}])
  assert.deepEqual(b!.parent, {job: 'a', group: a.group, status: 'failed'})
  assert.deepEqual(['ended_at' in b!, 'children' in b!], [false, false])
  const running = await api.running('a')
  const open = (await api.get(`/v1/launches/${running.execution.group}`)).json
  assert.deepEqual([open.status, 'ended_at' in open], ['', false])
  for (const group of ['9999', '0', 'x']) {
    const {status, json} = await api.get(`/v1/launches/${group}`)
    assert.deepEqual([status, json.code], [404, 'launch_unknown'])
  }
})

test('a launch that was cancelled, and one whose executions are not kept, have their status', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('a')
  const claimed = await api.running('a')
  await api.store.cancelExecution('a', claimed.execution)
  await api.finish(claimed, 'cancelled')
  const [launch]: LaunchJson[] = (await api.get('/v1/jobs/a/launches')).json
  assert.equal(launch!.status, 'cancelled')
})

test('lists over all jobs have pages, and refuse filters that no index serves', async (t) => {
  const api = await startApi(t)
  await api.join()
  for (const name of ['a', 'b', 'c']) {
    await api.job(name)
    await api.finish(await api.running(name), name === 'b' ? 'failed' : 'succeeded', {text: name})
  }
  for (const [path, field] of [
    ['/v1/launches', 'launches'],
    ['/v1/executions', 'executions'],
  ] as const) {
    const {json: first} = await api.get(`${path}?limit=2`)
    assert.deepEqual(
      first[field].map((row: {job_name: string}) => row.job_name),
      ['c', 'b'],
    )
    const {json: second} = await api.get(`${path}?limit=2&after=${first.next}`)
    assert.deepEqual([second[field].length, second[field][0].job_name, second.next], [1, 'a', null])
    for (const [query, code] of [
      ['after=x', 'cursor_invalid'],
      [`after=${Buffer.from('["1"]').toString('base64url')}`, 'cursor_invalid'],
      ['limit=0', 'query_invalid'],
      ['limit=1001', 'query_invalid'],
      ['since=yesterday', 'query_invalid'],
      ['ended_since=2026-01-01T00:00:00Z', 'query_invalid'],
      ['ended_since=2026-01-01T00:00:00Z&status=success', 'query_invalid'],
      ['status=odd', 'query_invalid'],
      [
        'min_duration=long&decision=odd',
        field === 'launches' ? 'parameter_unknown' : 'parameter_unknown',
      ],
    ]) {
      const {status, json} = await api.get(`${path}?${query}`)
      assert.deepEqual([status, json.code], [400, code], `${path}?${query}`)
    }
  }
  const failed = await api.get('/v1/launches?status=failed&ended_since=2020-01-01T00:00:00Z')
  assert.equal(failed.json.launches[0].job_name, 'b')
  const after = `after=${failed.json.next ?? Buffer.from('[1]').toString('base64url')}`
  const wrong = await api.get(
    `/v1/launches?status=failed&ended_since=2020-01-01T00:00:00Z&${after}`,
  )
  assert.equal(wrong.json.code, 'cursor_invalid', 'the position of another list')
  const {json: executions} = await api.get('/v1/executions?min_duration=1ms&job=a*')
  assert.deepEqual(
    executions.executions.map(({job_name: job, output}: ExecutionJson) => [job, output]),
    [['a', '']],
  )
  const {json: shown} = await api.get('/v1/executions?exit_code=1&output_size_limit=10')
  assert.deepEqual(
    shown.executions.map(({job_name: job, output}: ExecutionJson) => [job, output]),
    [['b', 'b']],
  )
})

test('a token sees no launch, name or number of the jobs that it may not read', async (t) => {
  const locked = await startLockedApi(t)
  const {api, admin} = locked
  await api.join()
  const team = await locked.client('team-a', TEAM_A)
  for (const [name, parent] of [
    ['team-b-x', ''],
    ['team-a-x', 'team-b-x'],
    ['team-b-y', 'team-a-x'],
    ['team-a-y', 'team-a-x'],
  ] as const) {
    const schedule = parent === '' ? {} : {schedule: ''}
    const body = {name, ...(await locked.job(name)), parent_job: parent, ...schedule}
    assert.ok((await admin.call('POST', '/v1/jobs', body)).status < 300)
  }
  await admin.call('POST', '/v1/jobs/team-b-x/run')
  await api.launch()
  await api.finish((await api.claim())[0]!, 'failed')
  const all: LaunchJson[] = (await admin.call('GET', '/v1/launches')).json.launches
  assert.equal(all.length, 4)
  const {json: list} = await team.call('GET', '/v1/launches')
  assert.deepEqual(list.launches.map(({job_name: job}: LaunchJson) => job).toSorted(), [
    'team-a-x',
    'team-a-y',
  ])
  const own: LaunchJson = list.launches.find(({job_name: job}: LaunchJson) => job === 'team-a-x')
  assert.equal('parent' in own, false)
  assert.deepEqual(
    own.children?.map(({job}) => job),
    ['team-a-y'],
  )
  const {json: same} = await team.call('GET', '/v1/jobs/team-a-x/launches')
  assert.deepEqual(same[0].children, own.children)
  assert.deepEqual((await team.call('GET', '/v1/executions')).json, {executions: [], next: null})
  const root = own.root!
  assert.equal((await team.call('GET', `/v1/launches/${root}`)).status, 404)
  assert.equal((await team.call('GET', `/v1/launches/${root}/trace`)).status, 404)
  const trace: TraceJson = (await team.call('GET', `/v1/launches/${own.group}/trace`)).json
  assert.deepEqual(
    [trace.launches.map(({job_name: job}) => job).toSorted(), trace.hidden, trace.partial],
    [['team-a-x', 'team-a-y'], 2, false],
  )
  const whole: TraceJson = (await admin.call('GET', `/v1/launches/${own.group}/trace`)).json
  assert.deepEqual([whole.launches.length, whole.hidden, whole.critical_path], [4, 0, [root]])
  assert.equal(whole.launches[0]!.reason, 'exit code 1')
})
