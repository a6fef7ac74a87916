/** Lists: filters in every spelling, sorting, paging, and the form of replies. */
import assert from 'node:assert/strict'
import {test, type TestContext} from 'node:test'
import {startApi, type Api} from './harness.ts'

async function withJobs(t: TestContext): Promise<Api> {
  const api = await startApi(t)
  await api.job('alpha', {displayname: 'Zulu Report', metadata: {team: 'a', tier: '1'}})
  await api.job('beta', {metadata: {team: 'b', tier: '1'}, schedule: '@every 1h'})
  await api.job('gamma', {metadata: {team: 'a', zone: 'b'}, disabled: true})
  return api
}

const names = async (api: Api, query: string) => {
  const reply = await api.get(`/v1/jobs${query}`)
  assert.equal(reply.status, 200, `${query}: ${reply.text}`)
  return reply.json.map((job: {name: string}) => job.name).join(' ')
}

/** Query and expected names. */
const LISTS: readonly (readonly [string, string])[] = [
  ['', 'alpha beta gamma'],
  ['/', 'alpha beta gamma'],
  ['?metadata[team]=a', 'alpha gamma'],
  ['?metadata%5Bteam%5D=a&metadata[tier]=1', 'alpha'],
  ['?metadata=team:a', 'alpha gamma'],
  ['?metadata=team=a', 'alpha gamma'],
  ['?metadata[]=team:a&metadata[]=tier:1', 'alpha'],
  ['?metadata=team:a&metadata=zone:b', 'gamma'],
  ['?metadata=b', 'beta gamma'],
  ['?metadata=tier', 'alpha beta'],
  ['?metadata=', 'alpha beta gamma'],
  ['?metadata[0]=team:a&metadata[1]=tier:1', 'alpha'],
  ['?metadata%5B0%5D=team%3Db', 'beta'],
  ['?metadata[]=:', ''],
  ['?metadata[__proto__]=x', ''],
  ['?q=ET', 'beta'],
  ['?q=zulu', 'alpha'],
  ['?q=%25', ''],
  ['?q=', 'alpha beta gamma'],
  ['?disabled=true', 'gamma'],
  ['?disabled=false', 'alpha beta'],
  ['?status=untriggered', 'alpha beta gamma'],
  ['?status=success', ''],
  ['?_sort=name&_order=DESC', 'gamma beta alpha'],
  ['?_sort=id&_order=desc', 'gamma beta alpha'],
  ['?_sort=displayname', 'beta gamma alpha'],
  ['?_sort=next&_order=Desc', 'beta alpha gamma'],
  ['?_start=1', 'beta gamma'],
  ['?_end=1', 'alpha'],
  ['?_start=1&_end=2', 'beta'],
  ['?_start=-5&_end=2', 'alpha beta'],
  ['?_start=2&_end=1', ''],
  ['?_start=50&_end=60', ''],
  ['?_end=99999999999999999999', 'alpha beta gamma'],
  ['?_start=&_end=', 'alpha beta gamma'],
  ['?%zz=%zz', 'alpha beta gamma'],
]

test('job lists are filtered, sorted and paged', async (t) => {
  const api = await withJobs(t)
  for (const [query, expected] of LISTS) assert.equal(await names(api, query), expected, query)
  for (const sort of [
    'schedule',
    'success_count',
    'error_count',
    'last_success',
    'last_error',
    'status',
  ])
    assert.equal((await api.get(`/v1/jobs?_sort=${sort}`)).json.length, 3)
})

test('a number in brackets is a metadata key unless the value is a pair', async (t) => {
  const api = await startApi(t)
  await api.job('numbered', {metadata: {7: 'seven', team: 'a'}})
  assert.equal(await names(api, '?metadata[7]=seven'), 'numbered')
  assert.equal(await names(api, '?metadata[7]=team:a'), 'numbered')
  assert.equal(await names(api, '?metadata[7]=eight'), '')
})

test('X-Total-Count is the number of rows before paging', async (t) => {
  const api = await withJobs(t)
  assert.equal((await api.get('/v1/jobs')).headers['x-total-count'], '3')
  assert.equal((await api.get('/v1/jobs?_start=0&_end=1')).headers['x-total-count'], '3')
  assert.equal((await api.get('/v1/jobs?metadata=team:a&_end=1')).headers['x-total-count'], '2')
})

