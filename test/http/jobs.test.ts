/** Jobs over HTTP: submit, read, toggle, delete, preconditions, idempotency. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi} from './harness.ts'
import {definition, upload} from './tokens.ts'
import {revisionIn} from '../support/etag.ts'

const FIELDS = [
  'id',
  'name',
  'displayname',
  'timezone',
  'schedule',
  'owner',
  'owner_email',
  'success_count',
  'error_count',
  'last_success',
  'last_error',
  'disabled',
  'tags',
  'metadata',
  'retries',
  'dependent_jobs',
  'parent_job',
  'processors',
  'concurrency',
  'executor',
  'executor_config',
  'status',
  'next',
  'ephemeral',
  'starts_at',
  'expires_at',
  'catch_up',
  'max_lateness',
  'on_disconnect',
]

test('a submit replies with the stored job, all fields in order', async (t) => {
  const api = await startApi(t)
  const body = {
    name: 'first',
    schedule: '@every 1m',
    executor: 'shell',
    executor_config: {command: 'true'},
  }
  const reply = await api.post('/v1/jobs', body)
  assert.equal(reply.status, 201)
  assert.equal(reply.headers.location, '/v1/jobs/first')
  assert.equal(revisionIn(reply.headers.etag), '"1"')
  assert.equal(reply.headers['x-whom'], 'node-a')
  assert.equal(reply.headers['content-type'], 'application/json; charset=utf-8')
  assert.deepEqual(Object.keys(reply.json), FIELDS)
  assert.equal(reply.json.id, 'first')
  assert.equal(reply.json.concurrency, 'allow')
  assert.equal(reply.json.next, '2026-03-01T12:01:00.000Z')
  assert.deepEqual(
    [reply.json.tags, reply.json.metadata, reply.json.processors, reply.json.dependent_jobs],
    [{}, {}, {}, []],
  )
  assert.deepEqual((await api.get('/v1/jobs/first')).json, reply.json)
  assert.deepEqual((await api.get('/v1/jobs')).json, [reply.json])
  assert.equal(revisionIn((await api.get('/v1/jobs/first')).headers.etag), '"1"')
  assert.deepEqual(api.wakeup.notified, ['launch'])
  assert.deepEqual(api.events.of('job_stored'), [{job: 'first', revision: 1, created: true}])
})

test('submitting the same body twice changes nothing; PATCH and PUT behave like POST', async (t) => {
  const api = await startApi(t)
  const first = await api.job('same')
  await api.clock.advance(5_000)
  assert.deepEqual(await api.job('same'), first)
  const body = {
    name: 'same',
    schedule: '@manually',
    executor: 'shell',
    executor_config: {command: 'true'},
  }
  const patched = await api.call('PATCH', '/v1/jobs', {body: {...body, displayname: 'Same'}})
  assert.equal(patched.status, 201)
  assert.equal(revisionIn(patched.headers.etag), '"2"')
  const put = await api.call('PUT', '/v1/jobs/same', {body: {...body, displayname: 'Put'}})
  assert.equal(put.status, 201)
  assert.equal(put.json.displayname, 'Put')
  const nameless = await api.call('PUT', '/v1/jobs/other', {body: {schedule: '@manually'}})
  assert.equal(nameless.json.name, 'other')
  const nulled = {name: null, schedule: '@manually'}
  assert.equal((await api.call('PUT', '/v1/jobs/third', {body: nulled})).json.name, 'third')
  const differs = await api.call('PUT', '/v1/jobs/same', {body: {...body, name: 'other'}})
  assert.equal(differs.status, 400)
  assert.match(differs.text, /^Job validation failed: .*name: is "other" in the body and "same"/)
})

test('a job object posted back is accepted and changes nothing', async (t) => {
  const api = await startApi(t)
  const job = await api.job('whole', {schedule: '@every 1m', metadata: {team: 'a'}, owner: 'me'})
  const again = await api.post('/v1/jobs', {
    ...job,
    success_count: 99,
    status: 'failed',
    next: null,
  })
  assert.equal(again.status, 201)
  assert.deepEqual(again.json, job)
  assert.equal(again.headers['x-ignored-fields'], undefined)
})

test('null and empty strings mean not set; unknown fields are named; older fields work', async (t) => {
  const api = await startApi(t)
  const unset = Object.fromEntries(FIELDS.map((field) => [field, null]))
  const nulls = await api.post('/v1/jobs', {...unset, name: 'nulls', schedule: '@manually'})
  assert.equal(nulls.status, 201)
  assert.equal(nulls.json.concurrency, 'allow')
  assert.equal(nulls.json.max_lateness, '24h')
  const empty = await api.post('/v1/jobs', {
    name: 'empty',
    schedule: '@manually',
    timezone: '',
    concurrency: '',
    parent_job: '',
    executor: '',
    starts_at: '',
    expires_at: '',
    catch_up: '',
    'odd field': 1,
    größe: 2,
  })
  assert.equal(empty.status, 201)
  assert.equal(empty.headers['x-ignored-fields'], 'odd%20field, gr%C3%B6%C3%9Fe')
  assert.match(String(empty.headers['x-warnings']), /executor: is not set/)
  const older = await api.post('/v1/jobs', {
    name: 'older',
    schedule: '@manually',
    command: 'echo hi',
    shell: true,
    processors: {log: 'true', files: ''},
  })
  assert.equal(older.status, 201)
  assert.equal(older.json.executor, 'shell')
  assert.deepEqual(older.json.executor_config, {command: 'echo hi', shell: 'true'})
  assert.deepEqual(older.json.processors, {log: {forward: 'true'}, files: {}})
})

test('numbers and booleans in maps are stored as their source text', async (t) => {
  const api = await startApi(t)
  const body =
    '{"name":"maps","schedule":"@manually","retries":2,"tags":{"a":true},' +
    '"metadata":{"n":1.10,"long":9007199254740993,"none":null},' +
    '"executor_config":{"command":"x","shell":false}}'
  const {json, status} = await api.post('/v1/jobs', body)
  assert.equal(status, 201)
  assert.equal(json.retries, 2)
  assert.deepEqual(json.tags, {a: 'true'})
  assert.deepEqual(json.metadata, {n: '1.10', long: '9007199254740993'})
  assert.deepEqual(json.executor_config, {command: 'x', shell: 'false'})
})

test('times are accepted in many forms and returned in one', async (t) => {
  const api = await startApi(t)
  const times = [
    ['2026-05-01T10:00:00+02:00', '2026-05-01T08:00:00.000Z'],
    ['2026-05-01T08:00:00.123456Z', '2026-05-01T08:00:00.123Z'],
    ['2026-05-01T08:00', '2026-05-01T08:00:00.000Z'],
    ['2026-05-01t08:00:01z', '2026-05-01T08:00:01.000Z'],
    ['0001-01-01T00:00:00Z', null],
  ] as const
  for (const [sent, stored] of times) {
    assert.equal((await api.job('timed', {starts_at: sent})).starts_at, stored, sent)
  }
})

/** Invalid fields, and the problem in the reply. */
const INVALID: readonly (readonly [Record<string, unknown>, RegExp])[] = [
  [{name: undefined}, /name: is required/],
  [{name: ''}, /name: is required/],
  [{name: 'Nope'}, /name: the character "N" at position 1/],
  [{name: 'a b'}, /name: the character " " at position 2/],
  [{name: 'a'.repeat(129)}, /name: is 129 characters long/],
  [{name: 7}, /name: must be a string/],
  [{schedule: ''}, /schedule: is required unless parent_job is set/],
  [{schedule: 'nonsense'}, /schedule: /],
  [{schedule: '0 0 0 30 2 *'}, /schedule: /],
  [{schedule: `0 0 ${' '.repeat(300)} * * *`}, /schedule: must be a string of at most 256/],
  [{schedule: 5}, /schedule: must be a string/],
  [{timezone: 'Mars/Olympus'}, /timezone: "Mars\/Olympus" is not a known time zone/],
  [{concurrency: 'maybe'}, /concurrency: must be "allow" or "forbid"/],
  [{retries: -1}, /retries: must be an integer from 0 to 100/],
  [{retries: 101}, /retries: must be an integer from 0 to 100/],
  [{retries: 1.5}, /retries: must be an integer/],
  [{retries: '3'}, /retries: must be an integer/],
  [{disabled: 'yes'}, /disabled: must be true or false/],
  [{tags: {web: '1:0'}}, /tags\.web: the count/],
  [{tags: {'': 'v'}}, /tags: the name of a tag must not be empty/],
  [{tags: {disk: ':2'}}, /tags\.disk: needs a value before the count/],
  [{tags: {web: {}}}, /tags\.web: must be a string/],
  [{tags: []}, /tags: must be an object/],
  [{tags: Object.fromEntries(Array.from({length: 65}, (_, i) => [`t${i}`, '1']))}, /tags: has 65/],
  [{metadata: {k: 'x'.repeat(64 * 1024 + 1)}}, /metadata\.k: is longer than 65536 bytes/],
  [{metadata: {k: ['x']}}, /metadata\.k: must be a string/],
  [{executor: 'magic'}, /executor: "magic" is not known; known are http, shell/],
  [{executor_config: {command: 'x', timeout: 'soon'}}, /executor_config: timeout: is not a length/],
  [{processors: {magic: {}}}, /processors: "magic" is not known; known are files, log/],
  [{processors: {files: {magic: '1'}}}, /processors\.files: magic: is not known/],
  [{processors: ['files']}, /processors: must be an object/],
  [{parent_job: 'invalid'}, /parent_job: a job cannot be its own parent/],
  [{starts_at: 'tomorrow'}, /starts_at: "tomorrow" is not a time/],
  [{starts_at: '2026-02-30T00:00:00Z'}, /starts_at: /],
  [
    {starts_at: '2026-05-01T00:00:00Z', expires_at: '2026-05-01T00:00:00Z'},
    /expires_at: must be later/,
  ],
  [{catch_up: 'some'}, /catch_up: must be "latest" or "skip" or "all"/],
  [{max_lateness: 'long'}, /max_lateness: "long" is not a length of time/],
  [{owner_email: 'x'.repeat(321)}, /owner_email: must be a string of at most 320/],
  [{metadata: {a: '\0'}}, /metadata\.a: contains the character U\+0000/],
  [{displayname: '\ud800'}, /displayname: contains half of a surrogate pair/],
]

