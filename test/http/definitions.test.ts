/** Faulty definitions: faults, warnings, dry runs and merge patches. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi} from './harness.ts'
import {revisionIn} from '../support/etag.ts'

const SEVERAL = {
  name: 'wrong',
  schedule: 'every day at 2',
  timezone: 'Mars',
  retries: -1,
  concurrency: 'queue\u202e',
  tags: {web: {}, disk: ':2'},
  executor: 'shell',
  executor_config: {command: 's3cret', timeout: 'soon'},
  processors: {files: {magic: '1'}},
}

test('all faults of a definition are in the reply, by field, with the value sent', async (t) => {
  const api = await startApi(t)
  const text = await api.post('/v1/jobs', SEVERAL)
  assert.equal(text.status, 400)
  assert.match(text.headers['content-type'] ?? '', /^text\/plain/)
  assert.equal(
    text.text,
    [
      'Job validation failed: the job definition is invalid: ' +
        'retries: must be an integer from 0 to 100, not -1',
      'concurrency: must be "allow" or "forbid", not "queue\\u202e"',
      'tags.web: must be a string, a number or true/false, not a nested value',
      'timezone: "Mars" is not a known time zone; use an IANA name such as "Europe/Berlin" or "UTC"',
      'schedule: "every day at 2" is not a cron expression: write one such as ' +
        '0 0 2 * * * (every day at 2:00), @daily or @every 5m',
      'executor_config: timeout: is not a length of time, write 30s',
      'processors.files: magic: is not known',
      '',
    ].join('\n'),
  )
  const accept = {accept: 'application/problem+json'}
  const {json, headers} = await api.post('/v1/jobs', SEVERAL, accept)
  assert.match(headers['content-type'] ?? '', /^application\/problem\+json/)
  assert.deepEqual([json.code, json.errors.length], ['job_invalid', 7])
  const first = {field: 'retries', problem: 'must be an integer from 0 to 100, not -1'}
  assert.deepEqual(json.errors[0], first)
  assert.equal(json.detail.split('\n').length, 1)
  const many = Object.fromEntries(Array.from({length: 60}, (_, i) => [`t${i}`, {}]))
  const bounded = await api.post('/v1/jobs', {...SEVERAL, tags: many}, accept)
  assert.equal(bounded.json.errors.length, 50)
})

test('strict makes unknown fields and parameters faults; otherwise a missing field names them', async (t) => {
  const api = await startApi(t)
  const body = {
    name: 'typo',
    schedule: '@manually',
    retrys: 3,
    odd: 1,
    executor: 'shell',
    executor_config: {comand: 'x', command: 'y'},
  }
  const {status, json} = await api.post('/v1/jobs?strict=true', body)
  const code = 'field_unknown'
  assert.equal(status, 400)
  assert.deepEqual(json.errors, [
    {field: 'retrys', problem: 'is not a field of a job; did you mean "retries"?', code},
    {field: 'odd', problem: 'is not a field of a job', code},
    {
      field: 'executor_config.comand',
      problem: 'is not used by the shell executor; did you mean "command"?',
      code,
    },
  ])
  const lenient = await api.post('/v1/jobs?strict=false', body)
  assert.equal(lenient.status, 201)
  assert.equal(lenient.headers['x-ignored-fields'], 'retrys, odd')
  assert.match(String(lenient.headers['x-warnings']), /executor_config\.comand: is not used/)
  const missing = await api.post('/v1/jobs', {name: 'x', schedul: '@daily'})
  assert.match(missing.text, /schedule: is required .*; the unknown field "schedul" may be meant/)
})

test('what probably does not work as meant is stored with warnings', async (t) => {
  const api = await startApi(t)
  const body = {name: 'doubtful', schedule: '@daily', executor: 'shell', retrys: 1}
  const warningsOf = async (fields: object) => {
    const reply = await api.post('/v1/jobs?warnings=true', {...body, ...fields})
    assert.equal(reply.status, 201, reply.text)
    assert.equal(Object.keys(reply.json).at(-1), 'warnings')
    const ignored = 'retrys: is not a field of a job; did you mean "retries"?'
    assert.equal(reply.json.warnings.at(-1), ignored)
    assert.ok(String(reply.headers['x-warnings']).endsWith(ignored))
    return reply.json.warnings.slice(0, -1).filter((text: string) => !/command/.test(text))
  }
  const early = '2026-01-01T00:00:00Z'
  for (const [fields, expected] of [
    [{}, []],
    [{schedule: '@manually'}, []],
    [{expires_at: early}, ['expires_at: is in the past, so nothing is planned']],
    [{expires_at: early, disabled: true}, []],
    [
      {schedule: '0 0 0 1 1 *', expires_at: '2026-04-01T00:00:00Z'},
      ['schedule: has no planned time before expires_at, so it never fires'],
    ],
    [
      {schedule: '0 0 0 29 2 *'},
      ['schedule: fires next at 2028-02-29T00:00:00.000Z, in more than a year'],
    ],
    [{schedule: `@at ${early}`}, ['schedule: is in the past, so it never fires']],
    [{schedule: '@at 2026-03-01T11:00:00Z'}, []],
    [
      {processors: {files: {}, log: {}}},
      ['processors.log: gets no output: set forward of files to "true"'],
    ],
    [{processors: {files: {forward: 'true'}, log: {}}}, []],
  ] as const)
    assert.deepEqual(await warningsOf(fields), expected, JSON.stringify(fields))
  await api.job('parent')
  assert.deepEqual(await warningsOf({name: 'child', parent_job: 'parent'}), [
    'schedule: has no effect: the success of "parent" launches this job',
  ])
})

test('a misspelt field is stored with a warning, a field of other software without', async (t) => {
  const api = await startApi(t)
  const job = {name: 'x', schedule: '@manually', command: 'true'}
  const {status, headers} = await api.post('/v1/jobs', {...job, retrys: 3, mem_limit_kb: 1})
  assert.deepEqual([status, headers['x-ignored-fields']], [201, 'retrys, mem_limit_kb'])
  assert.equal(headers['x-warnings'], 'retrys: is not a field of a job; did you mean "retries"?')
})

test('a body in another format or shape says what to send', async (t) => {
  const api = await startApi(t)
  for (const [body, expected] of [
    ['name: x\nschedule: "@daily"\n', /^Unable to parse payload: .*; this looks like YAML/],
    ['# comment\njob "x" {\n}\n', /^Unable to parse payload: .*; this looks like HCL/],
    ['', /^Unable to parse payload: it is empty; it must be JSON/],
    ['{"name": "x\\"y', /^Unable to parse payload: .*; its end is missing, at least "\}/],
    ['{"tags": {"a": "}"}', /; its end is missing, at least \}$/m],
    ['{name: "x"}', /; JSON needs double quotes around names$/m],
    ['[{"name":"x"}]', /the body must be a JSON object; for a list of jobs use POST \/v1\/restore/],
  ] as const)
    assert.match((await api.post('/v1/jobs', body)).text, expected)
})

test('a dry run says what a submit would do, and stores nothing', async (t) => {
  const api = await startApi(t)
  await api.join({disk: 'ssd'})
  await api.job('parent')
  const before = (await api.get('/v1/audit')).json.length
  const dry = async (method: string, path: string, body: unknown) => {
    const reply = await api.call(method, path, {body, headers: {'idempotency-key': 'k'}})
    assert.equal(reply.status, 200, reply.text)
    return reply.json
  }
  const job = {
    name: 'child',
    schedule: '0 0 2 * * *',
    timezone: 'Europe/Berlin',
    tags: {disk: 'ssd'},
    command: 'true',
    odd: 1,
  }
  const path = '/v1/jobs?dry_run=true&runoncreate'
  assert.deepEqual(await dry('POST', path, job), {
    valid: true,
    action: 'create',
    errors: [],
    warnings: ['odd: is not a field of a job'],
    timezone: 'Europe/Berlin',
    next: [2, 3, 4, 5, 6].map((day) => `2026-03-0${day}T02:00:00+01:00`),
    nodes: ['node-a'],
    nodes_total: 1,
  })
  const strict = await dry('PUT', '/v1/jobs/other?dry_run=true&strict=true', {
    ...job,
    parent_job: 'nobody',
    retries: -1,
    executor_config: {env: 'A=${secret:missing}'},
    tags: {disk: 'hdd'},
  })
  assert.deepEqual([strict.valid, strict.action, strict.nodes_total], [false, null, 0])
  assert.deepEqual(
    strict.errors.map(({field}: {field: string}) => field),
    ['name', 'retries', 'odd', 'parent_job', 'executor_config'],
  )
  assert.match(strict.warnings.join(), /tags: no node has disk=hdd/)
  const cycle = {name: 'parent', schedule: '@manually', parent_job: 'parent'}
  assert.match((await dry('PATCH', path, cycle)).errors[0].problem, /its own parent/)
  assert.deepEqual((await dry('POST', path, '[]')).errors[0].field, '')
  assert.equal((await api.post('/v1/jobs?dry_run=true', '{')).status, 400)
  const unmet = {'if-match': '"9"'}
  assert.equal((await api.post('/v1/jobs?dry_run=true', job, unmet)).status, 412)
  await api.post('/v1/pause')
  const paused = await dry('POST', path, job)
  assert.match(paused.warnings.join(), /submissions are paused/)
  await api.post('/v1/unpause')
  assert.equal((await api.get('/v1/jobs/child')).status, 404)
  assert.equal((await api.get('/v1/audit')).json.length, before + 2)
  const stored = await api.post('/v1/jobs', job, {'idempotency-key': 'k'})
  assert.deepEqual([stored.status, stored.headers['x-action']], [201, 'create'])
  assert.equal((await dry('POST', path, job)).action, 'unchanged')
  assert.equal((await dry('POST', path, {...job, retries: 1})).action, 'update')
  assert.equal((await api.post('/v1/jobs', job)).headers['x-action'], 'unchanged')
})

test('a merge patch changes what it names, and concurrent ones all take effect', async (t) => {
  // Holds the reads of patches until there are as many, so that all merge with the same revision.
  const held: (() => void)[] = []
  let together = 0
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      job: async (name: string) => {
        const job = await store.job(name)
        if (held.length + 1 === together) together = 0
        else if (together > 0) await new Promise<void>((resolve) => held.push(resolve))
        if (together === 0) for (const release of held.splice(0)) release()
        return job
      },
    }),
  })
  const fields = {
    schedule: '@daily',
    metadata: {team: 'a', old: '1'},
    executor_config: {command: 'true', timeout: '1m'},
    retries: 2,
  }
  await api.job('merged', fields)
  const headers = {'content-type': 'application/merge-patch+json'}
  const patch = (body: unknown, more = {}, query = '') =>
    api.call('PATCH', `/v1/jobs/merged${query}`, {body, headers: {...headers, ...more}})
  const changes = {metadata: {old: null, new: 2}, executor_config: {timeout: null}, retries: null}
  const first = await patch(JSON.stringify(changes))
  assert.deepEqual(
    [first.status, revisionIn(first.headers.etag), first.headers['x-action']],
    [200, '"2"', 'update'],
  )
  const {metadata, executor_config, retries, schedule} = first.json
  assert.deepEqual(
    {metadata, executor_config, retries, schedule},
    {
      metadata: {team: 'a', new: '2'},
      executor_config: {command: 'true'},
      retries: 0,
      schedule: '@daily',
    },
  )
  assert.equal((await api.get('/v1/audit')).json[0].action, 'job.update')
  const names = ['a', 'b', 'c', 'd', 'e']
  together = names.length
  const all = await Promise.all(
    names.map((name) => patch(JSON.stringify({metadata: {[name]: '1'}}))),
  )
  assert.deepEqual(
    all.map(({status}) => status),
    [200, 200, 200, 200, 200],
  )
  assert.deepEqual(Object.keys((await api.get('/v1/jobs/merged')).json.metadata).toSorted(), [
    'a',
    'b',
    'c',
    'd',
    'e',
    'new',
    'team',
  ])
  const statusOf = async (...call: Parameters<typeof patch>) => (await patch(...call)).status
  assert.equal(await statusOf('{"retries":1}', {'if-match': '"1"'}), 412)
  assert.equal(await statusOf('{"retries":1}', {'if-match': '"7"'}), 200)
  assert.equal((await patch('{"retries":1}')).headers['x-action'], 'unchanged')
  const wrong = await patch('{"retries":-1,"retrys":1}', {}, '?strict=true')
  assert.deepEqual([wrong.status, wrong.json.errors.length], [400, 2])
  const dry = await patch('{"retries":3,"disabled":true}', {}, '?dry_run=true')
  assert.deepEqual([dry.json.valid, dry.json.action, dry.json.next], [true, 'update', []])
  for (const body of ['[]', '"x"', '{"name":"other"}']) assert.equal(await statusOf(body), 400)
  assert.equal(await statusOf('{'), 400)
  const unknown = await api.call('PATCH', '/v1/jobs/nobody', {body: '{}'})
  assert.deepEqual([unknown.status, unknown.json.code], [404, 'job_unknown'])
  await api.post('/v1/pause')
  assert.equal(await statusOf('{"retries":5}'), 503)
  assert.equal((await api.get('/v1/jobs/merged')).json.retries, 1)
})

test('a merge patch of a job that is created again meanwhile changes the new job', async (t) => {
  let comesBetween = async () => {}
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      submit: async (request, ...more) => {
        const isPatch = request.onlyJob !== undefined
        if (isPatch) await comesBetween()
        // Revisions that a job has had: the identity alone decides.
        return await store.submit(isPatch ? {...request, ifMatch: [1, 2, 3]} : request, ...more)
      },
    }),
  })
  await api.job('again', {displayname: 'Old', retries: 1})
  let count = 0
  comesBetween = async () => {
    count += 1
    if (count > 1) return
    await api.call('DELETE', '/v1/jobs/again')
    await api.job('again', {displayname: 'New', retries: 1})
  }
  const {status, json} = await api.call('PATCH', '/v1/jobs/again', {body: {retries: 2}})
  assert.deepEqual([status, json.displayname, json.retries, count], [200, 'New', 2, 2])
})
