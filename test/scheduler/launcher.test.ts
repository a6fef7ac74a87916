/**
 * Launcher over the real store: planned times and requests become launch records on time, once, and by
 * policy.
 */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {CatchUp} from '../../src/core/job.ts'
import type {LaunchRecord} from '../../src/core/launch-record.ts'
import {TermOver} from '../../src/ports/store-errors.ts'
import {aJob, NOON} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

describe('planned times', () => {
  it('are launched to the millisecond, even without notifications', async () => {
    const world = new World()
    const node = await world.start()
    node.wakeup.dropsAll = true
    await world.submit(aJob('every').every('7s'))
    await world.submit(aJob('cron').scheduled('*/20 * * * * *'))
    await world.clock.advance(2 * MINUTE)
    for (const name of ['every', 'cron']) {
      const rows = await world.launches(name)
      assert.equal(rows.length, name === 'every' ? 17 : 6)
      for (const row of rows) {
        assert.equal(row.decision, 'launched')
        assert.equal(row.decidedAt, row.scheduledAt)
      }
    }
    await world.check(['every', 'cron'])
  })

  it('cost one read a second while nothing is due', async () => {
    const world = new World()
    const node = await world.start()
    for (let job = 0; job < 50; job += 1) await world.submit(aJob(`job-${job}`).every('10h'))
    const before = node.calls.get('loadDue')!
    await world.clock.advance(100 * SECOND)
    const looks = node.calls.get('loadDue')! - before
    assert.ok(looks >= 99 && looks <= 102, `${looks} looks`)
    assert.equal(node.calls.get('applyLaunches'), undefined)
  })

  it('of many jobs due at once are all launched, batch by batch', async () => {
    const world = new World()
    const node = await world.start({launchBatchMax: 10, slots: 100})
    for (let job = 0; job < 45; job += 1)
      await world.submit(aJob(`job-${job}`).scheduled('0 * * * * *'))
    await world.clock.advance(MINUTE)
    assert.equal(node.calls.get('applyLaunches'), 5)
    for (let job = 0; job < 45; job += 1)
      assert.deepEqual(await world.launchLines(`job-${job}`), ['12:01:00 launched'])
  })

  it('of many jobs due at once are decided in a small batch first, which nodes start meanwhile', async () => {
    const world = new World()
    await world.start({launchFirstMax: 3, launchBatchMax: 20, slots: 100})
    for (let job = 0; job < 45; job += 1)
      await world.submit(aJob(`job-${job}`).scheduled('0 * * * * *'))
    const sizes: number[] = []
    const apply = world.store.applyLaunches.bind(world.store)
    world.store.applyLaunches = async (request) => {
      sizes.push(request.dues.length)
      return await apply(request)
    }
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(sizes, [3, 20, 20, 2, 3, 20, 20, 2])
  })

  it('behind many jobs that an import keeps locked are launched on time', async () => {
    const world = new World()
    await world.start({launchBatchMax: 10, slots: 100})
    const locked = new Set<number>()
    for (let job = 0; job < 45; job += 1) {
      const {id} = await world.submit(aJob(`locked-${job}`).scheduled('0 * * * * *'))
      locked.add(id)
    }
    await world.submit(aJob('free').scheduled('0 * * * * *'))
    const apply = world.store.applyLaunches.bind(world.store)
    world.store.applyLaunches = async (request) => {
      const dues = request.dues.filter(({jobId}) => !locked.has(jobId))
      const result = await apply({...request, dues})
      const applied = [...result.dues]
      return {
        ...result,
        dues: request.dues.map(({jobId}) => (locked.has(jobId) ? 'conflict' : applied.shift()!)),
      }
    }
    await world.clock.advance(MINUTE + 5 * SECOND)
    assert.deepEqual(await world.launchLines('free'), ['12:01:00 launched'])
    assert.deepEqual(await world.launchLines('locked-44'), [])
    const [{decidedAt, scheduledAt}] = (await world.launches('free')) as [LaunchRecord]
    assert.ok(decidedAt! - scheduledAt < SECOND)
    locked.clear()
    await world.clock.advance(SECOND)
    for (let job = 0; job < 45; job += 1)
      assert.deepEqual(await world.launchLines(`locked-${job}`), ['12:01:00 launched'])
  })

  it('a notification starts a pass before the next planned time', async () => {
    const world = new World()
    const node = await world.start()
    await world.clock.advance(300)
    await world.runByHand((await world.submit(aJob('hand').manual())).spec.name)
    assert.equal(world.clock.monotonicMs(), 300)
    await world.clock.settle()
    assert.equal(node.executor.of('hand')[0]!.startedAt, 300)
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
    const node = await world.start({incarnation: 'second-incarnation'})
    await world.clock.settle()
    return {world, node}
  }

  it('latest: launches the newest missed time once', async () => {
    const {world} = await off(10 * MINUTE + SECOND, 'latest', '24h')
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:10:00 ×9 missed catch_up_latest',
      '12:11:00 launched',
    ])
    await world.check(['job'])
  })

  it('skip: launches no missed time; one late by less than 30 s still runs', async () => {
    const {world} = await off(10 * MINUTE - 20 * SECOND, 'skip', '24h')
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:10:00 ×9 missed catch_up_skip',
      '12:11:00 launched',
    ])
  })

  it('all: launches the times within max_lateness, oldest first', async () => {
    const {world, node} = await off(10 * MINUTE, 'all', '3m')
    await world.clock.advance(5 * SECOND)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:08:00 ×7 missed max_lateness',
      '12:09:00 launched',
      '12:10:00 launched',
      '12:11:00 launched',
    ])
    const scheduled = node.executor.of('job').map(({run}) => run.scheduledAt)
    assert.deepEqual(
      scheduled,
      scheduled.toSorted((one, other) => one - other),
    )
  })

  it('all with forbid: one after another, in order, none skipped', async () => {
    const world = new World()
    const first = await world.start()
    await world.submit(aJob('job').scheduled('0 * * * * *').catchingUp('all').forbidding())
    await world.clock.advance(90 * SECOND)
    first.crash()
    world.clock.sleep(5 * MINUTE + SECOND)
    const scripts = {job: {ms: 4 * SECOND}}
    const node = await world.start({incarnation: 'second-incarnation', scripts})
    await world.clock.advance(SECOND)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00 launched',
      '12:03:00 pending waits_for_open',
      '12:04:00 pending waits_for_open',
      '12:05:00 pending waits_for_open',
      '12:06:00 pending waits_for_open',
    ])
    await world.clock.advance(25 * SECOND)
    const runs = node.executor.of('job')
    assert.equal(runs.length, 5)
    runs.slice(1).forEach((run, index) => {
      assert.ok(run.startedAt >= runs[index]!.endedAt!, 'no overlap')
      assert.ok(run.startedAt - runs[index]!.endedAt! < 300, 'soon after the previous one')
      assert.ok(run.run.scheduledAt > runs[index]!.run.scheduledAt)
    })
    await world.check(['job'])
  })

  it('a week of missed seconds costs few rows and few calls', async () => {
    for (const catchUp of ['latest', 'skip', 'all'] as const) {
      const world = new World()
      const first = await world.start()
      await world.submit(aJob('job').every('1s').catchingUp(catchUp, '400d'))
      await world.clock.advance(3 * SECOND)
      first.crash()
      world.clock.sleep(7 * DAY)
      const node = await world.start({incarnation: 'second-incarnation', slots: 500})
      await world.clock.settle()
      const rows = await world.launches('job')
      const launched = {latest: 1, skip: 0, all: 100}[catchUp] + 31
      const since = rows.filter(({scheduledAt}) => scheduledAt > NOON + 3 * SECOND)
      assert.equal(since.filter(({decision}) => decision === 'launched').length, launched)
      assert.equal(since.filter(({decision}) => decision === 'missed').length, 1)
      assert.ok(node.calls.get('applyLaunches')! <= 2)
      await world.clock.advance(10 * SECOND)
      await world.check(['job'])
      const times = (await world.launches('job')).reduce((sum, {count}) => sum + count, 0)
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
    await world.start({incarnation: 'second-incarnation'})
    await world.clock.advance(20 * SECOND)
    for (const {scheduledAt} of await world.launches('job'))
      assert.equal((scheduledAt - NOON) % (7 * SECOND), 0)
    await world.check(['job'])
  })

  it('treats a forward step of the wall clock as an outage', async () => {
    const world = new World()
    await world.start()
    await world.submit(aJob('job').scheduled('0 * * * * *').catchingUp('skip'))
    await world.clock.advance(90 * SECOND)
    world.clock.stepWall(5 * MINUTE + 5 * SECOND)
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00..12:06:00 ×5 missed catch_up_skip',
    ])
    await world.check(['job'])
  })

  it('a past @at submitted now runs at once', async () => {
    const world = new World()
    await world.start()
    await world.submit(aJob('job').scheduled('@at 2026-03-01T11:00:00Z'))
    assert.deepEqual(await world.launchLines('job'), ['11:00:00 launched'])
    assert.equal((await world.job('job')).nextAt, null)
  })
})

