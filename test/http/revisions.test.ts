/** The history of a job over HTTP: what is shown, and a restore, with the rules of a submit. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {definition, startLockedApi, TEAM_A} from './tokens.ts'
import {revisionIn} from '../support/etag.ts'

test('a revision has its definition and who made it', async (t) => {
  const locked = await startLockedApi(t)
  const {admin} = locked
  const ann = await locked.token('management', {name: 'ann'})
  await ann.call('POST', '/v1/jobs', definition('x', {retries: 1}))
  await locked.job('x', {retries: 2})
  const list = await admin.call('GET', '/v1/jobs/x/revisions')
  assert.equal(list.headers['x-total-count'], '2')
  const [second, first] = list.json
  assert.deepEqual([second.revision, second.actor, second.action], [2, 'configured', 'job.update'])
  assert.deepEqual([first.actor, first.accessor, first.action], ['ann', ann.accessor, 'job.create'])
  const {definition: old, ...rest} = (await admin.call('GET', '/v1/jobs/x/revisions/1')).json
  assert.deepEqual(rest, first)
  assert.equal(old.retries, 1)
  assert.deepEqual(old.executor_config, {command: 'true'})
  assert.equal(old.success_count, undefined)
  const page = await admin.call('GET', '/v1/jobs/x/revisions?_start=1&_end=2')
  assert.deepEqual(page.json, [first])
})

test('a difference is what a revision changed, or what differs from another one', async (t) => {
  const {admin, job} = await startLockedApi(t)
  for (const retries of [1, 2, 3]) await job('x', {retries})
  const diff = async (query: string) =>
    (await admin.call('GET', `/v1/jobs/x/revisions/${query}`)).json
  assert.deepEqual(await diff('3/diff'), {
    from: 2,
    to: 3,
    before: {retries: 2},
    after: {retries: 3},
  })
  assert.deepEqual((await diff('3/diff?with=1')).before, {retries: 1})
  const first = await diff('1/diff')
  assert.deepEqual([first.from, first.before, first.after.retries], [null, null, 1])
  for (const path of ['9', '0', 'x', '1/diff?with=9', '9/diff', '-1', '1e3'])
    assert.equal((await diff(path)).code, 'revision_unknown', path)
  const unknown = await admin.call('GET', '/v1/jobs/nobody/revisions/1')
  assert.equal(unknown.json.code, 'job_unknown')
})

test('a restore is a new revision, with the checks of a submit', async (t) => {
  const {admin, api, headers, job} = await startLockedApi(t)
  await job('parent')
  await job('x', {parent_job: 'parent', schedule: ''})
  await job('x', {retries: 5})
  const restore = (revision: number, more: Record<string, string> = {}) => {
    const path = `/v1/jobs/x/revisions/${revision}/restore`
    return api.call('POST', path, {headers: {...headers, ...more}})
  }
  assert.equal((await restore(1, {'if-match': '"1"'})).status, 412)
  const restored = await restore(1, {'if-match': '"2"', 'idempotency-key': 'k'})
  assert.equal(restored.status, 200, restored.text)
  assert.deepEqual([revisionIn(restored.headers.etag), restored.json.parent_job], ['"3"', 'parent'])
  const repeated = await restore(1, {'if-match': '"2"', 'idempotency-key': 'k'})
  assert.deepEqual([repeated.status, revisionIn(repeated.headers.etag)], [200, '"3"'])
  await restore(2)
  await admin.call('DELETE', '/v1/jobs/parent')
  assert.equal((await restore(1)).json.code, 'parent_unknown')
  await admin.call('POST', '/v1/pause')
  assert.equal((await restore(1)).status, 503)
  await admin.call('POST', '/v1/unpause')
  assert.equal(revisionIn((await admin.call('GET', '/v1/jobs/x')).headers.etag), '"4"')
  await admin.call('DELETE', '/v1/jobs/x')
  assert.equal((await restore(1)).json.code, 'job_unknown')
})

test('a restore cannot bring back what the token may not store', async (t) => {
  const locked = await startLockedApi(t)
  const rules = {...TEAM_A, executors: ['shell'], su: ['']}
  const team = await locked.client('team', rules)
  const root = {executor_config: {command: 'true', su: 'root'}}
  for (const name of ['team-a-x', 'team-b-x']) {
    await locked.job(name, root)
    await locked.job(name)
  }
  await locked.job('team-a-y', {parent_job: 'team-b-x', schedule: ''})
  await locked.job('team-a-y')
  const restore = async (name: string) =>
    (await team.call('POST', `/v1/jobs/${name}/revisions/1/restore`)).json
  assert.match((await restore('team-a-x')).detail, /allows only these accounts/)
  assert.match((await restore('team-a-y')).detail, /It is the parent of "team-a-y"/)
  assert.equal((await restore('team-b-x')).code, 'not_allowed')
  assert.equal((await restore('team-b-nothing')).code, 'not_allowed', 'as for a job that exists')
  const reads = ['', '/1', '/1/diff'].map((path) =>
    team.call('GET', `/v1/jobs/team-b-x/revisions${path}`),
  )
  assert.deepEqual(
    (await Promise.all(reads)).map(({status}) => status),
    [403, 403, 403],
  )
  for (const name of ['team-a-x', 'team-b-x', 'team-a-y'])
    assert.equal(
      revisionIn((await locked.admin.call('GET', `/v1/jobs/${name}`)).headers.etag),
      '"2"',
    )
})

test('a restore does not show the job to a token that may not read it', async (t) => {
  const locked = await startLockedApi(t)
  const blind = await locked.client('blind', {path: {'/v1/jobs/x': {capabilities: ['update']}}})
  await locked.job('x', {metadata: {a: 'hidden-text'}})
  await locked.job('x', {metadata: {a: 'other'}})
  const {status, text} = await blind.call('POST', '/v1/jobs/x/revisions/1/restore')
  assert.equal(status, 200)
  assert(!text.includes('hidden-text'))
})
