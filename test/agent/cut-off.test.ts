/** A node without servers: what must not run twice is ended by the node itself, in time. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {OnDisconnect} from '../../src/core/job.ts'
import {RunService} from '../../src/flow/run.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {aJob, anExecution} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {keepingChain, ScriptedExecutor} from '../support/scripted-executor.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const LIMIT_MS = 12_000

async function running(onDisconnect: OnDisconnect | '', concurrency: 'allow' | 'forbid') {
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
  let heardAt = 0
  const service = new RunService({
    clock,
    random: new SeededRandom(1),
    events: new RecordedEvents(),
    wakeup: new TestWakeup(),
    executors: {get: () => executor},
    openChain: (_processors, _run, keep) => keepingChain(keep),
    store: {
      claim: async () => ({claimed: claimed.splice(0), waiting: 0, nextDueInMs: null}),
      verifyClaims: async () => [true],
      cancelled: async () => [],
    },
    finish: async (item) => ends.push(item),
    append: async () => true,
    nodeId: 'node',
    incarnation: 'life',
    slots: 4,
    claimMax: 4,
    claimFreshMs: 1_000,
    pollMs: 1_000,
    drainPatienceMs: 20_000,
    keepOutputBytes: 1_000,
    flushBytes: 1_000,
    flushMs: 1_000,
    flushPauseMs: 250,
    cutOff: {
      forMs: () => clock.monotonicMs() - heardAt,
      limitMs: LIMIT_MS,
      mayLeave: () => false,
    },
  })
  service.start()
  await clock.settle()
  assert.equal(executor.running.length, 1)
  const heard = () => (heardAt = clock.monotonicMs())
  return {clock, executor, ends, heard, service}
}

const CASES: readonly (readonly [OnDisconnect | '', 'allow' | 'forbid', ends: boolean])[] = [
  ['', 'allow', false],
  ['', 'forbid', true],
  ['keep', 'forbid', false],
  ['stop', 'allow', true],
]

for (const [onDisconnect, concurrency, stops] of CASES)
  test(`on_disconnect "${onDisconnect}" with ${concurrency} ${stops ? 'ends' : 'works on'}`, async () => {
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

test('a server heard of in time ends nothing, however often it was nearly too late', async () => {
  const {clock, executor, heard, service} = await running('stop', 'forbid')
  for (let round = 0; round < 5; round += 1) {
    await clock.advance(LIMIT_MS - 1)
    heard()
  }
  assert.equal(executor.started[0]!.cancels, 0)
  await clock.finish(service.drain(0))
})
