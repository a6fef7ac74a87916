/** Notices of a cluster: leaders that are killed, receivers that are away, many jobs that fail at once. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {checkedLimits} from '../../src/config/limits.ts'
import type {DeliveryOutcome} from '../../src/core/notice-delivery.ts'
import type {NoticeMessage} from '../../src/core/notice-message.ts'
import {RULE_DEFAULTS, type RuleDefinition} from '../../src/core/notice-rule.ts'
import {Notices} from '../../src/scheduler/notices.ts'
import {JobFixture} from '../support/fixtures.ts'
import type {Script} from '../support/scripted-executor.ts'
import type {SimulatedNode} from '../support/simulated-node.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

/** The receiver of all channels: it records what arrives, and accepts it unless it is away. */
class Receiver {
  readonly arrived: NoticeMessage[] = []
  /** Attempts while it was away. */
  refused = 0
  isAway = false
  /** Resolves the sends that hang. */
  readonly hanging: (() => void)[] = []
  hangs = false

  async take(message: NoticeMessage): Promise<{outcome: DeliveryOutcome; cause: string}> {
    if (this.isAway) {
      this.refused += 1
      return {outcome: 'retry', cause: 'no connection'}
    }
    this.arrived.push(message)
    if (this.hangs) await new Promise<void>((resolve) => this.hanging.push(resolve))
    return {outcome: 'sent', cause: ''}
  }

  get kinds(): readonly string[] {
    return this.arrived.map(({kind}) => kind)
  }
}

function noticesOf(world: World, node: SimulatedNode, receiver: Receiver): Notices {
  const notices = new Notices({
    store: node.store,
    channels: {send: (_channel, message) => receiver.take(message)},
    clock: world.clock,
    random: world.random,
    events: node.events,
    wakeup: node.wakeup,
    limits: checkedLimits(),
    clockGuard: node.clockGuard,
    sender: node.settings.name,
    isLeader: () => node.isLeading,
  })
  notices.start()
  return notices
}

async function addRule(world: World, fields: Partial<RuleDefinition> = {}): Promise<void> {
  const author = {name: 'ops', kind: 'management', policies: []} as const
  const config = {url: 'https://example.org'}
  const channel = {name: 'mail', kind: 'webhook', config, enabled: true}
  await world.store.putChannel({channel, author, secret: null})
  const rule = {...RULE_DEFAULTS, name: 'rule', to: ['mail'], when: {failed: {}}, ...fields}
  const stored = await world.store.putRule({definition: rule, author})
  assert.equal(stored.kind, 'stored')
  world.notify('notices')
}

function manual(name: string): JobFixture {
  return new JobFixture().with({name, schedule: '@manually'})
}

/** Script that fails while the box says so. */
function switched(box: {fails: boolean}): () => Script {
  return () => (box.fails ? {ms: 10, outcome: 'failed', exitCode: 3} : {ms: 10})
}