test('an invalid definition is rejected with one sentence that names the field', async (t) => {
  const api = await startApi(t)
  for (const [fields, expected] of INVALID) {
    const body = {name: 'invalid', schedule: '@manually', executor: 'shell', ...fields}
    const reply = await api.post('/v1/jobs', body)
    assert.equal(reply.status, 400, JSON.stringify(fields).slice(0, 80))
    assert.match(reply.headers['content-type'] ?? '', /^text\/plain/)
    assert.match(reply.text, /^Job validation failed: the job definition is invalid: [^\n]+\n$/)
    assert.match(reply.text, expected)
  }
  assert.deepEqual((await api.get('/v1/jobs')).json, [])
})

test('hostile JSON is rejected before decoding', async (t) => {
  const api = await startApi(t)
  const deep = '{"name":"x","tags":' + '['.repeat(40) + ']'.repeat(40) + '}'
  const poisoned = [
    '{"name":"x","schedule":"@manually","__proto__":{"disabled":true}}',
    '{"name":"x","schedule":"@manually","tags":{"constructor":"1"}}',
    '{"name":"x","schedule":"@manually","prototype":1}',
    deep,
    '[]',
    '"text"',
    'null',
  ]
  for (const body of poisoned) {
    const reply = await api.post('/v1/jobs', body)
    assert.equal(reply.status, 400, body.slice(0, 60))
    assert.match(reply.text, /^Job validation failed:/)
  }
  const broken = ['', '{', '{"name":}', 'name=x', '\ufeff\ufeff{}', '['.repeat(200_000)]
  for (const body of broken) {
    const reply = await api.post('/v1/jobs', body)
    assert.equal(reply.status, 400)
    assert.match(reply.text, /^Unable to parse payload/, body.slice(0, 20))
  }
  const notUtf8 = await api.post('/v1/jobs', new Uint8Array([0x7b, 0xff, 0x7d]))
  assert.match(notUtf8.text, /^Unable to parse payload/)
})