describe('forbid', () => {
  it('skips a planned time while a launch is open, naming it, and launches again afterwards', async () => {
    const world = new World()
    const node = await world.start()
    node.executor.script('job', {ms: 25 * SECOND})
    await world.submit(aJob('job').every('10s').forbidding())
    await world.clock.advance(45 * SECOND)
    const [first] = await world.launches('job')
    assert.deepEqual(await world.launchLines('job'), [
      '12:00:10 launched',
      `12:00:20..12:00:30 ×2 skipped forbid: launch ${first!.group} is still open`,
      '12:00:40 launched',
    ])
    await world.check(['job'])
  })

  it('a launch stays open while a retry is pending', async () => {
    const world = new World()
    const node = await world.start()
    node.executor.script('job', ({attempt}) => ({outcome: attempt < 4 ? 'failed' : 'succeeded'}))
    await world.submit(aJob('job').every('3s').forbidding().retrying(5))
    await world.clock.advance(12 * SECOND)
    const lines = await world.launchLines('job')
    assert.equal(lines[0], '12:00:03 launched')
    assert.match(lines[1]!, /^12:00:06..12:00:09 ×2 skipped forbid: launch \d+ is still open$/)
    assert.equal(lines[2], '12:00:12 launched')
    await world.check(['job'])
  })

  it('rejects a manual run while a launch is open, and skips one that raced with it', async () => {
    const world = new World()
    const node = await world.start()
    node.executor.script('job', {ms: 30 * SECOND})
    await world.submit(aJob('job').manual().forbidding())
    // Both are requested before the leader decides either.
    const ask = () => world.store.requestRun({name: 'job', forced: false, idempotency: null})
    const one = await ask()
    assert.equal(one.kind, 'accepted')
    const two = await ask()
    const groups = [one, two].flatMap((result) =>
      result.kind === 'accepted' ? [result.group] : [],
    )
    world.notify('launch')
    await world.clock.advance(SECOND)
    const third = await ask()
    assert.deepEqual(third, {kind: 'forbidden', openGroup: groups[0]})
    const rows = await world.launches('job')
    assert.equal(rows[0]!.decision, 'launched')
    for (const row of rows.slice(1)) {
      assert.deepEqual(
        [row.decision, row.reason],
        ['skipped', `forbid: launch ${groups[0]} is still open`],
      )
    }
    assert.equal(node.executor.of('job').length, 1)
  })

  it('a forced run overlaps', async () => {
    const world = new World()
    const node = await world.start()
    node.executor.script('job', {ms: 30 * SECOND})
    await world.submit(aJob('job').manual().forbidding())
    world.overlapping.add('job')
    await world.runByHand('job')
    await world.clock.advance(SECOND)
    await world.runByHand('job', true)
    assert.equal(node.executor.running.length, 2)
    await world.clock.advance(MINUTE)
    await world.check(['job'])
  })
})

