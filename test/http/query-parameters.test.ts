/** Unknown query parameters: refused by our own routes, named to clients of the contract. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {startApi} from './harness.ts'

test('our own routes refuse an unknown parameter, with the name that may be meant', async (t) => {
  const api = await startApi(t)
  const {status, json} = await api.get('/v1/schedules/preview?schedule=@daily&counts=3')
  assert.deepEqual([status, json.code, json.parameter], [400, 'parameter_unknown', 'counts'])
  assert.deepEqual(json.known, ['count', 'from', 'name', 'pretty', 'schedule', 'timezone', 'to'])
  assert.match(json.detail, /^counts: .* did you mean "count"\? It knows count, from, name, pretty/)
  assert.equal((await api.get('/v1/audit?metadata[k]=v')).json.parameter, 'metadata[k]')
  assert.equal((await api.get('/v1/audit?pretty&_end=1')).status, 200)
  assert.equal((await api.get('/readyz?check=1')).headers['x-warnings'], undefined)
})

test('routes of the contract accept any parameter and name the unknown ones', async (t) => {
  const api = await startApi(t)
  const known = '_start=0&_end=9&_sort=name&_order=ASC&q=&metadata[k]=v&metadata[]=a:b&pretty'
  const plain = await api.get(`/v1/jobs?${known}`)
  assert.deepEqual([plain.status, plain.headers['x-warnings']], [200, undefined])
  const {status, headers} = await api.get('/v1/jobs?stauts=failed&_=17&stauts=x&id=a%0d%0ab')
  assert.equal(status, 200)
  assert.equal(
    headers['x-warnings'],
    'stauts: unknown query parameter; did you mean "status"?; _: unknown query parameter; ' +
      'id: unknown query parameter',
  )
  assert.ok((await api.get('/v1?x')).headers['x-warnings'])
})

test('a submit has the warnings of its job as well, and is strict on request', async (t) => {
  const api = await startApi(t)
  const job = {name: 'a', schedule: '@daily'}
  const stored = await api.post('/v1/jobs?runoncrate', job)
  assert.equal(stored.status, 201)
  assert.match(
    String(stored.headers['x-warnings']),
    /^runoncrate: unknown query parameter; did you mean "runoncreate"\?; executor: /,
  )
  const strict = await api.post('/v1/jobs?strict=true&runoncrate', job)
  assert.deepEqual([strict.status, strict.json.code], [400, 'parameter_unknown'])
})

test('a misspelt dry run stores nothing, and a dry run needs no value', async (t) => {
  const api = await startApi(t)
  const job = {name: 'a', schedule: '@daily'}
  for (const parameter of ['dry-run=true', 'DRY_RUN=true', 'dryrun', 'srict=true']) {
    const {status, text} = await api.post(`/v1/jobs?${parameter}`, job)
    assert.equal(status, 400, parameter)
    assert.match(text, /did you mean "(?:dry_run|strict)"\?/)
  }
  for (const parameter of ['dry_run', 'dry_run=', 'dry_run=true'])
    assert.equal((await api.post(`/v1/jobs?${parameter}`, job)).json.action, 'create', parameter)
  assert.equal((await api.post('/v1/jobs?dry_run=false', job)).status, 201)
})