test('submit checks in this order: paused, not JSON, invalid, unknown parent', async (t) => {
  const api = await startApi(t)
  const parent = await api.post('/v1/jobs', {
    name: 'child',
    parent_job: 'nobody',
    executor: 'shell',
  })
  assert.equal(parent.status, 404)
  assert.match(parent.headers['content-type'] ?? '', /^text\/plain/)
  assert.match(parent.text, /^specified parent job not found: parent_job: .*"nobody"/)
  const invalid = await api.post('/v1/jobs', {name: 'child', parent_job: 'nobody', retries: -1})
  assert.match(invalid.text, /retries/)
  assert.deepEqual((await api.post('/v1/pause')).json, {paused: true})
  for (const body of ['{', '{}', '{"name":"x","schedule":"@manually"}']) {
    const reply = await api.post('/v1/jobs', body)
    assert.equal(reply.status, 503)
    assert.match(reply.headers['content-type'] ?? '', /^text\/plain/)
    assert.match(reply.text, /paused/)
  }
  assert.deepEqual((await api.get('/v1/pause')).json, {paused: true})
  assert.deepEqual((await api.post('/v1/unpause')).json, {paused: false})
  assert.deepEqual(
    api.events.of('submissions_paused').map(({paused}) => paused),
    [true, false],
  )
  await api.job('works-again')
})

