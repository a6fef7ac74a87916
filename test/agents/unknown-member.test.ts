/** Connected agent whose membership was removed, or whose name another node has taken. Virtual time. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {MemberStatus} from '../../src/core/node.ts'
import {World} from '../support/world.ts'
import {TestAgent, TestServer} from './network.ts'
import {beatAs} from '../support/single-calls.ts'

const ID = 'id-of-far'
const INCARNATION = 'first-incarnation'

/** An agent that has joined, and changes to its membership. */
async function anAbsence() {
  const world = new World()
  const {clock, store} = world
  const servers = {one: new TestServer(world, 'the-cluster', 'one')}
  const agent = new TestAgent(world, servers, {name: 'far', id: ID, incarnation: INCARNATION})
  await clock.advance(1_000)
  assert.equal(agent.joins.length, 1)
  const [self] = await store.members()
  return {
    agent,
    clock,
    server: servers.one,
    beat: (status: MemberStatus = 'alive') =>
      clock.finish(beatAs(agent.store, {nodeId: ID, incarnation: INCARNATION, status})),
    isRemoved: async () => {
      await beatAs(store, {nodeId: ID, incarnation: INCARNATION, status: 'failed'})
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
  it('joins again with its next heartbeat', async () => {
    const {isRemoved, beat, present} = await anAbsence()
    await isRemoved()
    assert.equal(await beat(), 'ok')
    assert.deepEqual(await present(), [`${ID} alive`])
  })

  it('joins again as leaving when it leaves', async () => {
    const {isRemoved, beat, present} = await anAbsence()
    await isRemoved()
    assert.equal(await beat('leaving'), 'ok')
    assert.deepEqual(await present(), [`${ID} leaving`])
  })

  it('does not join again when it has left', async () => {
    const {isRemoved, beat, present} = await anAbsence()
    await isRemoved()
    assert.equal(await beat('left'), 'ok')
    assert.deepEqual(await present(), [])
  })

  it('is refused when another node has taken its name since', async () => {
    const {isRemoved, isReplaced, beat, present} = await anAbsence()
    await isRemoved()
    await isReplaced()
    assert.equal(await beat(), 'taken')
    assert.deepEqual(await present(), ['another-disk alive'])
  })
})

describe('an agent whose name another node has taken', () => {
  it('is refused with its next heartbeat', async () => {
    const {isReplaced, beat, present} = await anAbsence()
    await isReplaced()
    assert.equal(await beat(), 'taken')
    assert.deepEqual(await present(), ['another-disk alive'])
  })

  it('is refused on a new connection and does not retry', async () => {
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
