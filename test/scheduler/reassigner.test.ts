/**
 * Pending executions of a node that is gone for good, without another matching node: they wait as long as a
 * launch waits for a node, then end as lost and no longer block their job.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {aJob, type JobFixture} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const web = {role: 'web'}

/** A launch of the job on `one` and `two`; `one` died before it claimed. */
async function aHalfTakenLaunch(job: JobFixture) {
  const world = new World()
  const leader = await world.start({name: 'leader', incarnation: 'leader-1', runs: false})
  const settings = {tags: web, leads: false}
  const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
  await world.start({...settings, name: 'two', incarnation: 'two-1'})
  one.fault = (method) => (method === 'claim' ? 'unavailable' : 'none')
  await world.submit(job.tagged(web))
  if (job.spec.schedule === '@manually') await world.runByHand('job')
  else await world.clock.advance(10 * SECOND)
  one.crash()
  const launches = async () => (await world.launches('job')).map(({decision}) => decision)
  const ends = async () => {
    return (await world.executions('job')).map(({node, attempt, status, reason}) =>
      `${node} ${attempt} ${status} ${reason}`.trimEnd(),
    )
  }
  return {world, leader, settings, launches, ends}
}

const WAITS = ['one 1 pending', 'two 1 succeeded']
const ENDED = ['one 1 lost no_target', 'two 1 succeeded']

describe('a pending execution of a node that is gone, without another match', () => {
  it('ends after the wait for a node, and so does its launch', async () => {
    const {world, leader, ends} = await aHalfTakenLaunch(aJob('job').manual().retrying(3))
    await world.clock.advance(9 * MINUTE)
    assert.deepEqual(await ends(), WAITS)
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(await ends(), ENDED)
    assert.equal((await world.job('job')).status, 'partially_failed')
    const finished = leader.events
      .of('execution_finished')
      .map(({node, status}) => `${node} ${status}`)
    assert.deepEqual(finished, ['one lost'])
    await world.clock.advance(HOUR)
    assert.deepEqual(await ends(), ENDED, 'no retry follows')
    await world.check(['job'])
  })

  it('blocks a `forbid` job no longer than that', async () => {
    const {world, launches} = await aHalfTakenLaunch(aJob('job').every('10s').forbidding())
    await world.clock.advance(9 * MINUTE)
    assert.deepEqual(await launches(), ['launched', 'skipped'])
    await world.clock.advance(3 * MINUTE)
    const launched = (await launches()).filter((decision) => decision === 'launched')
    assert.ok(launched.length > 5, `${launched.length} launches`)
    await world.check(['job'])
  })

  it('never waits past the max_lateness of its planned time', async () => {
    const {world, ends} = await aHalfTakenLaunch(
      aJob('job').every('10s').forbidding().catchingUp('latest', '1m'),
    )
    await world.clock.advance(30 * SECOND)
    assert.deepEqual((await ends()).slice(0, 2), WAITS)
    await world.clock.advance(40 * SECOND)
    assert.deepEqual((await ends()).slice(0, 2), ENDED)
    await world.check(['job'])
  })

  it('is claimed by its node if the node is back in time', async () => {
    const {world, settings, ends} = await aHalfTakenLaunch(aJob('job').manual())
    await world.clock.advance(9 * MINUTE)
    await world.start({...settings, name: 'one', incarnation: 'one-2'})
    await world.clock.advance(5 * MINUTE)
    assert.deepEqual(await ends(), ['one 1 succeeded', 'two 1 succeeded'])
    await world.check(['job'])
  })

  it('ends at once when the node is removed', async () => {
    const {world, ends} = await aHalfTakenLaunch(aJob('job').manual())
    await world.clock.advance(30 * SECOND)
    assert.deepEqual(await ends(), WAITS)
    await world.store.removeMember({nodeId: 'id-of-one', limit: 9, jitter: 0.5})
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await ends(), ENDED)
    await world.check(['job'])
  })

  it('waits the full time again after an outage of the whole cluster', async () => {
    const {world, settings, ends} = await aHalfTakenLaunch(aJob('job').manual())
    await world.clock.advance(3 * SECOND)
    for (const node of world.nodes) node.crash()
    await world.clock.advance(HOUR)
    await world.start({name: 'leader', incarnation: 'leader-2', runs: false})
    await world.clock.advance(9 * MINUTE)
    assert.deepEqual(await ends(), WAITS)
    await world.start({...settings, name: 'one', incarnation: 'one-2'})
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await ends(), ['one 1 succeeded', 'two 1 succeeded'])
    await world.check(['job'])
  })
})

describe('a retry of a job whose only node died', () => {
  it('ends too, and no further retry follows', async () => {
    const world = new World()
    await world.start({name: 'leader', incarnation: 'leader-1', runs: false})
    const scripts = {job: {ms: Infinity}}
    const tags = {room: 'printing'}
    const only = await world.start({name: 'only', incarnation: 'o-1', leads: false, tags, scripts})
    await world.submit(aJob('job').manual().retrying(5).tagged(tags))
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    only.crash()
    await world.clock.advance(HOUR)
    const executions = await world.executions('job')
    assert.deepEqual(
      executions.map(({attempt, reason}) => `${attempt} ${reason}`),
      ['1 node_lost', '2 no_target'],
    )
    assert.equal((await world.job('job')).status, 'failed')
    await world.check(['job'])
  })
})

describe('very many pending executions', () => {
  it('of a node that died move at once, before those that only wait', async () => {
    const world = new World()
    const leader = await world.start({name: 'leader', incarnation: 'leader-1', runs: false})
    const busy = await world.start({
      name: 'busy',
      incarnation: 'busy-1',
      tags: {role: 'busy'},
      slots: 1,
      leads: false,
    })
    busy.executor.script('other', {ms: Infinity})
    const settings = {tags: web, leads: false, slots: 2_000}
    const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
    one.fault = (method) => (method === 'claim' ? 'unavailable' : 'none')
    await world.submit(aJob('other').manual().tagged({role: 'busy'}))
    await world.submit(aJob('job').manual().tagged(web))
    for (let count = 0; count < 600; count += 1) await world.runByHand('other')
    for (let count = 0; count < 600; count += 1) await world.runByHand('job')
    one.crash()
    const two = await world.start({...settings, name: 'two', incarnation: 'two-1'})
    const seen: (string | undefined)[] = []
    const {loadStuck} = leader.store
    leader.store.loadStuck = async (request) => {
      seen.push(request.of)
      return await loadStuck(request)
    }
    await world.clock.advance(14 * SECOND)
    assert.equal(two.executor.of('job').length, 600)
    assert.ok(seen.includes('gone_nodes') && seen.includes('all'))
  })
})
