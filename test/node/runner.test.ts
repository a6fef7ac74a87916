/**
 * Runner over the real store: as many executions at once as there are slots, and none without an active
 * claim.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {executionId} from '../../src/core/execution.ts'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const FOREVER = {ms: Infinity}

/** A world with one server and a job without a schedule. */
async function aServer(settings: Parameters<World['start']>[0] = {}, job = aJob('job').manual()) {
  const world = new World()
  const node = await world.start(settings)
  await world.submit(job)
  return {world, node, executor: node.executor}
}

describe('slots', () => {
  it('limit executions at once; the rest stays pending and is claimed as slots become free', async () => {
    const {world, executor} = await aServer({slots: 4, scripts: {job: FOREVER}})
    for (let launch = 0; launch < 9; launch += 1) await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.running.length, 4)
    assert.deepEqual(await world.statuses('job'), [
      ...Array(4).fill('running'),
      ...Array(5).fill('pending'),
    ])
    assert.deepEqual((await world.store.totals()).pending, 5)
    for (let left = 9; left > 0; left -= 1) {
      assert.equal(executor.running.length, Math.min(4, left))
      executor.running[0]!.end({outcome: 'succeeded'})
      const freedAt = world.clock.monotonicMs()
      await world.clock.advance(5)
      if (left > 4) assert.equal(executor.started.at(-1)!.startedAt, freedAt, 'at once')
    }
    const groups = executor.started.map(({run}) => Number(run.executionId.split('-')[0]))
    assert.deepEqual(
      groups,
      groups.toSorted((a, b) => a - b),
      'in the order asked',
    )
    await world.check(['job'])
  })

  it('stay occupied while the store is behind with results', async () => {
    const {world, node, executor} = await aServer({slots: 2})
    node.fault = (method) => (method === 'finish' ? 'unavailable' : 'none')
    for (let launch = 0; launch < 60; launch += 1) await world.runByHand('job')
    await world.clock.advance(30 * SECOND)
    const piled = executor.started.length
    assert.ok(piled >= 8 && piled <= 12, `${piled} ran without the store taking an end`)
    node.fault = () => 'none'
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.statuses('job'), Array(60).fill('succeeded'))
    await world.check(['job'])
  })
})

