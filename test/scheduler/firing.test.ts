/** Pauses of firing, and a new default time zone, over the real store: which planned times run. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {jobsGlobProblem} from '../../src/core/firing.ts'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND

async function pause(
  world: World,
  jobs: string,
  afterMs: number | null = null,
  reason = '',
): Promise<void> {
  const until = afterMs === null ? null : {afterMs}
  const {kind} = await world.store.pauseFiring({jobs, reason, until})
  assert.equal(kind, 'paused')
  world.notify('launch')
}

const minutely = (name: string) => aJob(name).scheduled('0 * * * * *')

describe('a pause of firing', () => {
  it('skips planned times of matching jobs in one row, until it is ended', async () => {
    const world = new World()
    await world.start()
    await world.submit(minutely('backup-a'))
    await world.submit(minutely('report'))
    await world.clock.advance(MINUTE)
    await pause(world, 'backup-*')
    await world.clock.advance(3 * MINUTE)
    await world.store.endFiringPause('backup-*')
    world.notify('launch')
    await world.clock.advance(MINUTE)
    assert.deepEqual(await world.launchLines('backup-a'), [
      '12:01:00 launched',
      '12:02:00..12:04:00 ×3 skipped firing_paused: by belfry',
      '12:05:00 launched',
    ])
    assert.equal((await world.launchLines('report')).length, 5)
    await world.check(['backup-a', 'report'])
  })

  it('ends by itself at its time, on a leader that was away meanwhile', async () => {
    const world = new World()
    const first = await world.start()
    await world.submit(minutely('a').with({catchUp: 'all'}))
    await pause(world, '*', 3 * MINUTE, 'new storage')
    const end = new Date(world.clock.now() + 3 * MINUTE).toISOString()
    await world.clock.advance(MINUTE)
    first.crash()
    await world.clock.advance(3 * MINUTE)
    const second = await world.start({name: 'node-b'})
    await world.clock.advance(20 * SECOND)
    assert.deepEqual(await world.launchLines('a'), [
      `12:01:00..12:02:00 ×2 skipped firing_paused: "new storage", by belfry, until ${end}`,
      '12:03:00 launched',
      '12:04:00 launched',
    ])
    assert.deepEqual(second.events.of('firing_resumed'), [{jobs: '*', by: 'until'}])
    await world.clock.advance(MINUTE)
    assert.equal(second.calls.get('removeEndedPauses'), 1)
    await world.check(['a'])
  })

  it('skips what waits, and dependents; manual runs, retries and running work continue', async () => {
    const world = new World()
    const node = await world.start({
      scripts: {slow: {ms: 90 * SECOND}, flaky: {outcome: 'failed', ms: SECOND}},
    })
    await world.submit(minutely('slow').with({concurrency: 'forbid', catchUp: 'all'}))
    await world.submit(minutely('away').with({tags: {rack: 'none'}}))
    await world.submit(aJob('flaky').manual().retrying(1))
    await world.submit(aJob('parent').manual())
    await world.submit(aJob('child').with({parentJob: 'parent', schedule: ''}))
    await world.clock.advance(MINUTE)
    await world.runByHand('flaky')
    assert.deepEqual(await world.launchLines('away'), ['12:01:00 pending waits_for_node'])
    await pause(world, '*')
    await world.runByHand('parent')
    await world.clock.advance(100 * SECOND)
    assert.deepEqual(await world.launchLines('away'), [
      '12:01:00..12:02:00 ×2 skipped firing_paused: by belfry',
    ])
    assert.deepEqual(await world.statuses('slow'), ['succeeded'])
    assert.deepEqual(await world.statuses('flaky'), ['failed', 'failed'])
    assert.deepEqual(await world.statuses('parent'), ['succeeded'])
    const [child] = await world.launches('child')
    assert.deepEqual([child!.decision, child!.reason], ['skipped', 'firing_paused: by belfry'])
    assert.equal(node.executor.of('child').length, 0)
  })

  it('costs no write and no further read while nothing is paused', async () => {
    const world = new World()
    const node = await world.start()
    await world.submit(minutely('a'))
    await world.clock.advance(5 * MINUTE)
    assert.equal(node.calls.get('removeEndedPauses'), undefined)
  })
})

describe('a change of the default time zone', () => {
  it('is finished by the next leader, and no time runs twice or late', async () => {
    const world = new World()
    const names = Array.from({length: 12}, (_, index) => `job-${index}`)
    const first = await world.start({launchBatchMax: 5})
    for (const name of names)
      await world.submit(aJob(name).scheduled('0 2 * * * *').with({timezone: ''}))
    await world.submit(aJob('own').scheduled('0 2 * * * *').with({timezone: 'UTC'}))
    await world.clock.advance(MINUTE)
    await world.store.setTimezone('Asia/Kathmandu') // +05:45
    first.crash()
    const term = (await world.store.leader())!.term
    assert.equal((await world.store.planZone({term, limit: 5})).isDone, false)
    await world.clock.advance(20 * SECOND)
    await world.start({name: 'node-b', launchBatchMax: 5})
    await world.clock.advance(17 * MINUTE)
    for (const name of names) assert.deepEqual(await world.launchLines(name), ['12:17:00 launched'])
    assert.deepEqual(await world.launchLines('own'), ['12:02:00 launched'])
  })
})

describe('a glob of jobs', () => {
  for (const [glob, isValid] of [
    ['*', true],
    ['backup-*', true],
    ['größe_1', true],
    ['', false],
    ['A', false],
    ['a b', false],
    ['a?', false],
    ['x'.repeat(400), false],
  ] as const)
    it(`${JSON.stringify(glob.slice(0, 20))} is ${isValid ? 'accepted' : 'refused'}`, () => {
      assert.equal(jobsGlobProblem(glob) === null, isValid)
    })
})