describe('notices of a cluster', () => {
  it('red, red, green over two leader kills are two messages; others repeat them', async () => {
    for (const killAfterMs of [0, 500, 4_900, 5_100, 20 * SECOND]) {
      const world = new World(killAfterMs + 1)
      const receiver = new Receiver()
      const box = {fails: true}
      const names = ['node-a', 'node-b', 'node-c']
      const nodes: SimulatedNode[] = []
      for (const name of names) {
        const node = await world.start({
          name,
          incarnation: `${name}-1`,
          scripts: {load: switched(box)},
        })
        nodes.push(node)
        noticesOf(world, node, receiver)
      }
      await addRule(world)
      await world.submit(manual('load'))
      const step = async (fails: boolean, kills: boolean) => {
        box.fails = fails
        await world.runByHand('load')
        await world.clock.advance(SECOND + killAfterMs)
        if (kills) nodes.find(({isLeading}) => isLeading)?.crash()
        await world.clock.advance(30 * SECOND)
      }
      await step(true, true)
      await step(true, true)
      await step(false, false)
      await world.clock.advance(10 * MINUTE)
      const firsts = receiver.arrived.filter(({repeat}) => !repeat)
      const ids = new Set(receiver.arrived.map(({id}) => id))
      assert.equal(ids.size, 2, `${killAfterMs}: ${receiver.kinds.join(' ')}`)
      assert.equal(firsts.length, 2)
      assert.deepEqual(
        firsts.map(({kind}) => kind),
        ['opened', 'closed'],
      )
    }
  })

  it('a server that dies while it sends leaves a message that another one repeats', async () => {
    const world = new World(7)
    const receiver = new Receiver()
    const box = {fails: true}
    const first = await world.start({name: 'node-a', scripts: {load: switched(box)}})
    noticesOf(world, first, receiver)
    await addRule(world)
    await world.submit(manual('load'))
    receiver.hangs = true
    await world.runByHand('load')
    await world.clock.until(() => receiver.arrived.length === 1)
    first.crash()
    receiver.hangs = false
    const second = await world.start({name: 'node-b', incarnation: 'node-b-1'})
    noticesOf(world, second, receiver)
    await world.clock.advance(2 * MINUTE)
    const [sent, again] = receiver.arrived
    assert.equal(receiver.arrived.length, 2)
    assert.deepEqual([again!.id, again!.repeat, again!.attempt], [sent!.id, true, 2])
  })

  it('a receiver that is away for two hours gets all messages, in order', async () => {
    const world = new World(3)
    const receiver = new Receiver()
    const box = {fails: true}
    const node = await world.start({scripts: {load: switched(box)}})
    noticesOf(world, node, receiver)
    await addRule(world, {repeat: '1h'})
    await world.submit(manual('load'))
    receiver.isAway = true
    await world.runByHand('load')
    await world.clock.advance(90 * MINUTE)
    box.fails = false
    await world.runByHand('load')
    await world.clock.advance(30 * MINUTE)
    assert.deepEqual(receiver.arrived, [])
    assert.ok(receiver.refused > 5 && receiver.refused < 40, `${receiver.refused} attempts`)
    receiver.isAway = false
    await world.clock.advance(16 * MINUTE)
    assert.deepEqual(receiver.kinds, ['opened', 'reminder', 'closed'])
  })

  it('no run starts later while a receiver is away', async () => {
    const latest = async (isAway: boolean) => {
      const world = new World(3)
      const receiver = new Receiver()
      receiver.isAway = isAway
      const script = {ms: 10, outcome: 'failed', exitCode: 3} as const
      const node = await world.start({scripts: {load: () => script}})
      noticesOf(world, node, receiver)
      await addRule(world, {repeat: '5m', when: {failed: {}, started: {}}})
      await world.submit(new JobFixture().with({name: 'load', schedule: '@every 30s'}))
      await world.clock.advance(2 * HOUR)
      const page = await world.store.executions('load', {...NEWEST, end: 300})
      const delays = page!.rows.map(({startedAt, createdAt}) => startedAt! - createdAt)
      assert(page!.total > 90, `${page!.total} executions`)
      return {delayMs: Math.max(...delays), refused: receiver.refused}
    }
    const [away, there] = [await latest(true), await latest(false)]
    assert.ok(away.refused > 5, `${away.refused} attempts`)
    assert.ok(away.delayMs <= there.delayMs + 50, `${away.delayMs} ms, not ${there.delayMs} ms`)
  })

  it('5,000 jobs that fail within a minute are at most three messages', async () => {
    const world = new World(6)
    const receiver = new Receiver()
    const node = await world.start({slots: 200, scripts: {}})
    noticesOf(world, node, receiver)
    await addRule(world)
    const names = Array.from({length: 5_000}, (_, index) => `job-${index}`)
    for (const name of names) {
      node.executor.script(name, () => ({ms: 10, outcome: 'failed', exitCode: 3}))
      const {spec} = manual(name)
      await world.store.submit({...REQUEST, spec, runOnCreate: true})
    }
    world.notify('launch')
    await world.clock.advance(5 * MINUTE)
    assert.ok(receiver.arrived.length > 0 && receiver.arrived.length <= 3, receiver.kinds.join(' '))
    const told = receiver.arrived.reduce(
      (sum, {incidents, more}) => sum + incidents.length + more,
      0,
    )
    assert.equal(told, names.length)
  })

  it('200 jobs that are skipped within seconds are at most three messages', async () => {
    const world = new World(5)
    const receiver = new Receiver()
    const node = await world.start()
    noticesOf(world, node, receiver)
    await addRule(world, {when: {skipped: {}}})
    const jobs = Array.from({length: 200}, (_, index) => `job-${index}`)
    for (const name of jobs)
      await world.store.submit({
        ...REQUEST,
        spec: new JobFixture().with({name, schedule: '@every 1h', tags: {zone: 'none'}}).spec,
      })
    await world.clock.advance(HOUR + 12 * MINUTE)
    assert.ok(receiver.arrived.length > 0 && receiver.arrived.length <= 3, receiver.kinds.join(' '))
    const told = receiver.arrived.reduce(
      (sum, {incidents, more}) => sum + incidents.length + more,
      0,
    )
    assert.equal(told, jobs.length)
  })
})

const NEWEST = {start: 0, sort: 'id', order: 'desc', status: null, outputBytes: 0} as const
const REQUEST = {ifMatch: null, createOnly: false, idempotency: null, runOnCreate: false} as const
