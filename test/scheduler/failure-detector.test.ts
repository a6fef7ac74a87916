/** Failure detection continues whatever happens to its writes and to other services of the leader. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {StoreMethod} from '../support/faulty-store.ts'
import {aJob} from '../support/fixtures.ts'
import type {SimulatedNode} from '../support/simulated-node.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000

/** A leader and two nodes that both run each launch of a job; node `one` dies. */
async function aClusterWithDeadNode(inject: (leader: SimulatedNode) => void) {
  const world = new World()
  const leader = await world.start({name: 'leader', incarnation: 'leader-1', runs: false})
  const settings = {tags: {role: 'web'}, leads: false, scripts: {job: {ms: Infinity}}}
  const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
  const two = await world.start({...settings, name: 'two', incarnation: 'two-1'})
  await world.submit(aJob('job').manual().tagged({role: 'web'}))
  await world.runByHand('job')
  await world.clock.advance(2 * SECOND)
  inject(leader)
  one.crash()
  const statusOf = async (name: string) =>
    (await world.store.members()).find((member) => member.name === name)?.status
  return {world, leader, two, statusOf}
}

const without = (broken: StoreMethod) => (leader: SimulatedNode) => {
  leader.fault = (method) => (method === broken ? 'unavailable' : 'none')
}

describe('a dead node is failed and its executions are lost', () => {
  for (const method of ['loadStuck', 'candidates', 'loadDue'] as const) {
    it(`while ${method} fails`, async () => {
      const {world, statusOf} = await aClusterWithDeadNode(without(method))
      await world.clock.advance(13 * SECOND)
      assert.equal(await statusOf('one'), 'failed')
      await world.clock.advance(15 * SECOND)
      assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
    })
  }

  it('while marking it failed fails', async () => {
    const {world, leader, statusOf} = await aClusterWithDeadNode(without('failMember'))
    await world.clock.advance(28 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
    assert.equal(await statusOf('one'), 'alive')
    leader.fault = () => 'none'
    await world.clock.advance(2 * SECOND)
    assert.equal(await statusOf('one'), 'failed')
  })

  it('while marking it failed takes longer than the pause limit of detection', async () => {
    const {world} = await aClusterWithDeadNode((leader) => {
      leader.delayMs = (method) => (method === 'failMember' ? 20 * SECOND : 0)
    })
    await world.clock.advance(28 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
  })

  it('while ending the executions of another node fails repeatedly', async () => {
    const {world, leader, two, statusOf} = await aClusterWithDeadNode(() => {})
    const {markLost} = leader.store
    const marked: string[] = []
    leader.store.markLost = async (request) => {
      marked.push(request.nodeId)
      if (request.nodeId === 'id-of-one') throw new Error('a row of it is locked')
      return await markLost(request)
    }
    two.crash()
    await world.clock.advance(28 * SECOND)
    assert.deepEqual([await statusOf('one'), await statusOf('two')], ['failed', 'failed'])
    assert.deepEqual(await world.statuses('job'), ['running', 'lost'])
    leader.store.markLost = markLost
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'lost'])
    assert.equal(marked.filter((id) => id === 'id-of-two').length, 1, 'handled once')
  })
})