describe('a launch without a matching node', () => {
  const tagged = aJob('job').scheduled('@at 2026-03-01T12:00:05Z').tagged({role: 'web'})

  it('waits as pending and uses the first node that appears', async () => {
    const world = new World()
    await world.start()
    await world.submit(tagged)
    await world.clock.advance(5 * MINUTE)
    assert.deepEqual(await world.launchLines('job'), ['12:00:05 pending waits_for_node'])
    const web = await world.start({name: 'web', tags: {role: 'web'}, leads: false})
    await world.clock.advance(3 * SECOND)
    assert.deepEqual(await world.launchLines('job'), ['12:00:05 launched'])
    assert.equal(web.executor.of('job').length, 1)
    await world.check(['job'])
  })

  it('delays neither due jobs nor manual runs while thousands of launches wait', async () => {
    const world = new World()
    const node = await world.start({launchBatchMax: 5})
    await world.submit(aJob('waits').manual().tagged({role: 'web'}))
    await world.submit(aJob('hand').manual())
    await world.submit(aJob('due').every('1s'))
    for (let request = 0; request < 100; request += 1) await world.runByHand('waits')
    // Each page of waiting launches takes 100 ms, all pages 2 s.
    node.delayMs = (method) => (method === 'loadRequests' ? 50 : 0)
    await world.clock.advance(MINUTE)
    const waits = (await world.launches('due'))
      .slice(-50)
      .map((row) => row.decidedAt! - row.scheduledAt)
    assert.ok(Math.max(...waits) <= 200, `${Math.max(...waits)} ms after its time`)
    for (let run = 0; run < 10; run += 1) {
      const group = await world.runByHand('hand')
      const {clock} = world
      const asked = clock.monotonicMs()
      await clock.until(() => node.executor.of('hand').length > run)
      const tookMs = clock.monotonicMs() - asked
      assert.ok(tookMs <= 400, `launch ${group} began ${tookMs} ms after it was asked for`)
      await clock.advance(330)
    }
    const late = await world.start({name: 'late', incarnation: 'late-1', tags: {role: 'web'}})
    await world.clock.advance(10 * SECOND)
    assert.equal(late.executor.of('waits').length, 100, 'all of them are launched')
    await world.check(['due', 'hand', 'waits'])
  })

  it('is missed for good after the wait', async () => {
    const world = new World()
    await world.start({targetWaitMs: 2 * MINUTE})
    await world.submit(tagged)
    await world.submit(aJob('hand').manual().tagged({role: 'web'}))
    await world.runByHand('hand')
    await world.clock.advance(2 * MINUTE)
    assert.match((await world.launchLines('job'))[0]!, /pending waits_for_node/)
    await world.clock.advance(8 * SECOND)
    assert.deepEqual(await world.launchLines('job'), ['12:00:05 skipped no_target'])
    assert.deepEqual(await world.launchLines('hand'), ['12:00:00 skipped no_target'])
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
    assert.deepEqual(await world.launchLines('job'), ['12:00:05 missed max_lateness'])
  })

  it('is skipped if the job is disabled meanwhile', async () => {
    const world = new World()
    await world.start()
    await world.submit(tagged)
    await world.clock.advance(30 * SECOND)
    await world.store.toggle('job')
    await world.clock.advance(2 * SECOND)
    assert.deepEqual(await world.launchLines('job'), ['12:00:05 skipped disabled'])
  })
})

