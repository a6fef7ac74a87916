/** Cordon and drain in a simulated cluster: where work goes, and what happens at the deadline. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {SchedulingChange} from '../../src/core/node.ts'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const RUN_MS = 300
/** Delay of the answer of a full slot: the node claimed its next execution before the drain. */
const LATE_MS = RUN_MS

async function set(world: World, name: string, change: SchedulingChange): Promise<void> {
  await world.clock.finish(world.store.setScheduling({nodeId: `id-of-${name}`, change}))
  world.notify('run')
  world.notify('cancel')
  world.notify('launch')
}

async function aCluster(settings: Parameters<World['start']>[0] = {}) {
  const world = new World(3)
  await world.start({name: 'leader', incarnation: 'leader-1', runs: false})
  const one = await world.start({...settings, name: 'one', incarnation: 'one-1', leads: false})
  const two = await world.start({...settings, name: 'two', incarnation: 'two-1', leads: false})
  return {world, one, two}
}

async function loadOf(world: World, name: string) {
  const loads = await world.store.nodeLoads()
  return loads.find(({nodeId}) => nodeId === `id-of-${name}`)!
}

describe('a node that is drained under a flood of short jobs', () => {
  it('starts nothing more; nothing is lost or doubled', async () => {
    const names = Array.from({length: 130}, (_, index) => `job-${index}`)
    const scripts = Object.fromEntries(names.map((name) => [name, {ms: RUN_MS}]))
    const {world, one, two} = await aCluster({slots: 8, scripts})
    for (const name of names) await world.submit(aJob(name).every('2s').retrying(2))
    await world.clock.advance(6 * SECOND)
    const {waiting: queued} = await loadOf(world, 'one')
    assert.ok(queued > 20, `${queued} executions wait for it`)
    await set(world, 'one', {kind: 'drain', deadlineMs: MINUTE})
    const drainedAt = world.clock.monotonicMs()
    await world.clock.advance(8 * SECOND)
    const late = one.executor.started.filter(({startedAt}) => startedAt > drainedAt + LATE_MS)
    assert.equal(late.length, 0)
    assert.ok(two.executor.started.some(({startedAt}) => startedAt > drainedAt + 5 * SECOND))
    const {running, waiting} = await loadOf(world, 'one')
    assert.deepEqual([running, waiting], [0, 0])
    const ends = await Promise.all(names.map((name) => world.statuses(name)))
    const bad = ends
      .flat()
      .filter((status) => !['succeeded', 'running', 'pending'].includes(status))
    assert.deepEqual(bad, [])
    await world.check(names)
  })
})

describe('at the deadline of a drain', () => {
  it('what still runs is lost, and retried on another node', async () => {
    const scripts = {long: {ms: 5 * MINUTE}}
    const {world, one, two} = await aCluster({scripts, tags: {room: 'any'}})
    await set(world, 'two', {kind: 'cordon'})
    await world.submit(aJob('long').manual().retrying(1).tagged({room: 'any:1'}))
    await world.runByHand('long')
    await world.clock.advance(SECOND)
    assert.equal(one.executor.running.length, 1)
    await set(world, 'two', {kind: 'uncordon'})
    await set(world, 'one', {kind: 'drain', deadlineMs: MINUTE})
    await world.clock.advance(MINUTE - SECOND)
    assert.equal(one.executor.running.length, 1)
    await world.clock.advance(10 * SECOND)
    const ends = (await world.executions('long')).map(({node, status, reason}) =>
      `${node} ${status} ${reason}`.trim(),
    )
    assert.deepEqual(ends, ['one lost node_drained', 'two running'])
    assert.equal(two.executor.running.length, 1)
    await world.check(['long'])
  })
})

describe('work that only cordoned nodes match', () => {
  const web = {group: 'web'}

  it('waits as without a node, is skipped with their number, and runs after an uncordon', async () => {
    const {world, one} = await aCluster({tags: web})
    await set(world, 'one', {kind: 'cordon'})
    await set(world, 'two', {kind: 'cordon'})
    await world.submit(aJob('job').manual().tagged(web))
    await world.runByHand('job')
    await world.clock.advance(11 * MINUTE)
    const skipped = (await world.launches('job')).map(({reason}) => reason)
    assert.deepEqual(skipped, ['no_target: 2 matching nodes are cordoned'])
    await world.runByHand('job', true)
    await world.clock.advance(MINUTE)
    await set(world, 'one', {kind: 'uncordon'})
    await world.clock.advance(2 * SECOND)
    assert.equal(one.executor.started.length, 1)
    await world.check(['job'])
  })

  it('ends as lost after the wait if it was assigned before', async () => {
    const scripts = {block: {ms: 20 * MINUTE}}
    const {world} = await aCluster({tags: web, slots: 1, scripts})
    await world.submit(aJob('block').manual().tagged(web))
    await world.runByHand('block')
    await world.clock.advance(SECOND)
    await world.submit(aJob('job').manual().tagged(web))
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await set(world, 'one', {kind: 'cordon'})
    await set(world, 'two', {kind: 'cordon'})
    const states = async () => (await world.executions('job')).map(({status}) => status)
    assert.deepEqual(await states(), ['pending', 'pending'])
    await world.clock.advance(9 * MINUTE)
    assert.deepEqual(await states(), ['pending', 'pending'])
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(await states(), ['lost', 'lost'])
    assert.deepEqual(await world.statuses('block'), ['running', 'running'])
    await world.check(['job'])
  })
})
