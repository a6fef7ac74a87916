/** 500 agents on one server: few transactions, no growth, and no reconnect storm. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {Membership} from '../../src/node/membership.ts'
import {openMemoryStore} from '../../src/store/sqlite/store.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {TestAgent, TestServer} from './network.ts'

const AGENTS = 500

test('500 agents share transactions for heartbeats and reconnect spread out within 30 s', async () => {
  const clock = new VirtualClock()
  const random = new SeededRandom(7)
  let commits = 0
  let writes = 0
  const store = openMemoryStore({
    clock,
    random,
    events: {
      emit: (name, data) => {
        if (name !== 'store_committed') return
        commits += 1
        writes += (data as {items: number}).items
      },
    },
  })
  const surroundings = {clock, random, store}
  const server = new TestServer(surroundings, 'cluster')
  const agents = Array.from({length: AGENTS}, (_, index) => {
    const name = `agent-${index}`
    const agent = new TestAgent(surroundings, {server}, {name})
    const member = {id: `id-of-${name}-agent`, incarnation: 'first-incarnation', name}
    const events = new RecordedEvents()
    const limits = {heartbeatMs: 2_000}
    const parts = {store: agent.store, clock, events, member, limits}
    const onReplaced = () => assert.fail(`${name} was replaced`)
    const membership = new Membership({...parts, onReplaced})
    // Spread over two seconds.
    clock.after(index * 4, () => membership.start())
    return {agent, membership}
  })
  await clock.advance(6_000)
  assert.equal(server.hub.agentCount, AGENTS)
  const waiting = clock.waiting
  commits = 0
  writes = 0
  server.received = []
  await clock.advance(10_000)
  assert.ok(writes >= AGENTS * 4, `${writes} heartbeats in 10 s`)
  assert.ok(commits <= 60, `${commits} transactions for ${writes} heartbeats`)
  assert.ok(clock.waiting <= waiting + AGENTS, 'timers do not accumulate')
  const members = await store.members()
  const oldest = Math.min(...members.map(({heartbeatAt}) => heartbeatAt))
  assert.equal(members.length, AGENTS)
  assert.ok(clock.now() - oldest < 4_000, 'every member is fresh')

  server.die()
  await clock.advance(20_000)
  server.isGone = false
  server.received = []
  let busiest = 0
  let before = 0
  const began = clock.monotonicMs()
  while (server.hub.agentCount < AGENTS && clock.monotonicMs() - began < 30_000) {
    await clock.advance(100)
    busiest = Math.max(busiest, server.hub.agentCount - before)
    before = server.hub.agentCount
  }
  assert.equal(server.hub.agentCount, AGENTS, 'all reconnect within 30 s')
  assert.ok(busiest < AGENTS / 5, `${busiest} reconnected within 100 ms`)
  await clock.advance(4_000)
  assert.ok(clock.waiting <= waiting + AGENTS, 'timers do not accumulate after a reconnect')
  assert.equal(server.wires.size, AGENTS)
  for (const {agent, membership} of agents) {
    agent.link.stop()
    await membership.stop()
  }
  await server.hub.stop()
})
