/** Refused accesses in the audit log: who was refused what, and a flood that adds few rows. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {test, type TestContext} from 'node:test'
import {WebSocket} from 'ws'
import {
  REFUSALS_EVERY_MS,
  REFUSALS_MAX,
  RefusalLog,
  TARGETS_MAX,
} from '../../src/http/security/refusals.ts'
import type {RefusedRequest} from '../../src/http/options.ts'
import {FAILURES_MAX} from '../../src/http/security/auth.ts'
import type {Change} from '../../src/core/audit.ts'
import type {AuditEntryJson} from '../../src/wire/audit.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import type {ApiOptions} from './harness.ts'
import {startLockedApi} from './tokens.ts'

async function startRecording(t: TestContext, options: ApiOptions = {}) {
  let log: RefusalLog | null = null
  const locked = await startLockedApi(t, {
    ...options,
    onRefused: (refused) => log?.record(refused),
  })
  log = new RefusalLog(locked.api)
  log.start()
  t.after(() => log.stop())
  const recorded = async () => {
    await locked.api.clock.advance(REFUSALS_EVERY_MS)
    const {json} = await locked.admin.call('GET', '/v1/audit?result=refused')
    return (json as AuditEntryJson[]).map(({actor, address, target, detail}) => {
      return [actor, address, target, detail].join(' ')
    })
  }
  const record = (refused: RefusedRequest) => log?.record(refused)
  return {locked, recorded, record}
}

test('a refused access is recorded with the token, the path and the reason', async (t) => {
  const {locked, recorded} = await startRecording(t)
  const reader = await locked.token('read', {name: 'wallboard'})
  for (const name of ['x', 'y', 'y']) await reader.call('DELETE', `/v1/jobs/${name}?token=hidden`)
  await reader.call('POST', '/v1/jobs', {name: 'z', schedule: '@manually'})
  assert.deepEqual(await recorded(), [
    'wallboard 127.0.0.1 z POST 403 not_allowed',
    'wallboard 127.0.0.1 /v1/jobs/y DELETE 403 not_allowed, 2 times',
    'wallboard 127.0.0.1 /v1/jobs/x DELETE 403 not_allowed',
  ])
  const ofJob = await locked.admin.call('GET', '/v1/audit?job=z')
  assert.equal(ofJob.json[0].detail, 'POST 403 not_allowed', 'it is among the entries of the job')
  for (let at = 0; at < TARGETS_MAX + 5; at += 1) await reader.call('DELETE', `/v1/jobs/${at}`)
  assert.equal(
    (await recorded())[0],
    'wallboard 127.0.0.1 several paths DELETE 403 not_allowed, 5 times',
  )
})

test('refusals of some callers do not hide those of another', async (t) => {
  const {locked, recorded} = await startRecording(t)
  const flood = async (from: string) => {
    const client = await locked.token('client', {name: from})
    for (let at = 0; at < REFUSALS_MAX; at += 1)
      await client.call(['GET', 'DELETE', 'POST'][at % 3]!, `/v1/jobs/${from}-${at}`)
  }
  await flood('one')
  const team = await locked.token('client', {name: 'team-a'})
  const attempt = () => team.call('POST', '/v1/jobs/team-b-x/revisions/1/restore')
  await attempt()
  const [first] = await recorded()
  assert.equal(first, 'team-a 127.0.0.1 team-b-x POST 403 not_allowed')
  for (let other = 0; other < 6; other += 1) await flood(`other-${other}`)
  await attempt()
  const [second] = await recorded()
  assert.match(second!, /^team-a 127\.0\.0\.1 .* POST 403 not_allowed$/)
})

test('refused requests of one address are one entry, for all paths and tokens', async (t) => {
  const {locked, recorded} = await startRecording(t)
  for (let guess = 0; guess < FAILURES_MAX + 20; guess += 1)
    await locked.api.get(`/v1/jobs/${guess}`, {'x-service-token': `belfry_guess_${guess}`})
  assert.deepEqual(await recorded(), [
    ' 127.0.0.1 several paths GET 429 too_many_failures, 20 times',
    ' 127.0.0.1 several paths GET 401 token_required, 200 times',
  ])
})

test('an agent that joins under many names has few entries', async (t) => {
  const {locked, recorded, record} = await startRecording(t)
  const {accessor} = await locked.token('agent', {name: 'press'})
  const principal = locked.api.access.principal(accessor)
  const request = {
    method: 'GET',
    route: '/v1/agent',
    url: '/v1/agent',
    code: 'not_allowed',
  } as const
  for (let at = 0; at < TARGETS_MAX + 5; at += 1)
    record({...request, principal, address: '::1', joining: {node: `n${at}`, why: 'No.'}})
  const [rest, last, ...others] = await recorded()
  assert.equal(rest, 'press ::1 several paths GET 403 not_allowed, 5 times')
  assert.equal(last, `press ::1 n${TARGETS_MAX - 1} GET 403 not_allowed: No.`)
  assert.equal(others.length, TARGETS_MAX - 1)
})

test('a refused connection of an agent is recorded', async (t) => {
  const agents = {connect: () => assert.fail('no agent connects'), stop: async () => {}}
  const {locked, recorded} = await startRecording(t, {agents})
  const {headers} = await locked.token('read', {name: 'wallboard'})
  const socket = new WebSocket(`ws://127.0.0.1:${locked.api.port}/v1/agent`, {headers})
  await once(socket, 'error')
  assert.deepEqual(await recorded(), ['wallboard 127.0.0.1 /v1/agent GET 403 not_allowed'])
})

test('what is not refused for lack of access is not recorded', async (t) => {
  const {locked, recorded} = await startRecording(t)
  await locked.admin.call('GET', '/v1/jobs/nothing')
  await locked.admin.call('POST', '/v1/jobs', {})
  assert.deepEqual(await recorded(), [])
})

test('a flood from many addresses adds a bounded number of rows, also after an outage', async () => {
  const clock = new VirtualClock()
  const written: (readonly Change[])[] = []
  let isAway = true
  const store = {
    recordAudit: async (changes: readonly Change[]) => {
      if (isAway) throw new Error('away')
      written.push(changes)
    },
  }
  const log = new RefusalLog({store, clock, events: new RecordedEvents()})
  log.start()
  const flood = () => {
    for (let host = 0; host < 10_000; host += 1)
      log.record({
        principal: null,
        address: `10.0.${host >> 8}.${host & 255}`,
        method: 'GET',
        route: '/v1/jobs',
        url: `/v1/jobs?${host}`,
        code: 'token_required',
      })
  }
  flood()
  await clock.advance(2 * REFUSALS_EVERY_MS)
  flood()
  isAway = false
  await clock.advance(2 * REFUSALS_EVERY_MS)
  await clock.finish(log.stop())
  assert.equal(written.length, 1)
  const changes = written[0]!
  assert.equal(changes.length, REFUSALS_MAX + 1)
  const counts = changes.map(({detail = ''}) => Number(/(\d+) (?:times|further)/.exec(detail)?.[1]))
  const counted = counts.map((count) => (Number.isNaN(count) ? 1 : count))
  assert.equal(
    counted.reduce((sum, count) => sum + count, 0),
    20_000,
  )
})
