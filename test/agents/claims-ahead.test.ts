/** Claims ahead on an agent: it claims what its slots can start next, and releases what they cannot. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {checkedLimits} from '../../src/config/limits.ts'
import {claimId} from '../../src/core/execution.ts'
import {Runner} from '../../src/node/runner.ts'
import {aJob} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {ScriptedExecutor} from '../support/scripted-executor.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {World} from '../support/world.ts'
import {TestAgent, TestServer} from './network.ts'

const SLOTS = 40
const SHORT = 400
const COUNT = 600

/** A world with a leader that runs nothing, one server, and an agent without a runner. */
async function aCluster() {
  const world = new World()
  await world.start({name: 'leader', runs: false})
  const server = new TestServer(world, 'the-cluster')
  await world.submit(aJob('far').with({schedule: '@manually', tags: {place: 'far:1'}}))
  const agent = new TestAgent(world, {server}, {slots: SLOTS})
  await world.clock.advance(1_000)
  return {world, server, agent}
}

function runnerOf({clock, random}: World, agent: TestAgent, executor: ScriptedExecutor) {
  const {store} = agent
  return new Runner({
    clock,
    random,
    events: new RecordedEvents(),
    wakeup: new TestWakeup(),
    executors: {get: () => executor},
    processors: {get: () => null},
    store,
    finisher: agent,
    release: (claims) => store.releaseClaims(claims),
    revoked: () => store.revokedClaims(),
    nodeId: 'id-of-agent-a-agent',
    incarnation: 'first-incarnation',
    slots: SLOTS,
    limits: {...checkedLimits(), claimPauseMs: 5, burstClaimMax: 256},
  })
}

/** The first executions take 10 ms, the others have no end: what was claimed ahead of them cannot start. */
async function underLoad() {
  const {world, server, agent} = await aCluster()
  const executor = new ScriptedExecutor(world.clock)
  executor.script('far', () => ({ms: executor.started.length < SHORT ? 10 : Infinity}))
  for (let launch = 0; launch < COUNT; launch += 1)
    await world.store.requestRun({name: 'far', forced: false, idempotency: null})
  world.notify('launch')
  const runner = runnerOf(world, agent, executor)
  runner.start()
  let aheadMax = 0
  for (let ms = 0; ms < 4_000; ms += 5) {
    await world.clock.advance(5)
    const running = agent.claims.size - executor.running.length
    if (executor.running.length === SLOTS) aheadMax = Math.max(aheadMax, running)
  }
  const releases = server.received.filter((text) => text.includes('"kind":"release"')).length
  const count = async (wanted: string) =>
    (await world.statuses('far')).filter((status) => status === wanted).length
  return {world, agent, executor, runner, aheadMax, releases, count}
}

test('an agent claims ahead, and releases what no slot can start', async () => {
  const {world, agent, executor, runner, aheadMax, releases, count} = await underLoad()
  assert.ok(aheadMax > 0, 'nothing was claimed ahead')
  assert.ok(releases > 0)
  assert.equal(executor.running.length, SLOTS)
  assert.deepEqual([await count('running'), agent.claims.size], [SLOTS, SLOTS])
  assert.equal(await count('lost'), 0)
  await world.clock.finish(agent.beat())
  assert.deepEqual(agent.store.revokedClaims(), [])
  assert.equal(await count('running'), SLOTS)
  runner.killAll()
  await world.clock.finish(runner.drain(0), 60_000)
})

test('an agent releases only its own claims', async () => {
  const {world, server, agent} = await aCluster()
  const thief = new TestAgent(world, {server}, {name: 'thief'})
  await world.clock.advance(1_000)
  await world.runByHand('far')
  const holder = (await world.executions('far'))[0]!.node === 'thief' ? thief : agent
  const other = holder === thief ? agent : thief
  const {claimed} = await world.clock.finish(holder.claim('t1'))
  const [{execution, token}] = claimed as [(typeof claimed)[number]]
  const {group, node, attempt} = execution
  const claims = [{key: {group, node, attempt}, token}]
  assert.deepEqual(await world.clock.finish(other.store.releaseClaims(claims)), [])
  assert.deepEqual(await world.statuses('far'), ['running'])
  // The next heartbeats of the agent neither lose the execution nor revoke a second claim of it.
  const released = await world.clock.finish(holder.store.releaseClaims(claims))
  assert.deepEqual(released.map(claimId), [claimId(claims[0]!)])
  assert.deepEqual(await world.statuses('far'), ['pending'])
  assert.equal(holder.claims.size, 0)
  const beating = holder.beat()
  const {claimed: again} = await world.clock.finish(holder.claim('t2'))
  assert.equal(again.length, 1)
  await world.clock.finish(beating)
  await world.clock.finish(holder.beat())
  assert.deepEqual(holder.store.revokedClaims(), [])
  assert.deepEqual(await world.statuses('far'), ['running'])
})