test('parents, children, cycles and ephemeral jobs', async (t) => {
  const api = await startApi(t)
  await api.job('a')
  const child = await api.job('b', {parent_job: 'a', schedule: ''})
  assert.equal(child.next, null)
  assert.deepEqual((await api.get('/v1/jobs/a')).json.dependent_jobs, ['b'])
  const cycle = await api.post('/v1/jobs', {name: 'a', schedule: '@manually', parent_job: 'b'})
  assert.equal(cycle.status, 400)
  assert.match(cycle.text, /parent_job: makes a cycle/)
  const ephemeral = await api.post('/v1/jobs', {name: 'a', schedule: '@manually', ephemeral: true})
  assert.equal(ephemeral.status, 400)
  assert.match(ephemeral.text, /ephemeral/)
  const kept = await api.delete('/v1/jobs/a')
  assert.equal(kept.status, 409)
  assert.equal(kept.json.code, 'job_has_dependents')
  assert.deepEqual(kept.json.dependent_jobs, ['b'])
  assert.equal((await api.delete('/v1/jobs/b')).status, 200)
  const gone = await api.delete('/v1/jobs/a')
  assert.equal(gone.status, 200)
  assert.equal(gone.json.name, 'a')
  const again = await api.delete('/v1/jobs/a')
  assert.equal(again.status, 404)
  assert.equal(again.json.code, 'job_unknown')
  assert.deepEqual(api.events.of('job_deleted'), [{job: 'b'}, {job: 'a'}])
})

test('a pause of submissions blocks definitions and nothing else', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('t', {schedule: '@every 1m'})
  await api.job('t', {schedule: '@every 2m'})
  await api.post('/v1/pause')
  const blocked = [
    await api.post('/v1/jobs', definition('new')),
    await api.call('PATCH', '/v1/jobs', {body: definition('t', {retries: 1})}),
    await api.call('PUT', '/v1/jobs/t', {body: definition('t', {retries: 1})}),
    await api.call('PATCH', '/v1/jobs/t', {body: {retries: 1}}),
    await api.post('/v1/jobs/t/revisions/1/restore'),
    await api.call('POST', '/v1/restore', upload([definition('new')])),
  ]
  for (const {status, text} of blocked) {
    assert.equal(status, 503, text)
    assert.match(text, /Submissions are paused: no job can be created/)
  }
  const off = await api.post('/v1/jobs/t/toggle')
  assert.equal(off.status, 200)
  assert.deepEqual(
    [off.json.disabled, off.json.next, revisionIn(off.headers.etag)],
    [true, null, '"3"'],
  )
  assert.equal((await api.post('/v1/jobs/t/enable')).json.disabled, false)
  assert.equal((await api.post('/v1/jobs/t/disable')).json.disabled, true)
  assert.equal((await api.post('/v1/jobs/t/run')).status, 202)
  assert.equal((await api.delete('/v1/jobs/t/executions')).status, 200)
  assert.equal((await api.delete('/v1/jobs/t')).status, 200)
})

test('enable and disable change a job once', async (t) => {
  const api = await startApi(t)
  await api.job('t', {schedule: '@every 1m'})
  const call = async (verb: string, headers = {}) => {
    const {
      status,
      json,
      headers: replied,
    } = await api.post(`/v1/jobs/t/${verb}`, undefined, headers)
    return [status, json.disabled, revisionIn(replied.etag)]
  }
  assert.deepEqual(await call('enable'), [200, false, '"1"'])
  assert.deepEqual(await call('disable'), [200, true, '"2"'])
  assert.deepEqual(await call('disable'), [200, true, '"2"'])
  assert.deepEqual(await call('enable'), [200, false, '"3"'])
  const stored = api.events.of('job_stored').length
  assert.deepEqual(await call('enable', {'if-match': '"3"'}), [200, false, '"3"'])
  assert.equal((await call('enable', {'if-match': '"2"'}))[0], 412)
  assert.equal(api.events.of('job_stored').length, stored)
  assert.equal((await api.post('/v1/jobs/nobody/enable')).status, 404)
})