describe('claims ahead', () => {
  /**
   * A node with two slots at a store that takes 40 ms for a claim. The first `short` of `count` executions
   * take 50 ms, the others have no end. Resolves when the short ones have started.
   */
  async function underLoad({count, short}: {count: number; short: number}) {
    let started = 0
    const script = () => ({ms: started++ < short ? 50 : Infinity})
    const setup = await aServer({slots: 2, scripts: {job: script}})
    const {world, node, executor} = setup
    node.delayMs = (method) => (method === 'claim' ? 20 : 0)
    for (let launch = 0; launch < count; launch += 1)
      await world.store.requestRun({name: 'job', forced: false, idempotency: null})
    world.notify('launch')
    const tookMs = await world.clock.until(() => executor.started.length >= short)
    return {...setup, short, tookMs}
  }

  /** The executions that are `running` in the store and have not been started. */
  async function ahead({world, executor}: Awaited<ReturnType<typeof underLoad>>) {
    const startedIds = new Set(executor.started.map(({run}) => run.executionId))
    const running = (await world.executions('job')).filter(({status}) => status === 'running')
    return running.filter((execution) => !startedIds.has(executionId(execution)))
  }

  /** Advances until both slots have an execution without an end, and no more is claimed ahead. */
  async function untilAhead(setup: Awaited<ReturnType<typeof underLoad>>) {
    const {world, executor, short} = setup
    await world.clock.until(() => executor.started.length === short + 2)
    // Several claims, and not yet a release.
    await world.clock.advance(200)
    const found = await ahead(setup)
    assert.ok(found.length > 0, 'nothing was claimed ahead')
    return found
  }

  it('keep the slots occupied while a claim is under way', async () => {
    const {world, executor, tookMs} = await underLoad({count: 60, short: 60})
    // Claims that are not ahead would take two executions in 90 ms, hence 2,700 ms in all.
    assert.ok(tookMs < 2_000, `60 executions took ${tookMs} ms`)
    await world.clock.advance(SECOND)
    const starts = executor.started.map(({startedAt}) => startedAt)
    for (const start of starts) {
      const atOnce = executor.started.filter((each) => {
        return each.startedAt <= start && each.endedAt! > start
      })
      assert.ok(atOnce.length <= 2, `${atOnce.length} at once on two slots`)
    }
    await world.check(['job'])
  })

  it('are released if no slot becomes free, and another node runs them', async () => {
    const setup = await underLoad({count: 30, short: 16})
    const {world, node} = setup
    await untilAhead(setup)
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await ahead(setup), [])
    const statuses = await world.statuses('job')
    assert.equal(statuses.filter((status) => status === 'running').length, 2)
    assert.ok(node.calls.get('releaseClaims')! > 0)
    const other = await world.start({name: 'other', incarnation: 'other-1', leads: false})
    await world.clock.advance(30 * SECOND)
    assert.equal(other.executor.started.length, 30 - 16 - 2)
    await world.check(['job'])
  })

  it('are released by a node that drains; none of them is lost', async () => {
    const setup = await underLoad({count: 30, short: 16})
    const {world, node} = setup
    await untilAhead(setup)
    await world.clock.finish(node.runner.drain(SECOND))
    const started = new Set(setup.executor.started.map(({run}) => run.executionId))
    assert.ok(started.size < 30)
    for (const execution of await world.executions('job')) {
      const isStarted = started.has(executionId(execution))
      assert.equal(execution.status === 'pending', !isStarted, executionId(execution))
    }
  })

  it('are released at a cordon, before a slot becomes free', async () => {
    const setup = await underLoad({count: 30, short: 16})
    const {world, node, executor} = setup
    await untilAhead(setup)
    const startedCount = executor.started.length
    await world.clock.finish(
      world.store.setScheduling({nodeId: node.nodeId, change: {kind: 'cordon'}}),
    )
    world.notify('run')
    await world.clock.advance(100)
    assert.deepEqual(await ahead(setup), [])
    for (const running of executor.running) running.end({})
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, startedCount)
    await world.check(['job'])
  })

  it('end when they are cancelled, without a start', async () => {
    const setup = await underLoad({count: 30, short: 16})
    const {world} = setup
    const [waiting] = await untilAhead(setup)
    assert.equal(await world.cancel('job', waiting!), 'requested')
    await world.clock.advance(100)
    const after = (await world.executions('job')).find(({group}) => group === waiting!.group)
    assert.equal(after!.status, 'cancelled')
    await world.clock.advance(10 * SECOND)
    const ids = setup.executor.started.map(({run}) => run.executionId)
    assert.ok(!ids.includes(executionId(waiting!)))
    await world.check(['job'])
  })

  it('are verified before their start if it is unknown whether they were released', async () => {
    const setup = await underLoad({count: 30, short: 16})
    const {world, node, executor} = setup
    await untilAhead(setup)
    let losses = 3
    node.fault = (method) => {
      return method === 'releaseClaims' && losses-- > 0 ? 'answer_lost' : 'none'
    }
    await world.clock.advance(SECOND)
    assert.ok(losses < 3)
    for (const running of executor.running) running.end({})
    executor.script('job', {ms: 20})
    await world.clock.advance(10 * SECOND)
    const ids = executor.started.map(({run}) => run.executionId)
    assert.equal(new Set(ids).size, ids.length, 'none was started twice')
    assert.equal(ids.length, 30)
    await world.check(['job'])
  })
})

