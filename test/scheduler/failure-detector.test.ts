/** The leader's judging goes on whatever becomes of its verdicts, and of other steps of the leader. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {StoreMethod} from '../support/faulty-store.ts'
import {aJob} from '../support/fixtures.ts'
import type {Life} from '../support/life.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000

/** A leader, and two nodes that run a job each launch of which is on both; `one` dies. */
async function aClusterThatLosesOne(trouble: (leader: Life) => void) {
  const world = new World()
  const leader = await world.start({name: 'leader', incarnation: 'leader-1', runs: false})
  const settings = {tags: {role: 'web'}, leads: false, scripts: {job: {ms: Infinity}}}
  const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
  const two = await world.start({...settings, name: 'two', incarnation: 'two-1'})
  await world.submit(aJob('job').manual().tagged({role: 'web'}))
  await world.runByHand('job')
  await world.clock.advance(2 * SECOND)
  trouble(leader)
  one.crash()
  const statusOf = async (name: string) =>
    (await world.store.members()).find((member) => member.name === name)?.status
  return {world, leader, two, statusOf}
}

const without = (broken: StoreMethod) => (leader: Life) => {
  leader.fault = (method) => (method === broken ? 'unavailable' : 'none')
}

describe('a dead node is found, and its work lost,', () => {
  for (const method of ['loadStuck', 'candidates', 'loadDue'] as const) {
    it(`while ${method} cannot be had`, async () => {
      const {world, statusOf} = await aClusterThatLosesOne(without(method))
      await world.clock.advance(13 * SECOND)
      assert.equal(await statusOf('one'), 'failed')
      await world.clock.advance(15 * SECOND)
      assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
    })
  }

  it('while its verdict cannot be stored', async () => {
    const {world, leader, statusOf} = await aClusterThatLosesOne(without('failMember'))
    await world.clock.advance(28 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
    assert.equal(await statusOf('one'), 'alive')
    leader.fault = () => 'none'
    await world.clock.advance(2 * SECOND)
    assert.equal(await statusOf('one'), 'failed')
  })

  it('while storing verdicts takes longer than a judge may pause', async () => {
    const {world} = await aClusterThatLosesOne((leader) => {
      leader.delayMs = (method) => (method === 'failMember' ? 20 * SECOND : 0)
    })
    await world.clock.advance(28 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'running'])
  })

  it('though ending the work of another fails again and again', async () => {
    const {world, leader, two, statusOf} = await aClusterThatLosesOne(() => {})
    const {rescue} = leader.store
    const asked: string[] = []
    leader.store.rescue = async (request) => {
      asked.push(request.nodeId)
      if (request.nodeId === 'id-of-one') throw new Error('a row of it is locked')
      return await rescue(request)
    }
    two.crash()
    await world.clock.advance(28 * SECOND)
    assert.deepEqual([await statusOf('one'), await statusOf('two')], ['failed', 'failed'])
    assert.deepEqual(await world.statuses('job'), ['running', 'lost'])
    leader.store.rescue = rescue
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['lost', 'lost'])
    assert.equal(asked.filter((id) => id === 'id-of-two').length, 1, 'what is done is done once')
  })
})