test('the ETag changes with the counters, and If-Match compares the revision in it', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('t')
  const before = await api.get('/v1/jobs/t')
  assert.match(String(before.headers.etag), /^"1\.[\w-]{11}"$/)
  assert.equal((await api.get('/v1/jobs/t?pretty')).headers.etag, before.headers.etag)
  await api.finish(await api.running('t'), 'succeeded')
  const after = await api.get('/v1/jobs/t')
  assert.equal(after.json.success_count, 1)
  assert.equal(revisionIn(after.headers.etag), '"1"')
  assert.notEqual(after.headers.etag, before.headers.etag)
  const put = (match: string) =>
    api.call('PUT', '/v1/jobs/t', {
      body: JSON.stringify({...after.json, displayname: 'new'}),
      headers: {'if-match': match},
    })
  const stored = await put(String(before.headers.etag))
  assert.deepEqual([stored.status, revisionIn(stored.headers.etag)], [201, '"2"'])
  assert.equal((await put(String(after.headers.etag))).status, 412)
})

test('the ETag of a deleted job does not match a new job of the name (412)', async (t) => {
  const api = await startApi(t)
  await api.job('t')
  const old = String((await api.get('/v1/jobs/t')).headers.etag)
  assert.equal((await api.call('DELETE', '/v1/jobs/t')).status, 200)
  await api.job('t')
  for (const tag of [old, '"1"']) {
    const disable = await api.post('/v1/jobs/t/disable', undefined, {'if-match': tag})
    assert.equal(disable.status, 412)
  }
  const disable = await api.post('/v1/jobs/t/disable', undefined, {'if-match': '"2"'})
  assert.equal(disable.status, 200)
})

test('If-Match and If-None-Match make writes conditional (412)', async (t) => {
  const api = await startApi(t)
  const body = {
    name: 'c',
    schedule: '@manually',
    executor: 'shell',
    executor_config: {command: 'x'},
  }
  const submit = (headers: Record<string, string>, more = {}) =>
    api.post('/v1/jobs', {...body, ...more}, headers)
  assert.equal((await submit({'if-match': '*'})).status, 412)
  assert.equal((await submit({'if-match': '"1"'})).status, 412)
  assert.equal((await submit({'if-none-match': '*'})).status, 201)
  const exists = await submit({'if-none-match': '*'})
  assert.equal(exists.status, 412)
  assert.match(exists.headers['content-type'] ?? '', /^text\/plain/)
  assert.equal(revisionIn((await submit({'if-match': '"1"'}, {owner: 'a'})).headers.etag), '"2"')
  assert.equal((await submit({'if-match': '"1"'}, {owner: 'b'})).status, 412)
  assert.equal(
    revisionIn((await submit({'if-match': '"1", "2"'}, {owner: 'b'})).headers.etag),
    '"3"',
  )
  assert.equal((await submit({'if-match': 'W/"3"'}, {owner: 'c'})).status, 201)
  assert.equal((await submit({'if-match': '"abc"'})).status, 412)
  const toggle = (match: string) => api.post('/v1/jobs/c/toggle', undefined, {'if-match': match})
  assert.equal((await toggle('"1"')).status, 412)
  assert.equal((await toggle('"4"')).status, 200)
  const remove = (match: string) => api.call('DELETE', '/v1/jobs/c', {headers: {'if-match': match}})
  assert.equal((await remove('"4"')).status, 412)
  const read = await api.get('/v1/jobs/c', {'if-none-match': '"5"'})
  assert.equal(read.status, 200)
  assert.equal((await remove('"5"')).status, 200)
})

