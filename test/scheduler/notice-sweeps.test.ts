/** Sweeps of notices in a cluster: a leader that dies silences nothing, and takeovers tell nothing twice. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {NoticeMessage} from '../../src/core/notice-message.ts'
import {checkedLimits} from '../../src/config/limits.ts'
import {RULE_DEFAULTS, type RuleDefinition} from '../../src/core/notice-rule.ts'
import {Notices} from '../../src/scheduler/notices.ts'
import {StoreWatch} from '../../src/scheduler/store-watch.ts'
import {JobFixture} from '../support/fixtures.ts'
import type {SimulatedNode} from '../support/simulated-node.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** A cluster whose servers send notices to one receiver. */
class Cluster {
  readonly world: World
  readonly arrived: NoticeMessage[] = []
  readonly nodes: SimulatedNode[] = []
  isAway = false

  private constructor(seed: number) {
    this.world = new World(seed)
  }

  static async start(names: readonly string[], rule: Partial<RuleDefinition>): Promise<Cluster> {
    const cluster = new Cluster(names.length)
    for (const name of names) await cluster.add(name)
    await cluster.addRule(rule)
    return cluster
  }

  async add(name: string): Promise<SimulatedNode> {
    const node = await this.world.start({name, incarnation: `${name}-1`})
    this.nodes.push(node)
    const send = async (message: NoticeMessage) => {
      if (this.isAway) return {outcome: 'retry', cause: 'no connection'} as const
      this.arrived.push(message)
      return {outcome: 'sent', cause: ''} as const
    }
    const options = {
      store: node.store,
      clock: this.world.clock,
      random: this.world.random,
      events: node.events,
      wakeup: node.wakeup,
      limits: checkedLimits(),
      clockGuard: node.clockGuard,
      sender: name,
      isLeader: () => node.isLeading,
    }
    const channels = {
      send: (_channel: unknown, message: NoticeMessage) => send(message),
      prepare: async () => send,
    }
    const watch = new StoreWatch({...options, channels})
    new Notices({...options, channels, onWatch: (isNeeded) => watch.watch(isNeeded)}).start()
    watch.start()
    return node
  }

  async addRule(fields: Partial<RuleDefinition>): Promise<void> {
    const {store} = this.world
    const author = {name: 'ops', kind: 'management', policies: []} as const
    const config = {url: 'https://example.org'}
    const channel = {name: 'mail', kind: 'webhook', config, enabled: true}
    await store.putChannel({channel, author, secret: null})
    const definition = {...RULE_DEFAULTS, name: 'rule', to: ['mail'], when: {}, ...fields}
    assert.equal((await store.putRule({definition, author})).kind, 'stored')
    this.world.notify('notices')
  }

  get leader(): SimulatedNode {
    return this.nodes.find(({isLeading}) => isLeading)!
  }

  advance(ms: number): Promise<void> {
    return this.world.clock.advance(ms)
  }

  /** Messages by kind and incident: `opened rule/a/late`. */
  get lines(): readonly string[] {
    return this.arrived.map(({kind, incidents}) => {
      return [kind, ...incidents.map(({key}) => key).toSorted()].join(' ')
    })
  }

  /** Keys of the incidents in messages of the kind. */
  keys(kind: string): readonly string[] {
    return this.arrived
      .filter((message) => message.kind === kind)
      .flatMap(({incidents}) => incidents.map(({key}) => key))
  }

  submit(name: string, schedule: string): Promise<unknown> {
    return this.world.submit(new JobFixture().with({name, schedule}))
  }
}

