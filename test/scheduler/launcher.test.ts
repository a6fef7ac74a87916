/**
 * The launch step over the real store: planned times and requests become rows, punctually, once,
 * and by policy.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {CatchUp} from '../../src/core/job.ts'
import {TermOver} from '../../src/ports/store-errors.ts'
import {aJob, NOON} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

describe('planned times', () => {
  it('are launched on the millisecond, when nobody rings too', async () => {
    const world = new World()
    const life = await world.start()
    life.wakeup.dropsAll = true
    await world.submit(aJob('every').every('7s'))
    await world.submit(aJob('cron').scheduled('*/20 * * * * *'))
    await world.clock.advance(2 * MINUTE)
    for (const name of ['every', 'cron']) {
      const rows = await world.ledger(name)
      assert.equal(rows.length, name === 'every' ? 17 : 6)
      for (const row of rows) {
        assert.equal(row.decision, 'launched')
        assert.equal(row.decidedAt, row.scheduledAt)
      }
    }
    await world.check(['every', 'cron'])
  })

  it('cost nothing while nothing is due: a look a second, whatever is planned', async () => {
    const world = new World()
    const life = await world.start()
    for (let job = 0; job < 50; job += 1) await world.submit(aJob(`job-${job}`).every('10h'))
    const before = life.calls.get('loadDue')!
    await world.clock.advance(100 * SECOND)
    const looks = life.calls.get('loadDue')! - before
    assert.ok(looks >= 99 && looks <= 102, `${looks} looks`)
    assert.equal(life.calls.get('applyLaunches'), undefined)
  })

  it('of many jobs due at once are all launched, batch by batch', async () => {
    const world = new World()
    const life = await world.start({launchBatchMax: 10, slots: 100})
    for (let job = 0; job < 45; job += 1)
      await world.submit(aJob(`job-${job}`).scheduled('0 * * * * *'))
    await world.clock.advance(MINUTE)
    assert.equal(life.calls.get('applyLaunches'), 5)
    for (let job = 0; job < 45; job += 1)
      assert.deepEqual(await world.ledgerLines(`job-${job}`), ['12:01:00 launched'])
  })

  it('wake the pass by a bell when they come sooner than it thought', async () => {
    const world = new World()
    const life = await world.start()
    await world.clock.advance(300)
    await world.runByHand((await world.submit(aJob('hand').manual())).spec.name)
    assert.equal(world.clock.monotonicMs(), 300)
    await world.clock.settle()
    assert.equal(life.executor.of('hand')[0]!.startedAt, 300)
  })
})

