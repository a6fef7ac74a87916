/** Status, members, leader, leaving, policies, restore, backup, schedules, events. */
import assert from 'node:assert/strict'
import {readdirSync} from 'node:fs'
import {Agent} from 'node:http'
import {test} from 'node:test'
import {restore, Stream, startApi} from './harness.ts'

test('all values of the status are strings, and serf equals gossip', async (t) => {
  const api = await startApi(t)
  await api.join()
  const {json} = await api.get('/v1/')
  assert.deepEqual(Object.keys(json), ['agent', 'gossip', 'serf', 'tags'])
  assert.deepEqual(json.serf, json.gossip)
  for (const part of Object.values(json) as Record<string, unknown>[])
    for (const [key, value] of Object.entries(part)) assert.equal(typeof value, 'string', key)
  assert.equal(json.agent.name, 'node-a')
  assert.deepEqual([json.agent.server, json.agent.leader], ['true', 'true'])
  assert.deepEqual([json.gossip.leader, json.gossip.alive, json.gossip.term], ['node-a', '1', '1'])
  assert.equal(json.tags.role, 'belfry')
  const {health, health_sentence: sentence} = json.gossip
  assert.deepEqual(
    [health, sentence],
    ['healthy', 'leader node-a (term 1), 1 of 1 node alive, nothing waits'],
  )
  await api.job('late', {schedule: '@every 10s'})
  await api.clock.advance(60_000)
  const late = (await api.get('/v1/')).json.gossip
  assert.deepEqual([late.health, late.health_sentence], ['degraded', 'a planned time is 50s late'])
})

test('members and leader; 503 without a leader, 404 from /isleader on a follower', async (t) => {
  const api = await startApi(t)
  const none = await api.get('/v1/leader')
  assert.deepEqual([none.status, none.json.code], [503, 'no_leader'])
  await api.join({disk: 'ssd'})
  const members = await api.get('/v1/members')
  assert.equal(members.headers['x-total-count'], '1')
  assert.deepEqual(members.json, [
    {
      Name: 'node-a',
      Addr: '127.0.0.1',
      Port: 8080,
      Tags: {
        rpc_addr: '127.0.0.1:8080',
        server: 'true',
        version: '0.1.0',
        role: 'belfry',
        region: 'global',
        dc: 'dc1',
        node: 'node-a',
        disk: 'ssd',
      },
      Status: 1,
      ProtocolMin: 1,
      ProtocolMax: 1,
      ProtocolCur: 1,
      DelegateMin: 1,
      DelegateMax: 1,
      DelegateCur: 1,
      id: 'id-of-node-a',
      statusText: 'alive',
      leader: true,
      scheduling: 'active',
      cordonedAt: null,
      drainUntil: null,
      slots: 16,
      running: 0,
      waiting: 0,
    },
  ])
  assert.deepEqual((await api.get('/v1/leader')).json, members.json[0])
  const leads = await api.get('/v1/isleader')
  assert.deepEqual([leads.status, leads.text], [200, '"I am a leader"'])
  api.isLeader = false
  const follows = await api.get('/v1/isleader')
  assert.deepEqual([follows.status, follows.text], [404, ''])
})

test('leave replies at once, with this node as leaving while executions run on it', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('w')
  const claimed = await api.running('w')
  const get = await api.get('/v1/leave')
  assert.deepEqual([get.status, get.headers.allow, api.leaveCalls], [405, 'POST', 0])
  const busy = await api.post('/v1/leave')
  assert.deepEqual([busy.status, busy.json[0].Status, api.leaveCalls], [200, 2, 1])
  await api.finish(claimed)
  assert.equal((await api.post('/v1/leave')).json[0].Status, 3)
})