describe('sweeps of notices in a cluster', () => {
  it('a dead leader and a server that cannot lead: no leader, no success', async () => {
    const cluster = await Cluster.start(['node-a'], {
      when: {no_leader: {}, no_success_for: {for: '30m'}, late: {by: '10m'}},
    })
    // A server that never leads stands for one that is cut off from elections.
    const follower = await cluster.add('node-b')
    await follower.leadership.stop()
    await cluster.submit('a', '@every 20m')
    await cluster.advance(25 * MINUTE)
    assert.deepEqual(cluster.lines, [])
    cluster.nodes[0]!.crash()
    await cluster.advance(65 * SECOND)
    assert.deepEqual(cluster.lines, ['opened rule/cluster/no_leader'])
    await cluster.advance(30 * MINUTE)
    const later = cluster.keys('opened').slice(1)
    assert.deepEqual(later.toSorted(), ['rule/a/late', 'rule/a/no_success_for'])
    await cluster.add('node-c')
    await cluster.advance(5 * MINUTE)
    assert.deepEqual(cluster.keys('closed').toSorted(), [
      'rule/a/late',
      'rule/a/no_success_for',
      'rule/cluster/no_leader',
    ])
    const ids = new Set(cluster.arrived.map(({id}) => id))
    assert.equal(ids.size, cluster.arrived.length, 'no message was sent twice')
  })

  it('takeovers between two sweeps open and close an incident once', async () => {
    for (const killAfterMs of [0, 7_000, 61_000]) {
      const cluster = await Cluster.start(['node-a', 'node-b', 'node-c'], {
        when: {no_success_for: {for: '4m'}, late: {by: '5m'}},
      })
      await cluster.submit('a', '@manually')
      await cluster.advance(4 * MINUTE - SECOND + killAfterMs)
      cluster.leader.crash()
      await cluster.advance(3 * MINUTE)
      assert.deepEqual(cluster.lines, ['opened rule/a/no_success_for'], String(killAfterMs))
      await cluster.world.runByHand('a')
      await cluster.advance(killAfterMs)
      cluster.leader.crash()
      await cluster.advance(3 * MINUTE)
      assert.deepEqual(
        cluster.lines,
        ['opened rule/a/no_success_for', 'closed rule/a/no_success_for'],
        String(killAfterMs),
      )
    }
  })

  it('a success closes it within seconds, and what is expected by a time within a minute', async () => {
    const expected = {schedule: '0 10 12 * * *', timezone: 'UTC', since: '8m'}
    const cluster = await Cluster.start(['node-a'], {when: {expected_by: expected}})
    await cluster.submit('a', '@manually')
    await cluster.advance(10 * MINUTE - SECOND)
    assert.deepEqual(cluster.lines, [])
    await cluster.advance(70 * SECOND)
    assert.deepEqual(cluster.lines, ['opened rule/a/expected_by'])
    await cluster.world.runByHand('a')
    await cluster.advance(70 * SECOND)
    assert.deepEqual(cluster.lines.slice(1), ['closed rule/a/expected_by'])
    await cluster.advance(10 * MINUTE)
    assert.equal(cluster.lines.length, 2)
  })

  it('a store clock that is far ahead makes no job late', async () => {
    const cluster = await Cluster.start(['node-a'], {when: {no_success_for: {for: '20m'}}})
    await cluster.submit('a', '@every 10m')
    await cluster.advance(15 * MINUTE)
    cluster.world.clock.stepWall(3 * DAY)
    await cluster.advance(20 * SECOND)
    assert.deepEqual(cluster.lines, [])
    cluster.world.clock.stepWall(-3 * DAY)
    await cluster.advance(3 * MINUTE)
    assert.deepEqual(cluster.lines, [])
  })

  it('a store that cannot be written: each server tells it once, with the same id', async () => {
    const cluster = await Cluster.start(['node-a', 'node-b'], {when: {store: {}}})
    await cluster.advance(MINUTE)
    for (const node of cluster.nodes)
      node.fault = (method) => (method === 'probe' ? 'unavailable' : 'none')
    await cluster.advance(50 * SECOND)
    assert.deepEqual(cluster.lines, [])
    await cluster.advance(40 * SECOND)
    const opened = 'opened rule/cluster/store'
    assert.deepEqual(cluster.lines, [opened, opened])
    assert.equal(new Set(cluster.arrived.map(({id}) => id)).size, 1)
    await cluster.advance(10 * MINUTE)
    assert.equal(cluster.lines.length, 2)
    for (const node of cluster.nodes) node.fault = () => 'none'
    await cluster.advance(70 * SECOND)
    const closed = 'closed rule/cluster/store'
    assert.deepEqual(cluster.lines.slice(2), [closed, closed])
    assert.equal(new Set(cluster.arrived.map(({id}) => id)).size, 2)
    // The next outage has other ids.
    await cluster.advance(MINUTE)
    cluster.nodes[0]!.fault = (method) => (method === 'probe' ? 'unavailable' : 'none')
    await cluster.advance(2 * MINUTE)
    assert.deepEqual(cluster.lines.slice(4), [opened])
    assert.equal(new Set(cluster.arrived.map(({id}) => id)).size, 3)
  })

  it('while the store and the receiver are away, both messages wait and arrive in order', async () => {
    const cluster = await Cluster.start(['node-a'], {when: {store: {for: '20s'}}})
    await cluster.advance(MINUTE)
    cluster.isAway = true
    const [node] = cluster.nodes
    node!.fault = () => 'unavailable'
    await cluster.advance(10 * MINUTE)
    node!.fault = () => 'none'
    await cluster.advance(10 * MINUTE)
    assert.deepEqual(cluster.lines, [])
    cluster.isAway = false
    await cluster.advance(20 * MINUTE)
    assert.deepEqual(cluster.lines, ['opened rule/cluster/store', 'closed rule/cluster/store'])
  })

  it('without rules a server asks the store once a minute', async () => {
    const cluster = await Cluster.start(['node-a', 'node-b'], {when: {failed: {}}})
    await cluster.world.store.deleteRule('rule')
    await cluster.advance(2 * MINUTE)
    const names = ['noticesDue', 'evaluateNotices', 'claimNotices', 'claimSweep', 'probe'] as const
    const count = () =>
      cluster.nodes.map((node) => names.reduce((sum, name) => sum + (node.calls.get(name) ?? 0), 0))
    const before = count()
    await cluster.advance(10 * MINUTE)
    const calls = count().map((all, index) => all - before[index]!)
    assert.ok(
      calls.every((each) => each <= 11),
      calls.join(),
    )
    // A new rule wakes them.
    await cluster.addRule({when: {no_success_for: {for: '1m'}}, jobs: 'a'})
    await cluster.advance(70 * SECOND)
    assert.deepEqual(cluster.lines, ['opened rule/a/no_success_for'])
  })
})
