/** Rate limit of run requests, by token and job. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {DomainError} from '../../src/core/errors.ts'
import {RunLimit} from '../../src/operations/run-limit.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {RUNS_PER_MINUTE} from './harness.ts'
import {definition, startLockedApi, TEAM_A} from './tokens.ts'

/** Runs that a token may request at once. */
const BURST = RUNS_PER_MINUTE / 6

test('run requests of one token for one job are limited, those of others are not', async (t) => {
  const {api, admin, client, job} = await startLockedApi(t)
  await api.join()
  const team = await client('team-a', TEAM_A)
  for (const name of ['team-a-x', 'team-a-y']) await job(name)
  const ways = [
    () => team.call('POST', '/v1/jobs/team-a-x/run'),
    () => team.call('POST', '/v1/jobs/team-a-x'),
    () => team.call('POST', '/v1/jobs?runoncreate', definition('team-a-x')),
    () => team.call('PUT', '/v1/jobs/team-a-x?runoncreate', definition('team-a-x')),
  ]
  for (let count = 0; count < BURST; count += 1) {
    const {status, text} = await ways[count % ways.length]!()
    assert.ok([201, 202].includes(status), text)
  }
  const before = (await admin.call('GET', '/v1/jobs/team-a-x/launches')).headers['x-total-count']
  for (const way of ways) {
    const reply = await way()
    assert.deepEqual([reply.status, reply.json.code], [429, 'too_many_runs'])
    assert.equal(reply.headers['retry-after'], '1')
    assert.match(String(reply.headers['content-type']), /problem\+json/)
  }
  const after = (await admin.call('GET', '/v1/jobs/team-a-x/launches')).headers['x-total-count']
  assert.equal(after, before, 'nothing was launched')
  // Requests that start nothing are not limited.
  assert.equal((await team.call('PUT', '/v1/jobs/team-a-x', definition('team-a-x'))).status, 201)
  assert.equal((await team.call('POST', '/v1/jobs/team-a-y/run')).status, 202)
  assert.equal((await admin.call('POST', '/v1/jobs/team-a-x/run')).status, 202)
  await api.clock.advance(1_000)
  assert.equal((await ways[0]!()).status, 202)
  assert.equal((await ways[0]!()).status, 429)
})

test('the sessions of a token share its limit', async (t) => {
  const {api, client, job} = await startLockedApi(t)
  await api.join()
  const team = await client('team-a', TEAM_A)
  await job('team-a-x')

  const browser = async () => {
    const opened = await api.post('/v1/session', undefined, team.headers)
    const cookie = opened.headers['set-cookie']![0]!.split(';')[0]!
    return {cookie, origin: `http://127.0.0.1:${api.port}`, 'sec-fetch-site': 'same-origin'}
  }
  const callers = [team.headers, await browser(), await browser()]
  const statuses: number[] = []
  for (let count = 0; count <= BURST; count += 1) {
    const headers = callers[count % callers.length]!
    statuses.push((await api.post('/v1/jobs/team-a-x/run', undefined, headers)).status)
  }
  const last = statuses.pop()
  assert.deepEqual([[...new Set(statuses)], last], [[202], 429])
})

test('a repeated run request counts once, and a refused one not at all', async (t) => {
  const {api, admin, headers, job} = await startLockedApi(t)
  await api.join()
  await job('again', {concurrency: 'forbid'})
  const keyed = {...headers, 'idempotency-key': 'one'}
  for (let count = 0; count < 2 * BURST; count += 1) {
    assert.equal((await api.post('/v1/jobs/again', undefined, keyed)).status, 202)
    assert.equal((await admin.call('POST', '/v1/jobs/nobody')).status, 404)
  }
  // A request that meets an open launch has asked for a run.
  const statuses = new Set<number>()
  for (let count = 0; count < BURST; count += 1)
    statuses.add((await admin.call('POST', '/v1/jobs/again')).status)
  assert.deepEqual([...statuses], [409, 429])
})

test('a minute of constant requests admits the rate and a burst of ten seconds', async () => {
  const clock = new VirtualClock()
  const limit = new RunLimit(clock, 600)
  let taken = 0
  for (let second = 0; second < 60; second += 1) {
    for (let count = 0; count < 1_000; count += 1) {
      try {
        limit.take('a', 'j')
        taken += 1
      } catch (error) {
        assert.ok(error instanceof DomainError)
        break
      }
    }
    await clock.advance(1_000)
  }
  assert.equal(taken, 100 + 59 * 10)
})

test('a bucket fills up evenly, to the runs of ten seconds, and few are kept', async () => {
  const clock = new VirtualClock()
  const limit = new RunLimit(clock, 12)
  const takes = (accessor: string, job = 'j') => {
    try {
      limit.take(accessor, job)
      return 0
    } catch (error) {
      assert.ok(error instanceof DomainError)
      return error.retryAfterSeconds
    }
  }
  assert.deepEqual([takes('a'), takes('a'), takes('a')], [0, 0, 5])
  await clock.advance(2_500)
  assert.equal(takes('a'), 2.5)
  await clock.advance(2_500)
  assert.deepEqual([takes('a'), takes('a')], [0, 5])
  await clock.advance(3_600_000)
  assert.deepEqual([takes('a'), takes('a'), takes('a')], [0, 0, 5])
  const slow = new RunLimit(clock, 1)
  slow.take('a', 'j')
  assert.throws(() => slow.take('a', 'j'), /more than 1 runs/)
  for (let count = 0; count < 10_000; count += 1) takes('b', `j${count}`)
  assert.equal(takes('a'), 0, 'the oldest bucket is dropped')
})