test('policies are stored unchanged; invalid rules are stored with a warning', async (t) => {
  const api = await startApi(t)
  const rules = '{"path": {"/v1/jobs/*": {"capabilities": ["read", "list"]}}}'
  const stored = await api.post('/v1/acl/policies/ops', {Name: 'ops', Rules: rules})
  assert.equal(stored.status, 202)
  assert.deepEqual(stored.json, {Name: 'ops', Rules: rules})
  assert.equal(stored.headers['x-warnings'], undefined)
  assert.deepEqual((await api.get('/v1/acl/policies/ops')).json, stored.json)
  const document = await api.post('/v1/acl/policies/doc', rules)
  assert.deepEqual(document.json, {Name: 'doc', Rules: rules})
  const odd = await api.post('/v1/acl/policies/odd', {Rules: 'path "x" { größe }'})
  assert.equal(odd.status, 202)
  assert.equal(odd.json.Rules, 'path "x" { größe }')
  assert.match(String(odd.headers['x-warnings']), /grants nothing: Rules is not JSON/)
  assert.deepEqual(
    (await api.get('/v1/acl/policies')).json
      .map((policy: {Name: string}) => policy.Name)
      .toSorted(),
    ['doc', 'odd', 'ops'],
  )
  const refused: readonly unknown[] = [
    {Name: 'other', Rules: rules},
    {Name: 'ops'},
    {Rules: 7},
    {Rules: null},
    [],
    {Rules: 'x'.repeat(64 * 1024 + 1)},
  ]
  for (const body of refused) {
    const reply = await api.post('/v1/acl/policies/ops', body)
    assert.deepEqual([reply.status, reply.json.code], [400, 'policy_invalid'])
  }
  assert.equal((await api.post('/v1/acl/policies/ops', '{')).json.code, 'payload_unparsable')
  for (const name of ['a%20b', '%2e%2e', '.%2E'])
    assert.notEqual((await api.post(`/v1/acl/policies/${name}`, {Rules: rules})).status, 202, name)
  assert.deepEqual((await api.delete('/v1/acl/policies/ops')).json, stored.json)
  assert.equal((await api.delete('/v1/acl/policies/ops')).json.code, 'policy_unknown')
  assert.equal((await api.get('/v1/acl/policies/ops')).status, 404)
})

test('restore creates and updates jobs, with children before parents in the file', async (t) => {
  const api = await startApi(t)
  await api.job('old', {owner: 'before'})
  const file = [
    {name: 'child', parent_job: 'parent', executor: 'shell'},
    {
      name: 'parent',
      schedule: '@every 1m',
      success_count: 7,
      last_success: '2026-01-01T00:00:00Z',
      status: 'success',
    },
    {name: 'busy', schedule: '@manually', status: 'running'},
    {name: 'old', schedule: '@manually', owner: 'after', success_count: 9, status: 'failed'},
  ]
  const reply = await restore(api, file)
  assert.equal(reply.status, 200)
  assert.deepEqual(reply.json, [
    'success create child',
    'success create parent',
    'success create busy',
    'success update old',
  ])
  const parent = (await api.get('/v1/jobs/parent')).json
  assert.deepEqual([parent.success_count, parent.dependent_jobs], [7, ['child']])
  assert.deepEqual([parent.last_success, parent.status], ['2026-01-01T00:00:00.000Z', 'success'])
  const untriggered = (await api.get('/v1/jobs?status=untriggered')).json
  assert.deepEqual(
    untriggered.map(({name}: {name: string}) => name),
    ['busy', 'child', 'old'],
  )
  const old = (await api.get('/v1/jobs/old')).json
  assert.deepEqual([old.owner, old.success_count], ['after', 0])
  const all = (await api.get('/v1/jobs')).text
  const again = await restore(api, all)
  assert.equal(again.status, 200)
  assert.equal((await api.get('/v1/jobs')).text, all)
  const disabled = await restore(api, [{name: 'off', schedule: '@daily'}], '?disabled=true')
  assert.equal(disabled.status, 200)
  assert.equal((await api.get('/v1/jobs/off')).json.disabled, true)
})