describe('a claim', () => {
  it('that took longer than 1 s is verified before its execution starts', async () => {
    const {world, node, executor} = await aServer({scripts: {job: FOREVER}})
    node.delayMs = (method) => (method === 'claim' ? 700 : 0)
    await world.runByHand('job')
    await world.clock.advance(1_300)
    assert.equal(node.calls.get('verifyClaims'), undefined)
    await world.clock.advance(3 * SECOND)
    assert.equal(node.calls.get('verifyClaims'), 1)
    assert.equal(executor.started.length, 1)
  })

  it('that was revoked meanwhile starts nothing', async () => {
    const {world, node, executor} = await aServer()
    node.delayMs = (method) => (method === 'claim' ? 2_500 : 0)
    await world.runByHand('job')
    await world.clock.until(() => node.calls.get('claim') === 2)
    await world.clock.advance(3 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['running'])
    const {nodeId} = node
    const {term} = (await world.store.heldLease())!
    await world.store.markLost({
      term,
      nodeId,
      exceptIncarnation: null,
      observed: null,
      reason: 'node_lost',
      limit: 10,
      jitter: 0,
    })
    node.delayMs = () => 0
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 0)
    assert.deepEqual(await world.statuses('job'), ['lost'])
    await world.check(['job'])
  })

  it('is verified again if the verification took too long', async () => {
    const {world, node, executor} = await aServer()
    const slowMs = new Map([
      ['claim', 700],
      ['verifyClaims', 700],
    ])
    node.delayMs = (method) => slowMs.get(method) ?? 0
    await world.runByHand('job')
    await world.clock.until(() => node.calls.get('verifyClaims') === 1)
    // The store has read the claim, and its reply is in flight.
    await world.clock.advance(SECOND)
    const {nodeId} = node
    const {term} = (await world.store.heldLease())!
    const request = {term, nodeId, exceptIncarnation: null, observed: null} as const
    await world.store.markLost({...request, reason: 'node_lost', limit: 10, jitter: 0})
    slowMs.clear()
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 0)
    assert.deepEqual(await world.statuses('job'), ['lost'])
  })

  it('delays the start while the store cannot verify it', async () => {
    const {world, node, executor} = await aServer()
    node.delayMs = (method) => (method === 'claim' ? 700 : 0)
    node.fault = (method) => (method === 'verifyClaims' ? 'unavailable' : 'none')
    await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 0)
    node.fault = () => 'none'
    await world.clock.advance(2 * SECOND)
    assert.equal(executor.started.length, 1)
    assert.deepEqual(await world.statuses('job'), ['succeeded'])
  })

  it('whose reply was lost is repeated without a double start or a lost execution', async () => {
    const {world, node, executor} = await aServer({slots: 3})
    let losses = 5
    node.fault = (method) => (method === 'claim' && losses-- > 0 ? 'answer_lost' : 'none')
    for (let launch = 0; launch < 10; launch += 1) await world.runByHand('job')
    await world.clock.advance(MINUTE)
    assert.equal(executor.started.length, 10)
    assert.deepEqual(await world.statuses('job'), Array(10).fill('succeeded'))
    await world.check(['job'])
  })

  it('uses the definition at the time of the claim and stores its revision', async () => {
    const {world, executor} = await aServer({slots: 1, scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.runByHand('job')
    await world.submit(
      aJob('job')
        .manual()
        .with({executorConfig: {changed: 'yes'}}),
    )
    executor.running[0]!.end({})
    await world.clock.advance(SECOND)
    assert.deepEqual(
      executor.started.map(({run}) => run.config),
      [{}, {changed: 'yes'}],
    )
    assert.deepEqual(
      (await world.executions('job')).map(({revision}) => revision),
      [1, 2],
    )
  })

  it('is not sent while no slot is free', async () => {
    const {world, node} = await aServer({slots: 1, scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const before = node.calls.get('claim')
    await world.runByHand('job')
    await world.clock.advance(30 * SECOND)
    assert.equal(node.calls.get('claim'), before)
  })

  it('is sent when a retry is due, without a notification', async () => {
    const {world, node, executor} = await aServer({}, aJob('job').manual().retrying(1))
    executor.script('job', {outcome: 'failed'})
    node.wakeup.dropsAll = true
    await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    const [, retry] = await world.executions('job')
    assert.ok(retry!.startedAt! - retry!.notBefore <= 1)
  })
})

describe('a server that was failed while it was alive', () => {
  const keep = aJob('job').manual().retrying(1).tagged({role: 'web:1'})

  async function aClusterWithDisconnectedNode() {
    const world = new World()
    await world.start({name: 'leader', incarnation: 'leader-1'})
    const settings = {tags: {role: 'web'}, leads: false, scripts: {job: FOREVER}}
    const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
    const two = await world.start({...settings, name: 'two', incarnation: 'two-1'})
    await world.submit(keep.with({onDisconnect: 'keep'}))
    await world.runByHand('job')
    await world.clock.until(() => one.executor.started.length + two.executor.started.length === 1)
    const [disconnected, other] = one.executor.started.length === 1 ? [one, two] : [two, one]
    disconnected.fault = () => 'unavailable'
    return {world, disconnected, other}
  }

  it('stops its revoked executions soon after it reconnects, even without output', async () => {
    const {world, disconnected, other} = await aClusterWithDisconnectedNode()
    await world.clock.advance(40 * SECOND)
    assert.deepEqual([disconnected.executor.running.length, other.executor.running.length], [1, 1])
    disconnected.fault = () => 'none'
    await world.clock.advance(10 * SECOND)
    assert.deepEqual([disconnected.executor.running.length, other.executor.running.length], [0, 1])
    assert.deepEqual((await world.statuses('job')).toSorted(), ['lost', 'running'])
    await world.check(['job'])
  })

  it('keeps its executions if no leader failed it meanwhile', async () => {
    const {world, disconnected} = await aClusterWithDisconnectedNode()
    await world.clock.advance(20 * SECOND)
    disconnected.fault = () => 'none'
    await world.clock.advance(MINUTE)
    assert.equal(disconnected.executor.running.length, 1)
    assert.deepEqual(await world.statuses('job'), ['running'])
  })
})

describe('an execution that cannot start', () => {
  for (const [executor, foot] of [
    ['unheard-of', 'not started: this node has no executor called "unheard-of"\n'],
    ['', 'not started: the job has no executor; set "executor", for example to "shell"\n'],
  ] as const) {
    it(`because of executor ${JSON.stringify(executor)} fails, and its output says why`, async () => {
      const {world} = await aServer({}, aJob('job').manual().with({executor}))
      await world.runByHand('job')
      await world.clock.advance(SECOND)
      const [execution] = await world.executions('job')
      assert.deepEqual(
        [execution!.status, execution!.reason, execution!.outputFoot],
        ['failed', 'no_executor', foot],
      )
      await world.check(['job'])
    })
  }
})

describe('a cancel', () => {
  it('ends a pending execution at once; it never starts', async () => {
    const {world, executor} = await aServer({slots: 1, scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.runByHand('job')
    const [, pending] = await world.executions('job')
    assert.equal(await world.cancel('job', pending!), 'requested')
    assert.deepEqual(await world.statuses('job'), ['running', 'cancelled'])
    executor.running[0]!.end({})
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 1)
    await world.check(['job'])
  })

  it('stops a running execution at once by notification, within 1 s by polling', async () => {
    for (const dropsAll of [false, true]) {
      const {world, node} = await aServer({scripts: {job: FOREVER}})
      await world.runByHand('job')
      await world.clock.advance(5 * SECOND)
      node.wakeup.dropsAll = dropsAll
      const [running] = await world.executions('job')
      assert.equal(await world.cancel('job', running!), 'requested')
      const {cancelRequestedAt} = (await world.executions('job'))[0]!
      await world.clock.advance(1_100)
      const [ended] = await world.executions('job')
      assert.equal(ended!.status, 'cancelled')
      assert.ok(ended!.finishedAt! - cancelRequestedAt! <= (dropsAll ? SECOND : 5))
      assert.equal(await world.cancel('job', running!), 'over')
      await world.check(['job'])
    }
  })

  it('reaches the executor once, and its KILL is awaited', async () => {
    const {world, executor} = await aServer({scripts: {job: {ms: Infinity, ignoresTerm: true}}})
    await world.runByHand('job')
    await world.cancel('job', (await world.executions('job'))[0]!)
    await world.clock.advance(9 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['running'])
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['cancelled'])
    assert.equal(executor.started[0]!.kills, 0)
  })

  it('during a backoff ends the pending retry', async () => {
    const {world} = await aServer({}, aJob('job').manual().retrying(3))
    world.nodes[0]!.executor.script('job', {outcome: 'failed'})
    await world.runByHand('job')
    await world.clock.advance(100)
    const [, retry] = await world.executions('job')
    assert.equal(retry!.status, 'pending')
    await world.cancel('job', retry!)
    await world.clock.advance(10 * MINUTE)
    assert.deepEqual(await world.statuses('job'), ['failed', 'cancelled'])
    assert.equal((await world.launches('job'))[0]!.open, false)
    await world.check(['job'])
  })

  it('on one node ends the pending and future retries of the others', async () => {
    const world = new World()
    const scripts = {job: {outcome: 'failed', exitCode: 1}} as const
    await world.start({name: 'a', tags: {role: 'web'}, scripts})
    await world.start({name: 'b', tags: {role: 'web'}, scripts: {job: FOREVER}, leads: false})
    const late = {job: {ms: 3 * SECOND, ...scripts.job}}
    await world.start({name: 'c', tags: {role: 'web'}, scripts: late, leads: false})
    await world.submit(aJob('job').manual().retrying(5).tagged({role: 'web'}))
    await world.runByHand('job')
    await world.clock.advance(300)
    const running = (await world.executions('job')).find(({node}) => node === 'b')
    await world.cancel('job', running!)
    await world.clock.advance(20 * MINUTE)
    const executions = await world.executions('job')
    const of = (name: string) =>
      executions.filter(({node}) => node === name).map(({status}) => status)
    assert.deepEqual(of('a'), ['failed', 'cancelled'])
    assert.deepEqual(of('b'), ['cancelled'])
    assert.deepEqual(of('c'), ['failed'], 'nothing follows it')
    assert.equal((await world.job('job')).status, 'failed')
    await world.check(['job'])
  })
})

describe('a job deleted while it runs', () => {
  it('is stopped on all nodes, leaves nothing, and can be created again as a new job', async () => {
    const {world, executor} = await aServer(
      {scripts: {job: FOREVER}},
      aJob('job').manual().retrying(3),
    )
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    assert.equal((await world.store.deleteJob('job')).kind, 'deleted')
    assert.equal(await world.store.job('job'), null)
    await world.clock.advance(2 * SECOND)
    assert.equal(executor.running.length, 0)
    assert.equal(executor.started[0]!.cancels > 0, true)
    await world.submit(aJob('job').manual())
    await world.clock.advance(10 * SECOND)
    assert.deepEqual(await world.executions('job'), [])
    assert.deepEqual((await world.job('job')).counters.errorCount, 0)
    assert.deepEqual((await world.store.totals()).running, 0)
  })

  it('blocks a new forbid job of the same name until it has ended', async () => {
    const {world, executor} = await aServer({scripts: {job: {ms: Infinity, ignoresTerm: true}}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.store.deleteJob('job')
    await world.submit(aJob('job').every('4s').forbidding())
    await world.clock.advance(9 * SECOND)
    const lines = await world.launchLines('job')
    assert.match(lines[0]!, /skipped forbid/)
    assert.equal(executor.started.length, 1)
    await world.clock.advance(6 * SECOND)
    assert.equal(executor.started.length, 2)
  })
})

describe('draining', () => {
  it('claims nothing more and lets executions finish within the grace period', async () => {
    const {world, node, executor} = await aServer({slots: 2, scripts: {job: {ms: 8 * SECOND}}})
    for (let launch = 0; launch < 4; launch += 1) await world.runByHand('job')
    await world.clock.advance(SECOND)
    const drained = node.runner.drain(30 * SECOND)
    const began = world.clock.monotonicMs()
    await world.clock.finish(drained)
    assert.ok(world.clock.monotonicMs() - began <= 7_010)
    assert.deepEqual(await world.statuses('job'), ['succeeded', 'succeeded', 'pending', 'pending'])
    assert.equal(executor.started.length, 2)
    assert.equal(node.runner.runningCount, 0)
  })

  it('stops executions after the grace period: lost, node_stopped, retried', async () => {
    const job = aJob('job').manual().retrying(1)
    const {world, node} = await aServer({scripts: {job: FOREVER}}, job)
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const drained = node.runner.drain(5 * SECOND)
    await world.clock.advance(4_990)
    assert.deepEqual(await world.statuses('job'), ['running'])
    await world.clock.finish(drained)
    const [execution] = await world.executions('job')
    assert.deepEqual([execution!.status, execution!.reason], ['lost', 'node_stopped'])
    assert.deepEqual(await world.statuses('job'), ['lost', 'pending'])
    assert.equal((await world.launches('job'))[0]!.nodeDeaths, 0)
    await world.check(['job'])
  })

  it('without a grace period kills everything at once', async () => {
    const scripts = {job: {ms: Infinity, ignoresTerm: true}}
    const {world, node, executor} = await aServer({scripts})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const began = world.clock.monotonicMs()
    await world.clock.finish(node.runner.drain(0))
    assert.ok(world.clock.monotonicMs() - began < 100)
    assert.equal(executor.started[0]!.kills, 1)
    assert.deepEqual(await world.statuses('job'), ['lost'])
  })

  it('with an infinite grace period waits without limit, until a force stop', async () => {
    const {world, node} = await aServer({scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    let drained = false
    void node.runner.drain(Infinity).then(() => (drained = true))
    await world.clock.advance(60 * MINUTE)
    assert.equal(drained, false)
    assert.deepEqual(await world.statuses('job'), ['running'])
    node.runner.killAll()
    await world.clock.until(() => drained, 100)
    assert.deepEqual(await world.statuses('job'), ['lost'])
  })

  it('still handles a cancel', async () => {
    const {world, node} = await aServer({scripts: {job: FOREVER}}, aJob('job').manual().retrying(2))
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const drained = node.runner.drain(Infinity)
    await world.cancel('job', (await world.executions('job'))[0]!)
    await world.clock.finish(drained, 2 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['cancelled'])
  })

  it('starts no process for a claim whose reply arrives after the grace period', async () => {
    for (const graceMs of [0, 500]) {
      const {world, node, executor} = await aServer({scripts: {job: FOREVER}})
      node.delayMs = (method) => (method === 'claim' ? 600 : 0)
      await world.clock.advance(2 * SECOND)
      await world.runByHand('job')
      const claims = node.calls.get('claim')!
      await world.clock.until(() => node.calls.get('claim')! > claims)
      await world.clock.finish(node.runner.drain(graceMs))
      assert.equal(executor.started.length, 0)
      const [execution] = await world.executions('job')
      assert.deepEqual([execution!.status, execution!.reason], ['lost', 'node_stopped'])
      assert.match(execution!.outputFoot, /before it was started/)
      await world.check(['job'])
    }
  })

  it('stops executions in time while a claim is in flight at a slow store', async () => {
    const {world, node, executor} = await aServer({slots: 2, scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    node.delayMs = (method) => (method === 'claim' ? 30 * SECOND : 0)
    await world.clock.advance(2 * SECOND)
    void node.runner.drain(5 * SECOND)
    await world.clock.advance(5 * SECOND)
    assert.equal(executor.started[0]!.cancels, 1)
  })

  it('is idempotent, and leaves no timer or subscription', async () => {
    const {world, node} = await aServer({scripts: {job: {ms: 3 * SECOND}}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.clock.finish(
      Promise.all([node.runner.drain(10 * SECOND), node.runner.drain(20 * SECOND)]),
    )
    assert.deepEqual(await world.statuses('job'), ['succeeded'])
    await world.clock.finish(node.stop())
    await world.clock.finish(node.runner.stop())
    await world.clock.advance(MINUTE)
    assert.equal(world.clock.waiting, 0)
    assert.equal(node.wakeup.subscriberCount, 0)
  })
})
