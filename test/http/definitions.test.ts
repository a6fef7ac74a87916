/** What is wrong with a definition: faults, warnings, dry runs and merge patches. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi} from './harness.ts'

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
  assert.equal(status, 400)
  assert.deepEqual(json.errors, [
    {field: 'retrys', problem: 'is not a field of a job; did you mean "retries"?'},
    {field: 'odd', problem: 'is not a field of a job'},
    {
      field: 'executor_config.comand',
      problem: 'is not used by the shell executor; did you mean "command"?',
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
    assert.doesNotMatch(String(reply.headers['x-warnings']), /retrys/)
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

test('a body in another format or shape says what to send', async (t) => {
  const api = await startApi(t)
  for (const [body, expected] of [
    ['name: x\nschedule: "@daily"\n', /^Unable to parse payload: .*; this looks like YAML/],
    ['# comment\njob "x" {\n}\n', /^Unable to parse payload: .*; this looks like HCL/],
    ['[{"name":"x"}]', /the body must be a JSON object; for a list of jobs use POST \/v1\/restore/],
  ] as const)
    assert.match((await api.post('/v1/jobs', body)).text, expected)
})
