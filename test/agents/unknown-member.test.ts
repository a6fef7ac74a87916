/** What a connected agent hears when the store knows it no more, or another has its name; time by hand. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {MemberStatus} from '../../src/core/node.ts'
import {World} from '../support/world.ts'
import {TestAgent, TestServer} from './network.ts'

const ID = 'id-of-far'
const LIFE = 'first-life'

/** An agent that has joined, and what may become of it meanwhile. */
async function anAbsence() {
  const world = new World()
  const {clock, store} = world
  const servers = {one: new TestServer(world, 'the-cluster', 'one')}
  const agent = new TestAgent(world, servers, {name: 'far', id: ID, incarnation: LIFE})
  await clock.advance(1_000)
  assert.equal(agent.joins.length, 1)
  const [self] = await store.members()
  return {
    agent,
    clock,
    server: servers.one,
    beat: (status: MemberStatus = 'alive') =>
      clock.finish(agent.store.beat({nodeId: ID, incarnation: LIFE, status})),
    isRemoved: async () => {
      await store.beat({nodeId: ID, incarnation: LIFE, status: 'failed'})
      const {kind} = await store.removeMember({nodeId: ID, limit: 9, jitter: 0})
      assert.equal(kind, 'removed')
    },
    isReplaced: async () => {
      const {kind} = await store.join({member: {...self!, id: 'another-disk'}}, 0)
      assert.equal(kind, 'joined')
    },
    present: async () =>
      (await store.members())
        .filter(({status}) => status === 'alive' || status === 'leaving')
        .map(({id, status}) => `${id} ${status}`),
  }
}

describe('an agent that was removed', () => {
  it('is a member again with its next heartbeat', async () => {
    const {isRemoved, beat, present} = await anAbsence()
    await isRemoved()
    assert.equal(await beat(), 'ok')
    assert.deepEqual(await present(), [`${ID} alive`])
  })

  it('is a member again as it is, when it leaves', async () => {
    const {isRemoved, beat, present} = await anAbsence()
    await isRemoved()
    assert.equal(await beat('leaving'), 'ok')
    assert.deepEqual(await present(), [`${ID} leaving`])
  })

  it('is not missed when it has left', async () => {
    const {isRemoved, beat, present} = await anAbsence()
    await isRemoved()
    assert.equal(await beat('left'), 'ok')
    assert.deepEqual(await present(), [])
  })

  it('is told when another has its name by then', async () => {
    const {isRemoved, isReplaced, beat, present} = await anAbsence()
    await isRemoved()
    await isReplaced()
    assert.equal(await beat(), 'taken')
    assert.deepEqual(await present(), ['another-disk alive'])
  })
})

describe('an agent whose name another has taken over', () => {
  it('is told with its next heartbeat', async () => {
    const {isReplaced, beat, present} = await anAbsence()
    await isReplaced()
    assert.equal(await beat(), 'taken')
    assert.deepEqual(await present(), ['another-disk alive'])
  })

  it('is told when it comes by a new connection, and does not try again', async () => {
    const {agent, clock, server, isReplaced, present} = await anAbsence()
    server.die()
    server.isGone = false
    await isReplaced()
    await clock.advance(60_000)
    assert.deepEqual(agent.refusals, [
      'fenced: Another node has joined as far while this node sent no heartbeats; this process ends.',
    ])
    assert.equal(agent.joins.length, 1)
    assert.deepEqual(await present(), ['another-disk alive'])
  })
})
