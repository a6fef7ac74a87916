/** Node without servers: in time it ends its executions that must not run twice. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {ExecutionClaim} from '../../src/core/execution.ts'
import type {JobSpec} from '../../src/core/job.ts'
import {checkedLimits} from '../../src/config/limits.ts'
import {Runner} from '../../src/node/runner.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {aJob, anExecution, NOTHING_CLAIMED} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {ScriptedExecutor} from '../support/scripted-executor.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const LIMIT_MS = 12_000

async function running(onDisconnect: JobSpec['onDisconnect'], concurrency: 'allow' | 'forbid') {
  const clock = new VirtualClock()
  const executor = new ScriptedExecutor(clock)
  executor.script('job', {ms: Infinity, ignoresTerm: true})
  const ends: FinishItem[] = []
  const claimed = [
    {
      execution: anExecution().running().record,
      token: 'token-1',
      spec: aJob('job').with({onDisconnect, concurrency}).spec,
      cause: 'manual' as const,
      scheduledAt: 0,
    },
  ]
  let acknowledgedAt = 0
  const world = {isStoreDown: false, canLeave: false}
  const revoked: ExecutionClaim[] = []
  const events = new RecordedEvents()
  const service = new Runner({
    clock,
    random: new SeededRandom(1),
    events,
    wakeup: new TestWakeup(),
    executors: {get: () => executor},
    processors: {get: () => null},
    store: {
      claim: async () => [{...NOTHING_CLAIMED, claimed: claimed.splice(0)}],
      verifyClaims: async () => ['active'],
      cancelled: async () => [],
      appendOutput: async (items) => items.map(() => true),
    },
    finisher: {
      finish: async (item) => {
        ends.push(item)
        if (world.isStoreDown) await new Promise(() => {})
      },
    },
    nodeId: 'node',
    incarnation: 'life',
    slots: 4,
    revoked: () => revoked.splice(0),
    limits: {...checkedLimits(), disconnectedMs: LIMIT_MS},
    disconnection: {
      forMs: () => clock.monotonicMs() - acknowledgedAt,
      mayLeave: () => world.canLeave,
    },
  })
  service.start()
  await clock.settle()
  assert.equal(executor.running.length, 1)
  const acknowledge = () => (acknowledgedAt = clock.monotonicMs())
  return {clock, executor, ends, acknowledge, service, world, revoked, events}
}

type Effect = 'ends' | 'continues'
const CASES: readonly (readonly [JobSpec['onDisconnect'], 'allow' | 'forbid', Effect])[] = [
  ['', 'allow', 'continues'],
  ['', 'forbid', 'ends'],
  ['keep', 'forbid', 'continues'],
  ['stop', 'allow', 'ends'],
]

for (const [onDisconnect, concurrency, effect] of CASES)
  test(`on_disconnect "${onDisconnect}", ${concurrency}: a disconnected run ${effect}`, async () => {
    const stops = effect === 'ends'
    const {clock, executor, ends, service} = await running(onDisconnect, concurrency)
    const [started] = executor.started
    await clock.advance(LIMIT_MS - 1)
    assert.equal(started!.cancels, 0)
    await clock.advance(600)
    assert.equal(started!.cancels > 0, stops)
    await clock.advance(10_000)
    assert.deepEqual(
      ends.map(({status, reason}) => [status, reason]),
      stops ? [['lost', 'cut_off']] : [],
    )
    if (stops) assert.match(ends[0]!.outputFoot, /cut off from the cluster/)
    await clock.finish(service.drain(0))
  })

test('a heartbeat acknowledged just in time, again and again, ends no run', async () => {
  const {clock, executor, acknowledge, service} = await running('stop', 'forbid')
  for (let round = 0; round < 5; round += 1) {
    await clock.advance(LIMIT_MS - 1)
    acknowledge()
  }
  assert.equal(executor.started[0]!.cancels, 0)
  await clock.finish(service.drain(0))
})

test('a revoked claim ends its run and emits execution_abandoned', async () => {
  const {clock, executor, ends, acknowledge, service, revoked, events} = await running(
    'keep',
    'allow',
  )
  const {group, node, attempt} = anExecution().record
  revoked.push({key: {group, node, attempt}, token: 'token-1'})
  await clock.advance(1_000)
  acknowledge()
  assert.equal(executor.started[0]!.cancels, 1)
  assert.deepEqual(
    events.of('execution_abandoned').map(({reason}) => reason),
    ['claim_revoked'],
  )
  await clock.finish(service.drain(0))
  assert.equal(ends[0]!.status, 'cancelled')
})

/** Duration of a drain while the store accepts no finish. */
async function drainedMs(given: {
  readonly graceMs: number
  readonly canLeave?: boolean
  readonly forcedAfterMs?: number
}): Promise<number> {
  const {clock, service, world} = await running('keep', 'allow')
  world.isStoreDown = true
  world.canLeave = given.canLeave === true
  const began = clock.monotonicMs()
  const drained = service.drain(given.graceMs)
  if (given.forcedAfterMs !== undefined) clock.after(given.forcedAfterMs, () => service.killAll())
  await clock.finish(drained, 120_000)
  return clock.monotonicMs() - began
}

test('a drain waits 20 s for the store, or 3 s with a result log or on a forced stop', async () => {
  assert.equal(await drainedMs({graceMs: 0}), 20_000)
  assert.equal(await drainedMs({graceMs: 0, canLeave: true}), 3_000)
  assert.equal(await drainedMs({graceMs: 30_000, forcedAfterMs: 5_000}), 8_000)
  assert.equal(await drainedMs({graceMs: Infinity, forcedAfterMs: 60_000}), 63_000)
})

test('a graceful shutdown without servers still gives a run its grace period', async () => {
  const {clock, ends, service, world, executor} = await running('keep', 'allow')
  Object.assign(world, {isStoreDown: true, canLeave: true})
  const began = clock.monotonicMs()
  const drained = service.drain(30_000)
  await clock.advance(29_000)
  assert.equal(executor.started[0]!.cancels, 0)
  await clock.finish(drained)
  // TERM after the grace period, KILL 10 s later, then the drain ends.
  assert.equal(ends.length, 1)
  const lastedMs = clock.monotonicMs() - began
  assert.ok(lastedMs >= 40_000 && lastedMs <= 44_000, `${lastedMs} ms`)
})

test('after a pause of the process one heartbeat decides, before executions are ended', async () => {
  const {clock, acknowledge, events} = await running('', 'forbid')
  const abandoned = () => events.of('execution_abandoned').length
  clock.sleep(15_000)
  clock.after(1_500, acknowledge)
  await clock.advance(10_000)
  assert.equal(abandoned(), 0, 'the heartbeat was in time')
  clock.sleep(15_000)
  await clock.advance(1_900)
  assert.equal(abandoned(), 0)
  await clock.advance(200)
  assert.equal(abandoned(), 1, 'no heartbeat was acknowledged')
})