test('an invalid query parameter is rejected by name', async (t) => {
  const api = await withJobs(t)
  const refused: readonly (readonly [string, RegExp])[] = [
    ['/v1/jobs?_sort=size', /_sort: "size" is not known/],
    ['/v1/jobs?_order=up', /_order: /],
    ['/v1/jobs?_start=one', /_start: must be an integer/],
    ['/v1/jobs?_end=1.5', /_end: must be an integer/],
    ['/v1/members?_start=a', /_start: must be an integer/],
    ['/v1/members?_end=1.5', /_end: must be an integer/],
    ['/v1/jobs?status=odd', /status: "odd"/],
    ['/v1/jobs?disabled=maybe', /disabled: "maybe"/],
    [`/v1/jobs?${'metadata=x&'.repeat(65)}`, /metadata: at most 64/],
    ['/v1/stats?days=0', /days: must be an integer from 1 to 365/],
    ['/v1/stats?days=366', /days: /],
    ['/v1/stats?days=7.5', /days: /],
    ['/v1/jobs/alpha/executions?_sort=output', /_sort: /],
    ['/v1/jobs/alpha/executions?status=odd', /status: /],
    ['/v1/jobs/alpha/executions?output_size_limit=x', /output_size_limit: /],
    [
      '/v1/jobs/alpha/executions?output_size_limit=-1',
      /output_size_limit: must be an integer from 0/,
    ],
    ['/v1/jobs/alpha/launches?decision=odd', /decision: /],
    ['/v1/jobs/alpha/next?count=0', /count: must be an integer from 1 to 100/],
    ['/v1/schedules/preview?schedule=@daily&count=101', /count: /],
  ]
  for (const [path, detail] of refused) {
    const reply = await api.get(path)
    assert.equal(reply.status, 400, path)
    assert.equal(reply.headers['content-type'], 'application/problem+json; charset=utf-8')
    assert.equal(reply.json.code, 'query_invalid')
    assert.equal(reply.json.status, 400)
    assert.match(reply.json.detail, detail)
  }
})

test('JSON is compact, or indented with pretty', async (t) => {
  const api = await withJobs(t)
  const compact = await api.get('/v1/jobs')
  assert.ok(!compact.text.includes('\n'))
  assert.equal((await api.get('/v1/jobs?pretty=false')).text, compact.text)
  for (const query of ['?pretty', '?pretty=', '?pretty=true', '?pretty=1']) {
    const pretty = await api.get(`/v1/jobs${query}`)
    assert.equal(pretty.text, JSON.stringify(compact.json, null, 2))
  }
  const refused = await api.get('/v1/jobs/nobody?pretty')
  assert.equal(refused.text, JSON.stringify(refused.json, null, 2))
})

test('a trailing slash is accepted without a redirect', async (t) => {
  const api = await withJobs(t)
  await api.join()
  for (const path of [
    '/v1',
    '/v1/jobs',
    '/v1/jobs/alpha',
    '/v1/members',
    '/v1/stats',
    '/v1/busy',
    '/health',
  ])
    assert.equal((await api.get(`${path}/`)).text, (await api.get(path)).text)
  assert.equal((await api.post('/v1/jobs/', {name: 's', schedule: '@manually'})).status, 201)
  assert.equal((await api.post('/v1/jobs/s/')).status, 202)
  assert.equal((await api.post('/v1/jobs/s/toggle/')).status, 200)
  assert.equal((await api.delete('/v1/jobs/s/')).status, 200)
})

test('job names of any alphabet and of full length work in paths', async (t) => {
  const api = await startApi(t)
  for (const name of ['größe', 'ж'.repeat(128), 'a'.repeat(128)]) {
    const created = await api.post('/v1/jobs', {name, schedule: '@manually'})
    assert.equal(created.status, 201)
    const reply = await api.get(String(created.headers.location))
    assert.equal(reply.json.name, name)
  }
})

test('a long list is complete, and does not block the event loop', async (t) => {
  const api = await startApi(t)
  const count = 1_200
  const entries = Array.from({length: count}, (_, index) => ({
    name: `job-${String(index).padStart(5, '0')}`,
    schedule: '@manually',
  }))
  const file = new FormData()
  file.set('file', new Blob([JSON.stringify(entries)]), 'jobs.json')
  const restored = await fetch(`${api.url}/v1/restore`, {method: 'POST', body: file})
  assert.equal(restored.status, 200)
  assert.equal(((await restored.json()) as string[]).length, count)
  for (const query of ['', '?pretty']) {
    const firedBefore = api.clock.fired
    const reply = await api.settled(api.get(`/v1/jobs${query}`))
    assert.equal(reply.json.length, count)
    assert.equal(reply.headers['x-total-count'], String(count))
    assert.ok(api.clock.fired - firedBefore >= 3, 'timers fired between the chunks')
    if (query === '?pretty') assert.equal(reply.text, JSON.stringify(reply.json, null, 2))
  }
})