test('a restore file with one invalid job changes nothing, and lists every invalid job', async (t) => {
  const api = await startApi(t)
  const bad = await restore(api, [
    {name: 'good', schedule: '@daily'},
    {name: 'Bad', schedule: '@daily'},
    {name: 'worse', schedule: 'never'},
    {name: 'good', schedule: '@daily'},
    7,
    {name: 'counted', schedule: '@daily', success_count: -1},
  ])
  assert.deepEqual([bad.status, bad.json.code], [400, 'restore_invalid'])
  assert.deepEqual(
    bad.json.errors.map(({name}: {name: string}) => name),
    ['Bad', 'worse', 'good', 'element 5', 'counted'],
  )
  const orphan = await restore(api, [{name: 'orphan', parent_job: 'nobody'}])
  assert.deepEqual([orphan.status, orphan.json.code], [400, 'restore_invalid'])
  const cycle = await restore(api, [
    {name: 'a', parent_job: 'b'},
    {name: 'b', parent_job: 'a'},
  ])
  assert.equal(cycle.status, 400)
  const unparsable = ['', '{}', '[', '[{}', '[{]', '[{},]', '[,{}]', '[{}] more', 'x']
  for (const text of unparsable) {
    const reply = await restore(api, text)
    assert.equal(reply.status, 400, text)
  }
  const missing = await restore(api, '[]', '', 'jobs')
  assert.deepEqual([missing.status, missing.json.code], [400, 'body_invalid'])
  assert.equal((await api.post('/v1/restore', '[]')).json.code, 'body_invalid')
  assert.equal((await api.post('/v1/restore')).json.code, 'body_invalid')
  const broken = await api.post('/v1/restore', '--x\r\nnot a part', {
    'content-type': 'multipart/form-data; boundary=x',
  })
  assert.equal(broken.status, 400)
  const unbounded = await api.post('/v1/restore', 'x', {'content-type': 'multipart/form-data'})
  assert.equal(unbounded.status, 400)
  assert.deepEqual((await api.get('/v1/jobs')).json, [])
  assert.deepEqual(api.faults, [])
})

test('restore accepts a plain form field; an empty array restores nothing', async (t) => {
  const api = await startApi(t)
  const form = new FormData()
  form.set('file', '[{"name":"plain","schedule":"@daily"}]')
  const reply = await fetch(`${api.url}/v1/restore`, {method: 'POST', body: form})
  assert.deepEqual(await reply.json(), ['success create plain'])
  assert.deepEqual((await restore(api, '\ufeff [ ] ')).json, [])
})

test('restore rejects a file over the limit with 413, and any file while paused with 503', async (t) => {
  const api = await startApi(t, {limits: {restoreBytesMax: 10_000}})
  const large = Array.from({length: 500}, (_, index) => ({name: `n${index}`, schedule: '@daily'}))
  const reply = await restore(api, large)
  assert.deepEqual([reply.status, reply.json.code], [413, 'body_too_large'])
  await api.post('/v1/pause')
  const paused = await restore(api, [])
  assert.deepEqual([paused.status, paused.json.code], [503, 'submissions_paused'])
  const broken = await api.post('/v1/restore', 'x', {'content-type': 'multipart/form-data'})
  assert.equal(broken.status, 503)
})

test('a restore that fails in the middle of a file leaves the connection usable', async (t) => {
  const api = await startApi(t)
  const bad = Array.from({length: 100_000}, () => ({name: 'Not a name'}))
  const agent = new Agent({keepAlive: true, maxSockets: 1})
  t.after(() => agent.destroy())
  const boundary = 'border'
  const body = [
    `--${boundary}`,
    'Content-Disposition: form-data; name="file"; filename="jobs.json"',
    '',
    JSON.stringify(bad),
    `--${boundary}--`,
    '',
  ].join('\r\n')
  const headers = {'content-type': `multipart/form-data; boundary=${boundary}`}
  for (let count = 0; count < 2; count += 1) {
    const refused = await api.call('POST', '/v1/restore', {body, headers, agent})
    assert.deepEqual([refused.status, refused.json.errors.length], [400, 100])
  }
  assert.equal((await api.call('GET', '/v1/jobs', {agent})).status, 200)
})