describe('a definition that changes', () => {
  it('takes effect at once: the old schedule launches nothing more', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(aJob('job').every('10s'))
    await world.clock.advance(9_999)
    await world.submit(aJob('job').every('1h'))
    await world.clock.advance(MINUTE)
    assert.equal(node.executor.started.length, 0)
    assert.deepEqual(await world.launchLines('job'), [])
  })

  it('between load and apply is a conflict, and is decided again', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(aJob('job').every('10s'))
    node.delayMs = (method) => (method === 'candidates' ? 200 : 0)
    await world.clock.advance(10_100)
    assert.equal(node.calls.get('applyLaunches'), undefined)
    await world.submit(aJob('job').every('10s').with({displayname: 'changed'}))
    node.delayMs = () => 0
    await world.clock.advance(SECOND)
    assert.deepEqual(await world.launchLines('job'), ['12:00:10 launched'])
    assert.equal((await world.executions('job'))[0]!.revision, 2)
    await world.check(['job'])
  })

  it('of a job to disabled records the times due before, and the others as one span', async () => {
    const world = new World()
    const first = await world.start()
    await world.submit(aJob('job').every('10s'))
    first.crash()
    world.clock.sleep(35 * SECOND)
    await world.store.toggle('job')
    await world.start({incarnation: 'second-incarnation'})
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.launchLines('job'), [
      '12:00:10..12:00:30 ×3 missed disabled',
      '12:00:40..12:01:30 ×6 skipped disabled: by belfry since 2026-03-01T12:00:35.000Z',
    ])
    await world.store.toggle('job')
    world.notify('launch')
    await world.clock.advance(10 * SECOND)
    assert.equal((await world.launchLines('job')).at(-1), '12:01:40 launched')
  })
})