test('a submit repeated with its idempotency key takes effect once; another body is 422', async (t) => {
  const api = await startApi(t)
  await api.join()
  const headers = {'idempotency-key': 'k-1'}
  const body = {
    name: 'i',
    schedule: '@manually',
    executor: 'shell',
    executor_config: {command: 'x'},
  }
  const first = await api.post('/v1/jobs?runoncreate', body, headers)
  assert.equal(first.status, 201)
  const second = await api.post('/v1/jobs?runoncreate', body, headers)
  assert.equal(second.status, 201)
  assert.equal(second.headers['x-launch-id'], first.headers['x-launch-id'])
  assert.equal((await api.get('/v1/jobs/i/launches')).headers['x-total-count'], '1')
  const other = await api.post('/v1/jobs?runoncreate', {...body, retries: 1}, headers)
  assert.equal(other.status, 422)
  assert.equal(other.json.code, 'idempotency_mismatch')
  const nameless = {schedule: '@manually'}
  const put = (name: string) =>
    api.call('PUT', `/v1/jobs/${name}`, {body: nameless, headers: {'idempotency-key': 'k-2'}})
  assert.deepEqual([(await put('one')).status, (await put('one')).json.name], [201, 'one'])
  assert.equal((await put('two')).status, 422)
  const run = await api.post('/v1/jobs/i?force', undefined, headers)
  assert.equal(run.status, 202)
  const same = await api.post('/v1/jobs/i?force', undefined, headers)
  assert.equal(same.headers['x-launch-id'], run.headers['x-launch-id'])
})

test('a submit repeated with its idempotency key gets the first reply, even while paused', async (t) => {
  const api = await startApi(t)
  const submit = (key: string, body: unknown) =>
    api.post('/v1/jobs', body, {'idempotency-key': key})
  const body = {name: 'k', schedule: '@manually', executor: 'shell', unknown_field: 1}
  const first = await submit('once', body)
  assert.equal(first.status, 201)
  await api.post('/v1/pause')
  const again = await submit('once', body)
  assert.deepEqual([again.status, again.json], [201, first.json])
  for (const header of ['etag', 'location', 'x-warnings', 'x-ignored-fields'])
    assert.equal(again.headers[header], first.headers[header], header)
  assert.equal((await submit('once', {...body, retries: 1})).status, 422)
  assert.equal((await submit('once', 'not JSON')).status, 422)
  assert.equal((await submit('another', body)).status, 503)
  assert.equal(api.events.of('job_stored').length, 1)
})

test('a repeated submit of a large job gets its definition, although the job was edited', async (t) => {
  const api = await startApi(t)
  const executor_config = {command: `echo ${'x'.repeat(60_000)}`}
  const body = {name: 'large', schedule: '@manually', executor: 'shell', executor_config}
  const headers = {'idempotency-key': 'k'}
  const first = await api.post('/v1/jobs', body, headers)
  assert.equal(first.status, 201)
  await api.post('/v1/jobs', {...body, executor_config: {command: 'true'}})
  const repeated = await api.post('/v1/jobs', body, headers)
  assert.deepEqual([repeated.status, repeated.json], [201, first.json])
  await api.delete('/v1/jobs/large')
  assert.deepEqual((await api.post('/v1/jobs', body, headers)).json, first.json)
  assert.equal((await api.get('/v1/jobs/large')).status, 404)
})

test('a second request with an idempotency key in progress is 409', async (t) => {
  const blocked = Promise.withResolvers<void>()
  const entered = Promise.withResolvers<void>()
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      submit: async (request) => {
        entered.resolve()
        await blocked.promise
        return store.submit(request)
      },
    }),
  })
  const body = {name: 'slow', schedule: '@manually'}
  const first = api.post('/v1/jobs', body, {'idempotency-key': 'k'})
  await entered.promise
  const second = await api.post('/v1/jobs', body, {'idempotency-key': 'k'})
  assert.equal(second.status, 409)
  assert.match(second.headers['content-type'] ?? '', /^text\/plain/)
  blocked.resolve()
  assert.equal((await first).status, 201)
})

test('runoncreate runs the job once, with any value', async (t) => {
  const api = await startApi(t)
  await api.join()
  for (const [index, query] of ['runoncreate', 'runoncreate=', 'runoncreate=false'].entries()) {
    const name = `r${index}`
    const reply = await api.post(`/v1/jobs?${query}`, {name, schedule: '@manually'})
    assert.equal(reply.status, 201)
    const [launch] = (await api.get(`/v1/jobs/${name}/launches`)).json
    assert.equal(launch.cause, 'create')
    assert.equal(String(launch.group), reply.headers['x-launch-id'])
  }
  await api.post('/v1/jobs', {name: 'quiet', schedule: '@manually'})
  assert.deepEqual((await api.get('/v1/jobs/quiet/launches')).json, [])
})
