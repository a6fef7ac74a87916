/** Readiness of a server: what anyone may read, what a client with a token reads, and what is logged. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {Readiness} from '../../src/http/readiness.ts'
import type {ReadyState} from '../../src/http/options.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const CACHED_MS = 1_000

const A_LAUNCH = {
  job: 'a',
  group: 1,
  cause: 'schedule',
  scheduled_at: 0,
  decided_at: 0,
  count: 1,
} as const

function setUp() {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const changes: ReadyState[] = []
  const readiness = new Readiness(clock, events, (state) => void changes.push(state))
  const store = {error: null as Error | null}
  const check = async (isLeader = false) => {
    const state = await readiness.check(
      {probe: () => (store.error === null ? Promise.resolve() : Promise.reject(store.error))},
      isLeader,
    )
    await clock.advance(CACHED_MS)
    return state
  }
  return {clock, events, changes, store, check}
}

test('the cause of a failed store is in the details only, and is logged once', async () => {
  const {changes, store, check} = setUp()
  assert.deepEqual(await check(), {ok: true, checks: {store: 'ok'}, details: {store: 'ok'}})
  store.error = new Error('connect ECONNREFUSED db.internal:5432')
  const failed = await check()
  assert.deepEqual(failed, {
    ok: false,
    checks: {store: 'not readable and writable'},
    details: {store: 'not readable and writable: connect ECONNREFUSED db.internal:5432'},
  })
  await check()
  assert.deepEqual(changes, [failed])
  store.error = null
  await check()
  await check()
  assert.deepEqual(
    changes.map(({ok}) => ok),
    [false, true],
  )
})

test('a leader without a launch pass for two seconds is not ready', async () => {
  const {clock, events, check} = setUp()
  assert.equal((await check(true)).ok, true)
  await clock.advance(2_000)
  const late = await check(true)
  assert.deepEqual([late.ok, late.checks], [false, {store: 'ok', launch: 'no pass for 3000 ms'}])
  assert.equal((await check(false)).ok, true, 'a follower makes no passes')
  events.emit('launch_pass_done', {due: 0, requests: 0, duration_ms: 1})
  assert.equal((await check(true)).ok, true)
})

test('readiness reports jobs that are behind for a minute, and stays true', async () => {
  const {clock, events, changes, check} = setUp()
  await check()
  events.emit('launch_decided', {...A_LAUNCH, decision: 'skipped', reason: 'forbid'})
  assert.deepEqual((await check()).checks, {store: 'ok'})
  events.emit('launch_decided', {...A_LAUNCH, decision: 'skipped', reason: 'behind'})
  const behind = await check()
  const queue = 'jobs are behind: planned times are skipped'
  assert.deepEqual([behind.ok, behind.checks], [true, {store: 'ok', queue}])
  await clock.advance(60_000)
  assert.deepEqual((await check()).checks, {store: 'ok'})
  assert.deepEqual(changes, [])
})
