/** Member retention over the real store: members gone for long are removed, under any leader. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {MemberRetention} from '../../src/scheduler/retention.ts'
import {aJob, aNode} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {World} from '../support/world.ts'
import {beatAs, claimAs} from '../support/single-calls.ts'

const MINUTE = 60_000
/** Short, because each virtual second of a cluster costs real work. */
const LEFT_AFTER_MS = 6 * MINUTE
const FAILED_AFTER_MS = 18 * MINUTE

/** A leader and its member retention. */
async function aCluster(targetWaitMs = 10 * MINUTE) {
  const world = new World()
  await world.start({name: 'leader', incarnation: 'leader-1', runs: false, targetWaitMs})
  const events = new RecordedEvents()
  const state = {isOver: false}
  const service = async () =>
    new MemberRetention({
      store: world.store,
      term: (await world.store.leader())!.term,
      onTermOver: () => (state.isOver = true),
      clock: world.clock,
      events,
      leftAfterMs: LEFT_AFTER_MS,
      failedAfterMs: FAILED_AFTER_MS,
      limits: {memberRetentionIntervalMs: MINUTE},
    })
  const names = async () => (await world.store.members()).map(({name}) => name)
  return {world, events, state, service, names}
}

describe('member retention', () => {
  it('removes all members that left, in batches, and emits an event for each', async () => {
    const {world, events, service, names} = await aCluster()
    for (let index = 0; index < 250; index += 1) {
      const id = `agent-${index}`
      const place = {address: '127.0.0.1', port: 1, tags: {}, server: false, runs: true}
      const member = {...place, id, name: id, incarnation: 'only', version: '1', slots: 1}
      await world.store.join({member}, 0)
      await beatAs(world.store, {nodeId: id, incarnation: 'only', status: 'left'})
    }
    const forgetting = await service()
    forgetting.start()
    await world.clock.advance(LEFT_AFTER_MS - MINUTE)
    assert.equal((await names()).length, 251)
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(await names(), ['leader'])
    assert.equal(events.of('member_changed').length, 250)
    assert.equal(events.of('member_changed')[0]!.status, 'forgotten')
    await world.clock.finish(forgetting.stop())
  })

  it('keeps a dead node until its executions are lost and reassigned', async () => {
    const {world, service, names} = await aCluster(2 * FAILED_AFTER_MS)
    const only = {tags: {role: 'web'}, leads: false}
    await world.submit(aJob('job').manual().retrying(1).tagged({role: 'web:1'}))
    const scripts = {job: {ms: Infinity}}
    const dead = await world.start({...only, scripts, name: 'dead', incarnation: 'dead-1'})
    await world.runByHand('job')
    await world.clock.advance(5_000)
    dead.crash()
    const forgetting = await service()
    forgetting.start()
    await world.clock.advance(FAILED_AFTER_MS + 5 * MINUTE)
    assert.deepEqual(await world.statuses('job'), ['lost', 'pending'])
    assert.deepEqual(
      await names(),
      ['dead', 'leader'],
      'its pending execution matches no other node',
    )
    await world.start({...only, name: 'next', incarnation: 'next-1'})
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(await world.statuses('job'), ['lost', 'succeeded'])
    assert.deepEqual(await names(), ['leader', 'next'])
    await world.clock.finish(forgetting.stop())
    await world.check(['job'])
  })

  it('removes a dead node when its pending executions have ended without another node', async () => {
    const {world, service, names} = await aCluster()
    await world.submit(aJob('job').manual().retrying(1).tagged({role: 'web'}))
    const settings = {tags: {role: 'web'}, leads: false, scripts: {job: {ms: Infinity}}}
    const dead = await world.start({...settings, name: 'dead', incarnation: 'dead-1'})
    await world.runByHand('job')
    await world.clock.advance(5_000)
    dead.crash()
    const forgetting = await service()
    forgetting.start()
    await world.clock.advance(FAILED_AFTER_MS + 2 * MINUTE)
    assert.deepEqual(await world.statuses('job'), ['lost', 'lost'])
    assert.deepEqual(await names(), ['leader'])
    await world.clock.finish(forgetting.stop())
    await world.check(['job'])
  })

  it('ends with the term', async () => {
    const {world, state, service} = await aCluster()
    const forgetting = await service()
    for (const node of world.nodes) await world.clock.finish(node.stop())
    forgetting.start()
    await world.clock.advance(2 * MINUTE)
    assert.equal(state.isOver, true)
    await world.clock.finish(forgetting.stop())
  })
})

describe('a node replaced by another of its name', () => {
  it('passes its pending executions to the new one', async () => {
    const {world} = await aCluster()
    const settings = {tags: {role: 'web'}, leads: false, incarnation: 'only'}
    await world.submit(aJob('job').manual().tagged({role: 'web:1'}))
    const old = await world.start({...settings, name: 'web-1', slots: 1})
    old.fault = (method) => (method === 'claim' ? 'unavailable' : 'none')
    await world.runByHand('job')
    old.crash()
    await world.clock.advance(15_000)
    const {record} = aNode('web-1').with({tags: {role: 'web'}, incarnation: 'other'})
    const member = {...record, id: 'another-disk'}
    assert.equal((await world.store.join({member}, 10_000)).kind, 'joined')
    await world.clock.advance(5_000)
    const claim = {nodeId: 'another-disk', incarnation: 'other', token: 't', room: 9}
    const {claimed} = await claimAs(world.store, claim)
    assert.deepEqual(
      claimed.map(({execution}) => [execution.node, execution.attempt]),
      [['web-1', 1]],
    )
  })
})