describe('catch-up after an outage', () => {
  async function off(ms: number, catchUp: CatchUp, maxLateness: string, forbid = false) {
    const world = new World()
    const first = await world.start()
    const job = aJob('job').scheduled('0 * * * * *').catchingUp(catchUp, maxLateness)
    await world.submit(forbid ? job.forbidding() : job)
    await world.clock.advance(90 * SECOND)
    first.crash()
    world.clock.sleep(ms)
    const life = await world.start({incarnation: 'second-life'})
    await world.clock.settle()
    return {world, life}
  }

  it('latest: the newest missed one, once', async () => {
    const {world} = await off(10 * MINUTE + SECOND, 'latest', '24h')
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:10:00 ×9 missed catch_up_latest',
      '12:11:00 launched',
    ])
    await world.check(['job'])
  })

  it('skip: none, and the late one within thirty seconds still runs', async () => {
    const {world} = await off(10 * MINUTE - 20 * SECOND, 'skip', '24h')
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:10:00 ×9 missed catch_up_skip',
      '12:11:00 launched',
    ])
  })

  it('all: those within max_lateness, oldest first', async () => {
    const {world, life} = await off(10 * MINUTE, 'all', '3m')
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:08:00 ×7 missed max_lateness',
      '12:09:00 launched',
      '12:10:00 launched',
      '12:11:00 launched',
    ])
    const scheduled = life.executor.of('job').map(({run}) => run.scheduledAt)
    assert.deepEqual(
      scheduled,
      scheduled.toSorted((one, other) => one - other),
    )
  })

  it('all under forbid: one after another, none skipped, in order', async () => {
    const world = new World()
    const first = await world.start()
    await world.submit(aJob('job').scheduled('0 * * * * *').catchingUp('all').forbidding())
    await world.clock.advance(90 * SECOND)
    first.crash()
    world.clock.sleep(5 * MINUTE + SECOND)
    const scripts = {job: {ms: 4 * SECOND}}
    const life = await world.start({incarnation: 'second-life', scripts})
    await world.clock.advance(SECOND)
    assert.deepEqual(await world.ledgerLines('job'), [
      '12:01:00 launched',
      '12:02:00 launched',
      '12:03:00 pending waits_for_open',
      '12:04:00 pending waits_for_open',
      '12:05:00 pending waits_for_open',
      '12:06:00 pending waits_for_open',
    ])
    await world.clock.advance(25 * SECOND)
    const runs = life.executor.of('job')
    assert.equal(runs.length, 5)
    runs.slice(1).forEach((run, index) => {
      assert.ok(run.startedAt >= runs[index]!.endedAt!, 'never two at once')
      assert.ok(run.startedAt - runs[index]!.endedAt! < 300, 'and soon after the one before')
      assert.ok(run.run.scheduledAt > runs[index]!.run.scheduledAt)
    })
    await world.check(['job'])
  })

  it('a week of seconds costs arithmetic: few rows, few calls', async () => {
    for (const catchUp of ['latest', 'skip', 'all'] as const) {
      const world = new World()
      const first = await world.start()
      await world.submit(aJob('job').every('1s').catchingUp(catchUp, '400d'))
      await world.clock.advance(3 * SECOND)
      first.crash()
      world.clock.sleep(7 * DAY)
      const life = await world.start({incarnation: 'second-life', slots: 500})
      await world.clock.settle()
      const rows = await world.ledger('job')
      const launched = {latest: 1, skip: 0, all: 100}[catchUp] + 31
      const since = rows.filter(({scheduledAt}) => scheduledAt > NOON + 3 * SECOND)
      assert.equal(since.filter(({decision}) => decision === 'launched').length, launched)
      assert.equal(since.filter(({decision}) => decision === 'missed').length, 1)
      assert.ok(life.calls.get('applyLaunches')! <= 2)
      await world.clock.advance(10 * SECOND)
      await world.check(['job'])
      const times = (await world.ledger('job')).reduce((sum, {count}) => sum + count, 0)
      assert.equal(times, (7 * DAY) / SECOND + 13)
    }
  })

  it('keeps the phase of @every', async () => {
    const world = new World(1, NOON + 321)
    const first = await world.start()
    await world.submit(aJob('job').every('7s').catchingUp('skip'))
    await world.clock.advance(20 * SECOND)
    first.crash()
    world.clock.sleep(HOUR + 1_234)
    await world.start({incarnation: 'second-life'})
    await world.clock.advance(20 * SECOND)
    for (const {scheduledAt} of await world.ledger('job'))
      assert.equal((scheduledAt - NOON) % (7 * SECOND), 0)
    await world.check(['job'])
  })

  it('takes a wall clock that jumps forward for an outage', async () => {
    const world = new World()
    await world.start()
    await world.submit(aJob('job').scheduled('0 * * * * *').catchingUp('skip'))
    await world.clock.advance(90 * SECOND)
    world.clock.stepWall(5 * MINUTE + 5 * SECOND)
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:06:00 ×5 missed catch_up_skip',
    ])
    await world.check(['job'])
  })

  it('of a past @at submitted now runs it at once', async () => {
    const world = new World()
    await world.start()
    await world.submit(aJob('job').scheduled('@at 2026-03-01T11:00:00Z'))
    assert.deepEqual(await world.ledgerLines('job'), ['11:00:00 launched'])
    assert.equal((await world.job('job')).nextAt, null)
  })
})

