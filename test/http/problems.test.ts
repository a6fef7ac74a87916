/** `GET /v1/problems`: the reply, its pages and parameters, what a token sees, a store without space. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {ProblemJson, ProblemsJson} from '../../src/wire/problems.ts'
import {type Api, startApi} from './harness.ts'
import {startLockedApi, TEAM_A} from './tokens.ts'

const HOUR = 3_600_000

async function fail(api: Api, name: string, text = ''): Promise<number> {
  const claimed = await api.running(name)
  await api.finish(claimed, 'failed', {text})
  return claimed.execution.group
}

async function problems(api: Api, query = ''): Promise<ProblemsJson> {
  const {status, json} = await api.get(`/v1/problems${query}`)
  assert.equal(status, 200, JSON.stringify(json))
  return json
}

test('a reply has what is designed, and the last line of output of a failure', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('load')
  await api.job('mart', {parent_job: 'load', schedule: ''})
  const launch = await fail(api, 'load', 'begin\nrelation "orders" does not exist\n')
  const reply = await problems(api)
  const [problem] = reply.problems
  assert.deepEqual(
    {...reply, problems: [], from: '', oldest: ''},
    {
      from: '',
      to: new Date(api.clock.now()).toISOString(),
      partial: false,
      oldest: '',
      not_over: 1,
      next: null,
      problems: [],
      on_purpose: [],
    },
  )
  assert.equal(Date.parse(reply.to) - Date.parse(reply.from), 8 * HOUR)
  assert.equal(reply.oldest, reply.from)
  const {since, ...rest} = problem!
  assert.ok(Date.parse(since) <= api.clock.now())
  assert.deepEqual(rest, {
    kind: 'failed',
    code: 'failed',
    cause: {
      job: 'load',
      launch,
      exit_code: 1,
      reason: 'exit code 1',
      dependents: 1,
      last_line: 'relation "orders" does not exist',
    },
    over: false,
    until: null,
    jobs: ['load', 'mart'],
    jobs_total: 2,
    planned_times: 1,
    launches: [launch],
    sentence: 'load failed: exit code 1.',
    advice: 'Read its output.',
  })
  await api.finish(await api.running('load'))
  const over = (await problems(api)).problems[0]!
  assert.deepEqual([over.over, typeof over.until, over.advice], [true, 'string', ''])
  assert.deepEqual((await problems(api, '?open=true')).problems, [])
})

test('pages: no problem twice and none left out, while rows are added and problems end', async (t) => {
  const api = await startApi(t)
  await api.join()
  const names = ['a', 'b', 'c', 'd', 'e']
  for (const name of names) {
    await api.job(name)
    await fail(api, name)
    await api.clock.advance(1_000)
  }
  const seen: string[] = []
  let next = ''
  for (let page = 0; ; page += 1) {
    const reply = await problems(api, `?limit=2${next === '' ? '' : `&after=${next}`}`)
    seen.push(...reply.problems.flatMap(({jobs}) => jobs))
    if (reply.next === null) break
    assert.ok(page < 4)
    next = reply.next
    await api.clock.advance(1_000)
    await api.finish(await api.running('d'))
    await fail(api, 'a')
    await api.job(`new-${page}`)
    await fail(api, `new-${page}`)
  }
  assert.deepEqual(seen, names.toReversed())
})

test('a problem and the explanation of its launch tell the same cause and advice', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('a')
  const launch = await fail(api, 'a')
  const [problem] = (await problems(api)).problems
  const {json} = await api.get(`/v1/jobs/a/explain?launch=${launch}`)
  const told = (sentence: string) => /failed: (.*)$/.exec(sentence)?.[1]
  assert.equal(told(problem!.sentence), 'exit code 1.')
  assert.equal(told(json.sentences.at(-1)), told(problem!.sentence))
  assert.equal(json.advice, problem!.advice)
})

test('parameters: a range, jobs, and what is refused', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('a', {metadata: {team: 'x'}})
  await fail(api, 'a')
  await api.clock.advance(2 * HOUR)
  // The lease of these tests ends meanwhile.
  const jobs = async (query: string) => {
    const {problems: found} = await problems(api, query)
    return found.filter(({kind}) => kind !== 'cluster').map(({jobs: names}) => names)
  }
  assert.deepEqual(await jobs('?since=1h'), [])
  assert.deepEqual(await jobs('?since=3h&job=a*&metadata[team]=x'), [['a']])
  assert.deepEqual(await jobs('?job=b*'), [])
  assert.deepEqual(await jobs('?metadata=team:y'), [])
  const until = new Date(api.clock.now() - HOUR).toISOString()
  assert.deepEqual(await jobs(`?until=${until}`), [['a']])
  for (const [query, code] of [
    ['since=soon', 'query_invalid'],
    ['since=0', 'query_invalid'],
    ['since=91d', 'query_invalid'],
    ['since=2020-01-01T00:00:00Z', 'query_invalid'],
    [`since=${new Date(api.clock.now() + HOUR).toISOString()}`, 'query_invalid'],
    [`since=${until}&until=${until}`, 'query_invalid'],
    ['until=soon', 'query_invalid'],
    ['open=maybe', 'query_invalid'],
    ['limit=0', 'query_invalid'],
    ['after=x', 'cursor_invalid'],
    [`after=${Buffer.from('[1,2]').toString('base64url')}`, 'cursor_invalid'],
    ['kind=failed', 'parameter_unknown'],
  ] as const) {
    const {status, json} = await api.get(`/v1/problems?${query}`)
    assert.deepEqual([status, json.code], [400, code], query)
  }
})

test('a token sees no name, count, launch or output of the jobs that it may not read', async (t) => {
  const locked = await startLockedApi(t)
  const {api, admin} = locked
  await api.join()
  const team = await locked.client('team-a', TEAM_A)
  for (const [name, parent] of [
    ['team-b-x', ''],
    ['team-a-x', 'team-b-x'],
    ['team-b-y', 'team-a-x'],
  ] as const) {
    const schedule = parent === '' ? {} : {schedule: ''}
    const body = {name, ...(await locked.job(name)), parent_job: parent, ...schedule}
    assert.ok((await admin.call('POST', '/v1/jobs', body)).status < 300)
  }
  await admin.call('POST', '/v1/jobs/team-b-x/run')
  await api.launch()
  await api.finish((await api.claim())[0]!, 'failed', {text: 'the secret of team b'})
  const all: ProblemsJson = (await admin.call('GET', '/v1/problems')).json
  const named = (reply: ProblemsJson) => reply.problems.map(({jobs}: ProblemJson) => jobs)
  assert.deepEqual(named(all), [['team-b-x', 'team-a-x', 'team-b-y']])
  const {json, text} = await team.call('GET', '/v1/problems')
  assert.deepEqual(named(json), [['team-a-x']])
  assert.deepEqual(
    [json.problems[0].jobs_total, json.problems[0].planned_times, json.problems[0].sentence],
    [1, 1, 'Its parent did not succeed, so team-a-x did not run.'],
  )
  assert.doesNotMatch(text, /team-b|secret|node-a/)
  const group = all.problems[0]!.launches[0]!
  assert.equal(json.problems[0].launches.includes(group), false)
})

test('a store that takes no heartbeat of this server is a problem while it lasts', async (t) => {
  const api = await startApi(t)
  await api.join()
  const codes = async () => (await problems(api)).problems.map(({code, over}) => [code, over])
  await api.clock.advance(8_000)
  assert.deepEqual(await codes(), [])
  await api.clock.advance(1)
  assert.deepEqual(await codes(), [['store', false]])
  const beat = {nodeId: 'id-of-node-a', incarnation: 'first-incarnation', status: 'alive'} as const
  await api.store.beat([beat])
  assert.deepEqual(await codes(), [])
})
