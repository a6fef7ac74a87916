/** Pings for the cluster: one a minute from the leader while Belfry works, over takeovers and outages. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {checkedLimits} from '../../src/config/limits.ts'
import type {NoticeChannels} from '../../src/ports/notice-channel.ts'
import {JobFixture} from '../support/fixtures.ts'
import type {SimulatedNode} from '../support/simulated-node.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND

/** A cluster whose leader pings a monitor. */
class Cluster {
  readonly world = new World(11)
  /** Times of the pings, and the node that sent each. */
  readonly pings: {readonly at: number; readonly node: string}[] = []
  readonly nodes: SimulatedNode[] = []
  hangs = false

  async add(name: string): Promise<SimulatedNode> {
    const {clock} = this.world
    const send: NoticeChannels['send'] = async ({kind}, message, signal) => {
      assert.deepEqual([kind, message.kind], ['ping', 'alive'])
      this.pings.push({at: clock.now(), node: name})
      if (!this.hangs) return {outcome: 'sent', cause: ''}
      const ended = Promise.withResolvers<void>()
      const timer = clock.after(10 * SECOND, ended.resolve)
      signal.addEventListener('abort', () => ended.resolve())
      await ended.promise
      timer.cancel()
      return {outcome: 'retry', cause: 'no answer'}
    }
    const settings = {name, incarnation: `${name}-1`, channels: {send}}
    const node = await this.world.start(settings)
    this.nodes.push(node)
    return node
  }

  async channel(config: Record<string, unknown>): Promise<void> {
    const author = {name: 'ops', kind: 'management', policies: []} as const
    const channel = {name: 'ping', kind: 'ping', config, enabled: true}
    await this.world.store.putChannel({channel, author, secret: null})
  }

  /** Pings within the next `ms`. */
  async during(ms: number): Promise<number> {
    const before = this.pings.length
    await this.world.clock.advance(ms)
    return this.pings.length - before
  }
}

const URL = 'https://hc-ping.com/uuid'

test('the leader pings once a minute, also over takeovers, and never two servers', async () => {
  const cluster = new Cluster()
  await cluster.channel({url: URL, cluster: true})
  for (const name of ['node-a', 'node-b', 'node-c']) await cluster.add(name)
  await cluster.world.submit(new JobFixture().with({name: 'a', schedule: '@every 20s'}))
  for (let round = 0; round < 2; round += 1) {
    assert.equal(await cluster.during(10 * MINUTE), 10)
    const leader = cluster.nodes.find(({isLeading}) => isLeading)!
    assert.equal(cluster.pings.at(-1)!.node, leader.settings.name)
    leader.crash()
  }
  assert.equal(await cluster.during(10 * MINUTE), 10)
  const gaps = cluster.pings.slice(1).map(({at}, index) => at - cluster.pings[index]!.at)
  assert.ok(Math.max(...gaps) <= 90 * SECOND, gaps.join(' '))
  assert.equal(new Set(cluster.pings.map(({node}) => node)).size, 3)
  const [channel] = await cluster.world.store.channels()
  assert.ok(cluster.world.clock.now() - channel!.lastOkAt! < 2 * MINUTE)
})

test('a channel for jobs gets no pings of the cluster', async () => {
  const cluster = new Cluster()
  await cluster.channel({url: URL})
  await cluster.add('node-a')
  assert.equal(await cluster.during(5 * MINUTE), 0)
})

test('while the store cannot be written nothing is pinged, and soon afterwards it is', async () => {
  const cluster = new Cluster()
  await cluster.channel({url: URL, cluster: true})
  const node = await cluster.add('node-a')
  assert.equal(await cluster.during(3 * MINUTE), 3)
  const reads = new Set(['channels', 'totals', 'info', 'loadDue', 'heldLease'])
  node.fault = (method) => (reads.has(method) ? 'none' : 'unavailable')
  assert.equal(await cluster.during(10 * MINUTE), 0)
  node.fault = () => 'none'
  assert.ok((await cluster.during(MINUTE)) >= 1)
})

test('while planned times stay undecided nothing is pinged, although a server leads', async () => {
  const cluster = new Cluster()
  await cluster.channel({url: URL, cluster: true})
  const node = await cluster.add('node-a')
  await cluster.world.submit(new JobFixture().with({name: 'a', schedule: '@every 20s'}))
  await cluster.during(MINUTE)
  node.fault = (method) => (method === 'applyLaunches' ? 'unavailable' : 'none')
  await cluster.during(80 * SECOND)
  assert.equal(await cluster.during(10 * MINUTE), 0)
  assert.ok(node.isLeading)
  node.fault = () => 'none'
  assert.equal(await cluster.during(20 * SECOND), 1)
})

test('a clock that jumped ahead and is not trusted yet stops the pings', async () => {
  const cluster = new Cluster()
  await cluster.channel({url: URL, cluster: true})
  await cluster.add('node-a')
  await cluster.during(MINUTE)
  cluster.world.clock.stepWall(2 * 3_600_000)
  const {clockConfirmMs} = checkedLimits()
  await cluster.during(15 * SECOND)
  assert.equal(await cluster.during(clockConfirmMs - 30 * SECOND), 0)
  assert.ok((await cluster.during(2 * MINUTE)) >= 1)
})

test('a monitor that does not answer delays no launch, and a stop does not wait for it', async () => {
  const cluster = new Cluster()
  await cluster.channel({url: URL, cluster: true})
  const node = await cluster.add('node-a')
  cluster.hangs = true
  await cluster.world.submit(new JobFixture().with({name: 'a', schedule: '@every 20s'}))
  assert.equal(await cluster.during(10 * MINUTE), 10)
  for (const {createdAt, startedAt} of await cluster.world.executions('a'))
    assert.ok(startedAt! - createdAt <= 50, `${startedAt! - createdAt} ms`)
  assert.equal((await cluster.world.store.channels())[0]!.lastError, 'no answer')
  const before = cluster.world.clock.now()
  await cluster.world.clock.until(() => cluster.pings.at(-1)!.at >= before)
  await cluster.world.clock.finish(node.leadership.stop())
  assert.ok(cluster.world.clock.now() - cluster.pings.at(-1)!.at < SECOND)
})