test('a backup is a database file that is removed after sending; only one at a time', async (t) => {
  const api = await startApi(t)
  await api.job('kept')
  const reply = await api.get('/v1/backup')
  assert.equal(reply.status, 200)
  assert.match(reply.text, /^SQLite format 3\0/)
  assert.match(
    String(reply.headers['content-disposition']),
    /^attachment; filename="belfry-.*\.sqlite"$/,
  )
  assert.deepEqual(readdirSync(api.directory), [])
  const both = await Promise.all([api.get('/v1/backup'), api.get('/v1/backup')])
  const statuses = both.map(({status}) => status)
  assert.ok(statuses.includes(200) && statuses.includes(409), statuses.join())
  assert.deepEqual(readdirSync(api.directory), [])
  assert.deepEqual(api.faults, [])
})

test('next planned times, of a stored job and of a schedule preview', async (t) => {
  const api = await startApi(t)
  await api.job('n', {schedule: '0 30 2 * * *', timezone: 'Europe/Berlin'})
  const next = await api.get('/v1/jobs/n/next?count=1')
  assert.deepEqual(next.json, {
    schedule: '0 30 2 * * *',
    timezone: 'Europe/Berlin',
    next: ['2026-03-02T01:30:00.000Z'],
    planned: [
      {
        at: '2026-03-02T01:30:00.000Z',
        local: '2026-03-02T02:30:00+01:00',
        shift: '',
        moved_from: '',
      },
    ],
    clock_changes: [],
    more: true,
    reason: '',
    paused: false,
    paused_until: null,
  })
  // Planned times of the job begin with the first that is not decided.
  const times = async (path: string) => (await api.get(path)).json.next as string[]
  assert.deepEqual(await times('/v1/jobs/n/next?from=2020-01-01&to=2026-03-03'), next.json.next)
  await api.post('/v1/jobs/n/toggle')
  assert.deepEqual((await api.get('/v1/jobs/n/next')).json.next, [])
  await api.job('child', {schedule: '', parent_job: 'n'})
  await api.job('hand')
  await api.job('late', {schedule: '@yearly', expires_at: '2026-03-02T00:00:00Z'})
  const why = async (name: string) => (await api.get(`/v1/jobs/${name}/next`)).json.reason as string
  assert.deepEqual(await Promise.all(['n', 'child', 'hand', 'late'].map(why)), [
    'disabled',
    'dependent',
    'no_schedule',
    'expired',
  ])
  const hourly = '/v1/schedules/preview?schedule=@every%201h&count=2'
  assert.deepEqual(await times(hourly), ['2026-03-01T13:00:00.000Z', '2026-03-01T14:00:00.000Z'])
  // A zone in the schedule takes precedence, and is the one in the reply.
  const tokyo = 'TZ=Asia/Tokyo 0 9 * * *'
  await api.job('t', {schedule: tokyo, timezone: 'Europe/Berlin'})
  const query = `schedule=${encodeURIComponent(tokyo)}&timezone=Europe/Berlin&count=1`
  for (const path of ['/v1/jobs/t/next?count=1', `/v1/schedules/preview?${query}`]) {
    const {json} = await api.get(path)
    assert.deepEqual([json.schedule, json.timezone], [tokyo, 'Asia/Tokyo'])
    assert.deepEqual(json.next, ['2026-03-02T00:00:00.000Z'])
  }
  const berlin = '/v1/schedules/preview?timezone=Europe/Berlin&schedule=0%2030%202%20*%20*%20*'
  const spring = (await api.get(`${berlin}&from=2026-03-28&to=2026-03-30T00:00`)).json
  assert.deepEqual(spring.clock_changes, [
    {at: '2026-03-29T01:00:00.000Z', before: '+01:00', after: '+02:00'},
  ])
  assert.deepEqual(spring.planned[1], {
    at: '2026-03-29T01:00:00.000Z',
    local: '2026-03-29T03:00:00+02:00',
    shift: 'moved',
    moved_from: '2026-03-29T02:30:00',
  })
  assert.deepEqual([spring.planned.length, spring.more], [2, false])
  for (const wrong of ['from=x', 'to=2026-02-30', 'from=2026-03-02&to=2026-03-02'])
    assert.equal((await api.get(`${berlin}&${wrong}`)).json.code, 'query_invalid', wrong)
  assert.equal((await api.get('/v1/schedules/preview?schedule=@daily')).json.next.length, 10)
  assert.deepEqual((await api.get('/v1/schedules/preview?schedule=@manually')).json.next, [])
  for (const query of [
    '',
    '?schedule=nonsense',
    '?schedule=@daily&timezone=Mars',
    `?schedule=${'1'.repeat(300)}`,
  ]) {
    const reply = await api.get(`/v1/schedules/preview${query}`)
    assert.deepEqual([reply.status, reply.json.code], [400, 'schedule_invalid'], query)
  }
})