describe('two leaders', () => {
  it('of different terms: writes of the older one throw TermOver and end its term', async () => {
    const world = new World()
    const old = await world.start()
    await world.submit(aJob('job').every('10s'))
    await world.clock.advance(10 * SECOND)
    let over = 0
    // Another server holds the lease, and this leader does not know it, as after a pause.
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
    assert.deepEqual(await world.launchLines('job'), ['12:00:10 launched'])
    await Promise.all(services.map((service) => service.stop()))
    await assert.rejects(
      world.store.applyLaunches({term: lease!.term - 1, dues: [], requests: []}),
      TermOver,
    )
  })

  it('of the same term never launch a planned time or a request twice', async () => {
    const world = new World()
    const node = await world.start({slots: 1_000})
    const second = await world.start({name: 'node-b', leads: false})
    await world.clock.settle()
    const services = second.leaderServices(node.leadership.term!, () => assert.fail('in force'))
    // Slow enough that both load the same jobs before either applies.
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
      const rows = await world.launches(name)
      assert.equal(new Set(rows.map(({scheduledAt}) => scheduledAt)).size, rows.length)
      assert.ok(rows.length >= 60)
      assert.equal(world.starts(name).length, rows.length)
    }
    assert.equal(world.starts('hand').length, 60)
    await world.check([...names, 'only', 'hand'])
    await world.clock.finish(Promise.all(services.map((service) => service.stop())))
  })
})

describe('the launcher', () => {
  it('soon finds a request committed after one with a larger number', async () => {
    const world = new World()
    const node = await world.start()
    const {loadRequests} = node.store
    await world.submit(aJob('early').manual())
    await world.submit(aJob('late').manual())
    await world.clock.advance(10 * SECOND)
    const hidden = new Set<string>(['early'])
    node.store.loadRequests = async (request) => {
      const {requests, ...loaded} = await loadRequests(request)
      return {...loaded, requests: requests.filter(({job}) => !hidden.has(job.spec.name))}
    }
    await world.runByHand('early')
    await world.runByHand('late')
    await world.clock.advance(10)
    assert.equal(node.executor.of('late').length, 1)
    hidden.clear()
    node.wakeup.notify('launch')
    await world.clock.advance(10)
    assert.equal(node.executor.of('early').length, 0, 'loaded only above the newest group')
    await world.clock.advance(300)
    assert.equal(node.executor.of('early').length, 1)
  })

  it('notifies nodes of a launch stored by an attempt whose reply was lost', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(aJob('job').every('10s'))
    const {applyLaunches} = node.store
    node.store.applyLaunches = async (request) => {
      node.store.applyLaunches = applyLaunches
      await applyLaunches(request)
      return applyLaunches(request)
    }
    await world.clock.advance(10 * SECOND + 10)
    assert.deepEqual(await world.launchLines('job'), ['12:00:10 launched'])
    assert.equal(node.executor.of('job').length, 1, 'before the node’s poll')
    assert.equal(world.starts('job').length, 1)
  })

  it('does not spin on a persistent conflict', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(aJob('job').every('10s'))
    const {applyLaunches} = node.store
    let refusing = true
    node.store.applyLaunches = async (request) =>
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
    assert.deepEqual(await world.launchLines('job'), ['12:00:10 launched'])
  })

  it('writes nothing after its stop, at any point of a pass', async () => {
    for (let turns = 0; turns < 25; turns += 1) {
      const world = new World()
      const node = await world.start()
      await world.submit(aJob('job').every('1s'))
      await world.runByHand('job')
      node.delayMs = () => 30
      await world.clock.advance(900)
      const until = world.clock.fired + turns
      await world.clock.until(() => world.clock.fired >= until)
      await world.clock.finish(node.leadership.stop())
      const rows = (await world.launches('job')).length
      await world.clock.advance(3 * SECOND)
      assert.equal((await world.launches('job')).length, rows)
      assert.equal(node.wakeup.subscriberCount, 3, 'only the subscriptions of the node')
      await world.start({name: 'next', incarnation: 'next-incarnation'})
      await world.clock.advance(SECOND)
      await world.check(['job'])
      assert.ok((await world.launches('job')).length > rows)
    }
  })
})
