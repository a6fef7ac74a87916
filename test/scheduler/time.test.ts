/** Planned times while time itself changes: new time zone data, and a clock that is wrong for a while. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {aJob, NOON} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** Stores a `next`, as other time zone data would have planned it. */
async function plannedByOthers(world: World, name: string, nextAt: number): Promise<void> {
  const {id, revision, nextAt: expectedNextAt} = await world.job(name)
  const {store} = world
  const lease = await store.acquireLease({holder: 'other', nodeId: 'other', ttlMs: 6_000})
  const due = {
    jobId: id,
    revision,
    expectedNextAt: expectedNextAt!,
    nextAt,
    rows: [],
    forbid: false,
  }
  const request = {term: lease!.term, dues: [due], requests: []}
  assert.deepEqual((await store.applyLaunches(request)).dues, ['applied'])
  await store.resignLease({term: lease!.term, holder: 'other'})
}

describe('new time zone data', () => {
  it('moves the undecided times of all jobs when the first leader with it begins', async () => {
    const world = new World()
    for (const name of ['a', 'b', 'c']) await world.submit(aJob(name).scheduled('0 0 15 * * *'))
    const others = ['a', 'b', 'c']
    for (const name of others) await plannedByOthers(world, name, NOON + 2 * HOUR)
    const leader = await world.start({launchBatchMax: 2})
    for (const name of others) assert.equal((await world.job(name)).nextAt, NOON + 3 * HOUR)
    await leader.stop()
    await plannedByOthers(world, 'a', NOON + 2 * HOUR)
    await world.start({incarnation: 'same-data'})
    assert.equal((await world.job('a')).nextAt, NOON + 2 * HOUR, 'planned once for each version')
    await world.nodes.at(-1)!.stop()
    await world.start({incarnation: 'new-data', zoneData: '2026b'})
    assert.equal((await world.job('a')).nextAt, NOON + 3 * HOUR)
  })
})

describe('a clock that is suddenly far ahead', () => {
  const minutely = aJob('job').scheduled('0 * * * * *')

  it('decides nothing beyond the step, and planned times continue when it is corrected', async () => {
    const world = new World()
    const leader = await world.start()
    await world.submit(minutely)
    await world.clock.advance(MINUTE)
    world.clock.stepWall(400 * DAY)
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(leader.events.of('clock_held'), [{by_ms: 400 * DAY, for_ms: 3 * MINUTE}])
    world.clock.stepWall(-400 * DAY)
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00 launched',
      '12:03:00 launched',
      '12:04:00 launched',
    ])
    await world.check(['job'])
  })

  it('is accepted after the confirmation time, and then counts as an outage', async () => {
    const world = new World()
    await world.start()
    await world.submit(minutely)
    world.clock.stepWall(2 * HOUR)
    await world.clock.advance(3 * MINUTE + 30 * SECOND)
    assert.deepEqual(await world.launchLines('job'), [
      '12:01:00 launched',
      '12:02:00 launched',
      '12:03:00 launched',
      '12:04:00..14:01:00 ×118 missed catch_up_latest',
      '14:02:00 launched',
      '14:03:00 launched',
    ])
    await world.check(['job'])
  })

  it('is noticed by the server that takes over because of it', async () => {
    const world = new World()
    const first = await world.start()
    const second = await world.start({name: 'second', incarnation: 'second-1'})
    await world.submit(minutely)
    await world.clock.advance(30 * SECOND)
    first.crash()
    world.clock.stepWall(400 * DAY)
    await world.clock.advance(MINUTE)
    assert.ok(second.isLeading)
    assert.deepEqual(await world.launchLines('job'), ['12:01:00 launched'])
  })

  it('leaves no job behind that an edit of its schedule does not bring back', async () => {
    const world = new World()
    const leader = await world.start()
    await world.submit(minutely)
    await world.clock.advance(90 * SECOND)
    world.clock.stepWall(DAY)
    await world.clock.advance(4 * MINUTE)
    world.clock.stepWall(-DAY)
    await world.clock.advance(10 * SECOND)
    assert.ok((await world.job('job')).nextAt! > NOON + DAY)
    const until = (await world.job('job')).decidedUntil
    assert.deepEqual(leader.events.of('clock_was_wrong'), [{jobs: 1, until}])
    await world.submit(minutely.scheduled('0 */2 * * * *'))
    assert.equal((await world.job('job')).nextAt, NOON + 6 * MINUTE)
    const taken = await world.launches('job')
    const now = world.clock.now()
    for (const {scheduledUntil, cause, decision} of taken)
      if (scheduledUntil > now) assert.deepEqual([cause, decision], ['manual', 'launched'])
    world.interrupted.add('job')
    await world.clock.advance(5 * MINUTE)
    const planned = taken.length
    const lines = (await world.launchLines('job')).filter((line) => / launched/.test(line))
    assert.ok(
      lines.includes('12:06:00 launched') && lines.includes('12:08:00 launched'),
      `${planned}`,
    )
    await world.check(['job'])
  })

  it('leaves no work waiting for its date', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(aJob('hand').manual())
    world.clock.stepWall(400 * DAY)
    node.executor.script('hand', {ms: SECOND, outcome: 'failed'})
    await world.submit(aJob('retried').manual().retrying(3))
    await world.runByHand('retried')
    await world.clock.advance(100)
    world.clock.stepWall(-400 * DAY)
    await world.clock.advance(20 * SECOND)
    const statuses = await world.statuses('retried')
    assert.ok(!statuses.includes('pending') && statuses.length >= 1, statuses.join())
  })
})