test('events are streamed as they are emitted, with keep-alive comments', async (t) => {
  const api = await startApi(t)
  const stream = await Stream.open(api, '/v1/events')
  assert.equal(stream.headers['content-type'], 'text/event-stream; charset=utf-8')
  await stream.until((text) => text !== '')
  await api.job('seen')
  await stream.until((text) =>
    /event: job_stored\ndata: \{"at":"[^"]+","job":"seen","revision":1,"created":true\}\n\n/.test(
      text,
    ),
  )
  api.events.emit('store_committed', {items: 1, duration_ms: 1})
  await api.clock.advance(15_000)
  await stream.until((text) => text.split(': \n\n').length > 2)
  assert.ok(!stream.text.includes('store_committed'))
  stream.close()
})

test('a client that does not read the event stream is disconnected, not buffered', async (t) => {
  const api = await startApi(t)
  const stream = await Stream.open(api, '/v1/events')
  const closed = stream.end()
  // More than socket and queue hold together. The client reads nothing during this loop.
  const message = 'x'.repeat(1024 * 1024)
  for (let count = 0; count < 64; count += 1)
    api.events.emit('step_failed', {step: 'claim', message})
  await closed
  assert.ok(stream.text.length < 64 * message.length)
})

test('event streams are limited in number, and end at shutdown', async (t) => {
  const api = await startApi(t)
  const streams = await Promise.all(Array.from({length: 200}, () => Stream.open(api, '/v1/events')))
  const refused = await api.get('/v1/events')
  assert.deepEqual([refused.status, refused.json.code], [503, 'too_many_streams'])
  streams[0]!.close()
  const closing = api.app.close()
  await Promise.all(streams.map((stream) => stream.end()))
  await closing
})

test('an event is encoded once for all streams, and not at all without streams', async (t) => {
  const api = await startApi(t)
  let encoded = 0
  const data = {step: 'claim' as const, message: 'm'}
  Object.defineProperty(data, 'message', {enumerable: true, get: () => `m${(encoded += 1)}`})
  api.events.emit('step_failed', data)
  assert.equal(encoded, 0)
  const streams = await Promise.all([1, 2, 3].map(() => Stream.open(api, '/v1/events')))
  api.events.emit('step_failed', data)
  for (const stream of streams) await stream.until((text) => text.includes('"message":"m1"'))
  assert.equal(encoded, 1)
  streams[0]!.close()
  await api.eventually(() => api.clock.waiting === 2)
  api.events.emit('step_failed', data)
  await streams[1]!.until((text) => text.includes('"message":"m2"'))
  for (const stream of streams) stream.close()
  await api.eventually(() => api.clock.waiting === 0)
  api.events.emit('step_failed', data)
  assert.equal(encoded, 2)
})

test('streams count towards their limit while they are being opened', async (t) => {
  const answers: (() => void)[] = []
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      outputSince: async (...input) => {
        await new Promise<void>((resolve) => answers.push(resolve))
        return store.outputSince(...input)
      },
    }),
  })
  await api.join()
  await api.job('followed')
  const {execution} = await api.running('followed')
  const path = `/v1/jobs/followed/executions/${execution.group}-${execution.node}-1/output`
  const opening = Array.from({length: 200}, () => Stream.open(api, path))
  await api.eventually(() => answers.length === 200)
  assert.equal((await api.get('/v1/events')).json.code, 'too_many_streams')
  const waiting = api.clock.waiting
  const closing = api.app.close()
  // The shutdown waits for the requests in progress, and ends no stream after this.
  await api.eventually(() => api.clock.waiting === waiting + 1)
  for (const answer of answers) answer()
  for (const stream of await Promise.all(opening)) assert.equal(stream.status, 503)
  await closing
})