describe('forbid', () => {
  it('skips a planned time while a launch is open, saying which, and goes on after', async () => {
    const world = new World()
    const life = await world.start()
    life.executor.script('job', {ms: 25 * SECOND})
    await world.submit(aJob('job').every('10s').forbidding())
    await world.clock.advance(45 * SECOND)
    const [first] = await world.ledger('job')
    assert.deepEqual(await world.ledgerLines('job'), [
      '12:00:10 launched',
      `12:00:20..12:00:30 ×2 skipped forbid: launch ${first!.group} is still open`,
      '12:00:40 launched',
    ])
    await world.check(['job'])
  })

  it('counts a launch as open while a retry is owed', async () => {
    const world = new World()
    const life = await world.start()
    life.executor.script('job', ({attempt}) => ({outcome: attempt < 4 ? 'failed' : 'succeeded'}))
    await world.submit(aJob('job').every('3s').forbidding().retrying(5))
    await world.clock.advance(12 * SECOND)
    const lines = await world.ledgerLines('job')
    assert.equal(lines[0], '12:00:03 launched')
    assert.match(lines[1]!, /^12:00:06..12:00:09 ×2 skipped forbid: launch \d+ is still open$/)
    assert.equal(lines[2], '12:00:12 launched')
    await world.check(['job'])
  })

  it('answers a run by hand 409 while a launch is open, and skips one that raced past it', async () => {
    const world = new World()
    const life = await world.start()
    life.executor.script('job', {ms: 30 * SECOND})
    await world.submit(aJob('job').manual().forbidding())
    // Both asked before the leader decided either.
    const ask = () => world.store.requestRun({name: 'job', forced: false, idempotency: null})
    const one = await ask()
    assert.equal(one.kind, 'accepted')
    const two = await ask()
    const groups = [one, two].flatMap((result) =>
      result.kind === 'accepted' ? [result.group] : [],
    )
    world.ring('launch')
    await world.clock.advance(SECOND)
    const third = await ask()
    assert.deepEqual(third, {kind: 'forbidden', openGroup: groups[0]})
    const rows = await world.ledger('job')
    assert.equal(rows[0]!.decision, 'launched')
    for (const row of rows.slice(1)) {
      assert.deepEqual(
        [row.decision, row.reason],
        ['skipped', `forbid: launch ${groups[0]} is still open`],
      )
    }
    assert.equal(life.executor.of('job').length, 1)
  })

  it('lets force past it', async () => {
    const world = new World()
    const life = await world.start()
    life.executor.script('job', {ms: 30 * SECOND})
    await world.submit(aJob('job').manual().forbidding())
    world.overlapping.add('job')
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.runByHand('job', true)
    assert.equal(life.executor.running.length, 2)
    await world.clock.advance(MINUTE)
    await world.check(['job'])
  })
})

