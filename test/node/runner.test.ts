/**
 * The run step over the real store: as much at once as there are slots, nothing without a claim
 * that still stands.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const FOREVER = {ms: Infinity}

/** A world with one server and a job that is only run by hand. */
async function aServer(settings: Parameters<World['start']>[0] = {}, job = aJob('job').manual()) {
  const world = new World()
  const life = await world.start(settings)
  await world.submit(job)
  return {world, life, executor: life.executor}
}

describe('slots', () => {
  it('bound what runs at once; the rest waits visibly and is claimed as slots come free', async () => {
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

  it('are held until the store has the end, when ends pile up', async () => {
    const {world, life, executor} = await aServer({slots: 2})
    life.fault = (method) => (method === 'finish' ? 'unavailable' : 'none')
    for (let launch = 0; launch < 60; launch += 1) await world.runByHand('job')
    await world.clock.advance(30 * SECOND)
    const piled = executor.started.length
    assert.ok(piled >= 8 && piled <= 12, `${piled} ran without the store taking an end`)
    life.fault = () => 'none'
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.statuses('job'), Array(60).fill('succeeded'))
    await world.check(['job'])
  })
})

describe('a claim', () => {
  it('that took longer than a second is verified before anything starts', async () => {
    const {world, life, executor} = await aServer({scripts: {job: FOREVER}})
    life.delayMs = (method) => (method === 'claim' ? 700 : 0)
    await world.runByHand('job')
    await world.clock.advance(1_300)
    assert.equal(life.calls.get('verifyClaims'), undefined)
    await world.clock.advance(3 * SECOND)
    assert.equal(life.calls.get('verifyClaims'), 1)
    assert.equal(executor.started.length, 1)
  })

  it('that was lost meanwhile starts nothing', async () => {
    const {world, life, executor} = await aServer()
    life.delayMs = (method) => (method === 'claim' ? 2_500 : 0)
    await world.runByHand('job')
    await world.clock.until(() => life.calls.get('claim') === 2)
    await world.clock.advance(3 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['running'])
    const {nodeId} = life
    await world.store.rescue({
      term: null,
      nodeId,
      exceptIncarnation: null,
      observed: null,
      reason: 'node_lost',
      limit: 10,
      jitter: 0,
    })
    life.delayMs = () => 0
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 0)
    assert.deepEqual(await world.statuses('job'), ['lost'])
    await world.check(['job'])
  })

  it('whose verification took too long is verified again', async () => {
    const {world, life, executor} = await aServer()
    const slowMs = new Map([
      ['claim', 700],
      ['verifyClaims', 700],
    ])
    life.delayMs = (method) => slowMs.get(method) ?? 0
    await world.runByHand('job')
    await world.clock.until(() => life.calls.get('verifyClaims') === 1)
    // The store has looked, the answer is under way.
    await world.clock.advance(SECOND)
    const {nodeId} = life
    const lives = {term: null, nodeId, exceptIncarnation: null, observed: null} as const
    await world.store.rescue({...lives, reason: 'node_lost', limit: 10, jitter: 0})
    slowMs.clear()
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 0)
    assert.deepEqual(await world.statuses('job'), ['lost'])
  })

  it('waits with the start while the store cannot say whether it stands', async () => {
    const {world, life, executor} = await aServer()
    life.delayMs = (method) => (method === 'claim' ? 700 : 0)
    life.fault = (method) => (method === 'verifyClaims' ? 'unavailable' : 'none')
    await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    assert.equal(executor.started.length, 0)
    life.fault = () => 'none'
    await world.clock.advance(2 * SECOND)
    assert.equal(executor.started.length, 1)
    assert.deepEqual(await world.statuses('job'), ['succeeded'])
  })

  it('whose answer was lost is repeated, not doubled, and no execution is forgotten', async () => {
    const {world, life, executor} = await aServer({slots: 3})
    let losses = 5
    life.fault = (method) => (method === 'claim' && losses-- > 0 ? 'answer_lost' : 'none')
    for (let launch = 0; launch < 10; launch += 1) await world.runByHand('job')
    await world.clock.advance(MINUTE)
    assert.equal(executor.started.length, 10)
    assert.deepEqual(await world.statuses('job'), Array(10).fill('succeeded'))
    await world.check(['job'])
  })

  it('takes the definition as it stands then, and says which', async () => {
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

  it('is not asked for while there is no room', async () => {
    const {world, life} = await aServer({slots: 1, scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const before = life.calls.get('claim')
    await world.runByHand('job')
    await world.clock.advance(30 * SECOND)
    assert.equal(life.calls.get('claim'), before)
  })

  it('comes at the time a retry is due, without a bell', async () => {
    const {world, life, executor} = await aServer({}, aJob('job').manual().retrying(1))
    executor.script('job', {outcome: 'failed'})
    life.wakeup.dropsAll = true
    await world.runByHand('job')
    await world.clock.advance(10 * SECOND)
    const [, retry] = await world.executions('job')
    assert.ok(retry!.startedAt! - retry!.notBefore <= 1)
  })
})

describe('a server that was given up and lives', () => {
  const keep = aJob('job').manual().retrying(1).tagged({role: 'web:1'})

  async function aCutOff() {
    const world = new World()
    await world.start({name: 'leader', incarnation: 'leader-1'})
    const settings = {tags: {role: 'web'}, leads: false, scripts: {job: FOREVER}}
    const one = await world.start({...settings, name: 'one', incarnation: 'one-1'})
    const two = await world.start({...settings, name: 'two', incarnation: 'two-1'})
    await world.submit(keep.with({onDisconnect: 'keep'}))
    await world.runByHand('job')
    await world.clock.until(() => one.executor.started.length + two.executor.started.length === 1)
    const [cut, other] = one.executor.started.length === 1 ? [one, two] : [two, one]
    cut.fault = () => 'unavailable'
    return {world, cut, other}
  }

  it('ends what it still runs soon after it is back, also without a word of output', async () => {
    const {world, cut, other} = await aCutOff()
    await world.clock.advance(40 * SECOND)
    assert.deepEqual([cut.executor.running.length, other.executor.running.length], [1, 1])
    cut.fault = () => 'none'
    await world.clock.advance(10 * SECOND)
    assert.deepEqual([cut.executor.running.length, other.executor.running.length], [0, 1])
    assert.deepEqual((await world.statuses('job')).toSorted(), ['lost', 'running'])
    await world.check(['job'])
  })

  it('but not when nobody gave it up meanwhile', async () => {
    const {world, cut} = await aCutOff()
    await world.clock.advance(20 * SECOND)
    cut.fault = () => 'none'
    await world.clock.advance(MINUTE)
    assert.equal(cut.executor.running.length, 1)
    assert.deepEqual(await world.statuses('job'), ['running'])
  })
})

describe('what cannot run', () => {
  for (const [executor, foot] of [
    ['unheard-of', 'not started: this node has no executor called "unheard-of"\n'],
    ['', 'not started: the job has no executor; set "executor", for example to "shell"\n'],
  ] as const) {
    it(`by executor ${JSON.stringify(executor)} fails and says why`, async () => {
      const {world} = await aServer({}, aJob('job').manual().with({executor}))
      await world.runByHand('job')
      await world.clock.advance(SECOND)
      const [execution] = await world.executions('job')
      assert.deepEqual([execution!.status, execution!.outputFoot], ['failed', foot])
      await world.check(['job'])
    })
  }
})

describe('a cancel', () => {
  it('ends a pending execution at once, which then never starts', async () => {
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

  it('ends a running one at once by the bell, within a second without', async () => {
    for (const dropsAll of [false, true]) {
      const {world, life} = await aServer({scripts: {job: FOREVER}})
      await world.runByHand('job')
      await world.clock.advance(5 * SECOND)
      life.wakeup.dropsAll = dropsAll
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

  it('is asked of the executor once, and its KILL is waited for', async () => {
    const {world, executor} = await aServer({scripts: {job: {ms: Infinity, ignoresTerm: true}}})
    await world.runByHand('job')
    await world.cancel('job', (await world.executions('job'))[0]!)
    await world.clock.advance(9 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['running'])
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['cancelled'])
    assert.equal(executor.started[0]!.kills, 0)
  })

  it('during a backoff ends the waiting retry', async () => {
    const {world} = await aServer({}, aJob('job').manual().retrying(3))
    world.lives[0]!.executor.script('job', {outcome: 'failed'})
    await world.runByHand('job')
    await world.clock.advance(100)
    const [, retry] = await world.executions('job')
    assert.equal(retry!.status, 'pending')
    await world.cancel('job', retry!)
    await world.clock.advance(10 * MINUTE)
    assert.deepEqual(await world.statuses('job'), ['failed', 'cancelled'])
    assert.equal((await world.ledger('job'))[0]!.open, false)
    await world.check(['job'])
  })

  it('of one node ends the retries of the others, waiting and to come', async () => {
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
  it('is ended wherever it runs, leaves nothing, and comes back as another job', async () => {
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

  it('is waited for by a forbid job of the same name', async () => {
    const {world, executor} = await aServer({scripts: {job: {ms: Infinity, ignoresTerm: true}}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.store.deleteJob('job')
    await world.submit(aJob('job').every('4s').forbidding())
    await world.clock.advance(9 * SECOND)
    const lines = await world.ledgerLines('job')
    assert.match(lines[0]!, /skipped forbid/)
    assert.equal(executor.started.length, 1)
    await world.clock.advance(6 * SECOND)
    assert.equal(executor.started.length, 2)
  })
})

describe('draining', () => {
  it('takes nothing new and lets running work finish within the grace', async () => {
    const {world, life, executor} = await aServer({slots: 2, scripts: {job: {ms: 8 * SECOND}}})
    for (let launch = 0; launch < 4; launch += 1) await world.runByHand('job')
    await world.clock.advance(SECOND)
    const drained = life.run.drain(30 * SECOND)
    const began = world.clock.monotonicMs()
    await world.clock.finish(drained)
    assert.ok(world.clock.monotonicMs() - began <= 7_010)
    assert.deepEqual(await world.statuses('job'), ['succeeded', 'succeeded', 'pending', 'pending'])
    assert.equal(executor.started.length, 2)
    assert.equal(life.run.runningCount, 0)
  })

  it('ends what the grace did not suffice for: lost, node_stopped, retried', async () => {
    const job = aJob('job').manual().retrying(1)
    const {world, life} = await aServer({scripts: {job: FOREVER}}, job)
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const drained = life.run.drain(5 * SECOND)
    await world.clock.advance(4_990)
    assert.deepEqual(await world.statuses('job'), ['running'])
    await world.clock.finish(drained)
    const [execution] = await world.executions('job')
    assert.deepEqual([execution!.status, execution!.reason], ['lost', 'node_stopped'])
    assert.deepEqual(await world.statuses('job'), ['lost', 'pending'])
    assert.equal((await world.ledger('job'))[0]!.nodeDeaths, 0)
    await world.check(['job'])
  })

  it('with no grace ends everything at once', async () => {
    const scripts = {job: {ms: Infinity, ignoresTerm: true}}
    const {world, life, executor} = await aServer({scripts})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const began = world.clock.monotonicMs()
    await world.clock.finish(life.run.drain(0))
    assert.ok(world.clock.monotonicMs() - began < 100)
    assert.equal(executor.started[0]!.kills, 1)
    assert.deepEqual(await world.statuses('job'), ['lost'])
  })

  it('with endless grace waits as long as it takes, and can still be hurried', async () => {
    const {world, life} = await aServer({scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    let drained = false
    void life.run.drain(Infinity).then(() => (drained = true))
    await world.clock.advance(60 * MINUTE)
    assert.equal(drained, false)
    assert.deepEqual(await world.statuses('job'), ['running'])
    life.run.killAll()
    await world.clock.until(() => drained, 100)
    assert.deepEqual(await world.statuses('job'), ['lost'])
  })

  it('still obeys a cancel', async () => {
    const {world, life} = await aServer({scripts: {job: FOREVER}}, aJob('job').manual().retrying(2))
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    const drained = life.run.drain(Infinity)
    await world.cancel('job', (await world.executions('job'))[0]!)
    await world.clock.finish(drained, 2 * SECOND)
    assert.deepEqual(await world.statuses('job'), ['cancelled'])
  })

  it('starts no process for a claim that comes back after the grace', async () => {
    for (const graceMs of [0, 500]) {
      const {world, life, executor} = await aServer({scripts: {job: FOREVER}})
      life.delayMs = (method) => (method === 'claim' ? 600 : 0)
      await world.clock.advance(2 * SECOND)
      await world.runByHand('job')
      const claims = life.calls.get('claim')!
      await world.clock.until(() => life.calls.get('claim')! > claims)
      await world.clock.finish(life.run.drain(graceMs))
      assert.equal(executor.started.length, 0)
      const [execution] = await world.executions('job')
      assert.deepEqual([execution!.status, execution!.reason], ['lost', 'node_stopped'])
      assert.match(execution!.outputFoot, /before it was started/)
      await world.check(['job'])
    }
  })

  it('ends running work in time however slow the store is to answer a claim', async () => {
    const {world, life, executor} = await aServer({slots: 2, scripts: {job: FOREVER}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    life.delayMs = (method) => (method === 'claim' ? 30 * SECOND : 0)
    await world.clock.advance(2 * SECOND)
    void life.run.drain(5 * SECOND)
    await world.clock.advance(5 * SECOND)
    assert.equal(executor.started[0]!.cancels, 1)
  })

  it('is safe to ask again, and a stop leaves no timer', async () => {
    const {world, life} = await aServer({scripts: {job: {ms: 3 * SECOND}}})
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.clock.finish(
      Promise.all([life.run.drain(10 * SECOND), life.run.drain(20 * SECOND)]),
    )
    assert.deepEqual(await world.statuses('job'), ['succeeded'])
    await world.clock.finish(life.stop())
    await world.clock.finish(life.run.stop())
    await world.clock.advance(MINUTE)
    assert.equal(world.clock.waiting, 0)
    assert.equal(life.wakeup.listening, 0)
  })
})