describe('a launch without a matching node', () => {
  const tagged = aJob('job').scheduled('@at 2026-03-01T12:00:05Z').tagged({role: 'web'})

  it('waits visibly and takes the first that appears', async () => {
    const world = new World()
    await world.start()
    await world.submit(tagged)
    await world.clock.advance(5 * MINUTE)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:05 pending waits_for_node'])
    const web = await world.start({name: 'web', tags: {role: 'web'}, leads: false})
    await world.clock.advance(3 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:05 launched'])
    assert.equal(web.executor.of('job').length, 1)
    await world.check(['job'])
  })

  it('holds up neither what is due nor who asks for a run, however many wait', async () => {
    const world = new World()
    const life = await world.start({launchBatchMax: 5})
    await world.submit(aJob('waits').manual().tagged({role: 'web'}))
    await world.submit(aJob('hand').manual())
    await world.submit(aJob('due').every('1s'))
    for (let request = 0; request < 100; request += 1) await world.runByHand('waits')
    // Each page of those that wait takes a tenth of a second, all of them two seconds.
    life.delayMs = (method) => (method === 'loadRequests' ? 50 : 0)
    await world.clock.advance(MINUTE)
    const waits = (await world.ledger('due'))
      .slice(-50)
      .map((row) => row.decidedAt! - row.scheduledAt)
    assert.ok(Math.max(...waits) <= 200, `${Math.max(...waits)} ms after its time`)
    for (let run = 0; run < 10; run += 1) {
      const group = await world.runByHand('hand')
      const {clock} = world
      const asked = clock.monotonicMs()
      await clock.until(() => life.executor.of('hand').length > run)
      const tookMs = clock.monotonicMs() - asked
      assert.ok(tookMs <= 400, `launch ${group} began ${tookMs} ms after it was asked for`)
      await clock.advance(330)
    }
    const late = await world.start({name: 'late', incarnation: 'late-1', tags: {role: 'web'}})
    await world.clock.advance(10 * SECOND)
    assert.equal(late.executor.of('waits').length, 100, 'and all of them are looked at')
    await world.check(['due', 'hand', 'waits'])
  })

  it('is given up after the wait, for good', async () => {
    const world = new World()
    await world.start({targetWaitMs: 2 * MINUTE})
    await world.submit(tagged)
    await world.submit(aJob('hand').manual().tagged({role: 'web'}))
    await world.runByHand('hand')
    await world.clock.advance(2 * MINUTE)
    assert.match((await world.ledgerLines('job'))[0]!, /pending waits_for_node/)
    await world.clock.advance(8 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:05 skipped no_target'])
    assert.deepEqual(await world.ledgerLines('hand'), ['12:00:00 skipped no_target'])
    await world.start({name: 'web', tags: {role: 'web'}, leads: false})
    await world.clock.advance(MINUTE)
    assert.deepEqual(world.starts('job'), [])
    await world.check(['job', 'hand'])
  })

  it('never waits past max_lateness', async () => {
    const world = new World()
    await world.start()
    await world.submit(tagged.catchingUp('latest', '30s'))
    await world.clock.advance(40 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:05 missed max_lateness'])
  })

  it('is skipped when the job is disabled meanwhile', async () => {
    const world = new World()
    await world.start()
    await world.submit(tagged)
    await world.clock.advance(30 * SECOND)
    await world.store.toggle('job')
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:05 skipped disabled'])
  })
})

describe('a definition that changes', () => {
  it('acts at once: the old schedule fires no more', async () => {
    const world = new World()
    const life = await world.start()
    await world.submit(aJob('job').every('10s'))
    await world.clock.advance(9_999)
    await world.submit(aJob('job').every('1h'))
    await world.clock.advance(MINUTE)
    assert.equal(life.executor.started.length, 0)
    assert.deepEqual(await world.ledgerLines('job'), [])
  })

  it('between the look and the decision makes the decision a conflict, decided anew', async () => {
    const world = new World()
    const life = await world.start()
    await world.submit(aJob('job').every('10s'))
    life.delayMs = (method) => (method === 'candidates' ? 200 : 0)
    await world.clock.advance(10_100)
    assert.equal(life.calls.get('applyLaunches'), undefined)
    await world.submit(aJob('job').every('10s').with({displayname: 'changed'}))
    life.delayMs = () => 0
    await world.clock.advance(SECOND)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:10 launched'])
    assert.equal((await world.executions('job'))[0]!.revision, 2)
    await world.check(['job'])
  })

  it('records what a disabled job was due for, and nothing while it is off', async () => {
    const world = new World()
    const first = await world.start()
    await world.submit(aJob('job').every('10s'))
    first.crash()
    world.clock.sleep(35 * SECOND)
    await world.store.toggle('job')
    await world.start({incarnation: 'second-life'})
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:10..12:00:30 ×3 missed disabled'])
    await world.store.toggle('job')
    world.ring('launch')
    await world.clock.advance(10 * SECOND)
    assert.equal((await world.ledgerLines('job')).at(-1), '12:01:40 launched')
  })
})

describe('two leaders', () => {
  it('of different terms: the older one is refused and its services told', async () => {
    const world = new World()
    const old = await world.start()
    await world.submit(aJob('job').every('10s'))
    await world.clock.advance(10 * SECOND)
    let over = 0
    // As after a pause: the lease went to another, and this one does not know.
    const lease = await world.store.acquireLease({
      holder: old.settings.incarnation,
      nodeId: 'x',
      ttlMs: 60_000,
    })
    const services = old.leaderServices(lease!.term - 1, () => (over += 1))
    await old.leadership.stop()
    for (const service of services) service.start()
    await world.clock.advance(15 * SECOND)
    assert.ok(over > 0)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:10 launched'])
    await Promise.all(services.map((service) => service.stop()))
    await assert.rejects(
      world.store.applyLaunches({term: lease!.term - 1, dues: [], requests: []}),
      TermOver,
    )
  })

  it('of the same term still never launch a planned time or a request twice', async () => {
    const world = new World()
    const node = await world.start({slots: 1_000})
    const second = await world.start({name: 'node-b', leads: false})
    await world.clock.settle()
    const services = second.leaderServices(node.leadership.term!, () => assert.fail('in force'))
    // Slow enough that both load the same work before either applies it.
    node.delayMs = (method) => (method === 'candidates' ? world.random.between(0, 40) : 0)
    second.delayMs = node.delayMs
    for (const service of services) service.start()
    const names = ['a', 'b', 'c', 'd']
    for (const name of names) await world.submit(aJob(name).every('1s'))
    await world.submit(aJob('only').every('1s').forbidding())
    await world.submit(aJob('hand').manual())
    for (let second = 0; second < 60; second += 1) {
      await world.runByHand('hand')
      await world.clock.advance(SECOND)
    }
    await world.clock.advance(SECOND)
    for (const name of names) {
      const rows = await world.ledger(name)
      assert.equal(new Set(rows.map(({scheduledAt}) => scheduledAt)).size, rows.length)
      assert.ok(rows.length >= 60)
      assert.equal(world.starts(name).length, rows.length)
    }
    assert.equal(world.starts('hand').length, 60)
    await world.check([...names, 'only', 'hand'])
    await world.clock.finish(Promise.all(services.map((service) => service.stop())))
  })
})

describe('the launch service', () => {
  it('sees a request that was committed after one with a larger number soon', async () => {
    const world = new World()
    const life = await world.start()
    const {loadRequests} = life.store
    await world.submit(aJob('early').manual())
    await world.submit(aJob('late').manual())
    await world.clock.advance(10 * SECOND)
    const hidden = new Set<string>(['early'])
    life.store.loadRequests = async (request) => {
      const {now, requests} = await loadRequests(request)
      return {now, requests: requests.filter(({job}) => !hidden.has(job.spec.name))}
    }
    await world.runByHand('early')
    await world.runByHand('late')
    await world.clock.advance(10)
    assert.equal(life.executor.of('late').length, 1)
    hidden.clear()
    life.wakeup.notify('launch')
    await world.clock.advance(10)
    assert.equal(life.executor.of('early').length, 0, 'looked for above the number last seen')
    await world.clock.advance(300)
    assert.equal(life.executor.of('early').length, 1)
  })

  it('lets nodes look when a launch was stored by a try whose answer was lost', async () => {
    const world = new World()
    const life = await world.start()
    await world.submit(aJob('job').every('10s'))
    const {applyLaunches} = life.store
    life.store.applyLaunches = async (request) => {
      life.store.applyLaunches = applyLaunches
      await applyLaunches(request)
      return applyLaunches(request)
    }
    await world.clock.advance(10 * SECOND + 10)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:10 launched'])
    assert.equal(life.executor.of('job').length, 1, 'before the node’s poll')
    assert.equal(world.starts('job').length, 1)
  })

  it('does not spin on a conflict that stays', async () => {
    const world = new World()
    const life = await world.start()
    await world.submit(aJob('job').every('10s'))
    const {applyLaunches} = life.store
    let refusing = true
    life.store.applyLaunches = async (request) =>
      refusing
        ? {
            now: world.clock.now(),
            dues: request.dues.map(() => 'conflict'),
            requests: [],
            decided: [],
          }
        : applyLaunches(request)
    await world.clock.advance(10 * SECOND)
    const before = world.clock.fired
    await world.clock.advance(SECOND)
    assert.ok(world.clock.fired - before < 100, `${world.clock.fired - before} timers in a second`)
    refusing = false
    await world.clock.advance(SECOND)
    assert.deepEqual(await world.ledgerLines('job'), ['12:00:10 launched'])
  })

  it('does nothing more once it has stopped, wherever in a pass it was', async () => {
    for (let turns = 0; turns < 25; turns += 1) {
      const world = new World()
      const life = await world.start()
      await world.submit(aJob('job').every('1s'))
      await world.runByHand('job')
      life.delayMs = () => 30
      await world.clock.advance(900)
      const until = world.clock.fired + turns
      await world.clock.until(() => world.clock.fired >= until)
      await world.clock.finish(life.leadership.stop())
      const rows = (await world.ledger('job')).length
      await world.clock.advance(3 * SECOND)
      assert.equal((await world.ledger('job')).length, rows)
      assert.equal(life.wakeup.listening, 2, 'only the node still listens')
      await world.start({name: 'next', incarnation: 'next-life'})
      await world.clock.advance(SECOND)
      await world.check(['job'])
      assert.ok((await world.ledger('job')).length > rows)
    }
  })
})
