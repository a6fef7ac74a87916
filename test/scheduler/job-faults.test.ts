/** A job that cannot be decided: it is reported, and the others are launched on time. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {JobSpec} from '../../src/core/job.ts'
import {AssertionFailed} from '../../src/lib/assert.ts'
import type {Store} from '../../src/ports/store.ts'
import {aJob, NOON} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const BAD = ['bad-1', 'bad-2', 'bad-3']

type LoadDue = Store['loadDue']
type ApplyLaunches = Store['applyLaunches']

/** Three jobs at second 0 of each minute, and one at second 1; the leader decides two at a time. */
async function aWorld() {
  const world = new World()
  const leader = await world.start({launchBatchMax: 2})
  for (const name of BAD) await world.submit(aJob(name).scheduled('0 * * * * *'))
  await world.submit(aJob('good').scheduled('1 1-59 * * * *'))
  return {world, leader}
}

/** Changes the specs of bad jobs as the leader loads them. Returns the function that ends it. */
function spoil({store}: World, changes: Partial<JobSpec>): () => void {
  const load: LoadDue = store.loadDue
  const loadDue: LoadDue = async (request) => {
    const due = await load(request)
    const jobs = due.jobs.map(({job, ...rest}) => {
      const spec = BAD.includes(job.spec.name) ? {...job.spec, ...changes} : job.spec
      return {job: {...job, spec}, ...rest}
    })
    return {...due, jobs}
  }
  Object.assign(store, {loadDue})
  return () => void Object.assign(store, {loadDue: load})
}

/** Rejects every call that decides about the first bad job. */
async function reject({store}: World, error: Error): Promise<void> {
  const {id} = (await store.job('bad-1'))!
  const apply: ApplyLaunches = store.applyLaunches
  const applyLaunches: ApplyLaunches = async (request) => {
    if (request.dues.some(({jobId}) => jobId === id)) throw error
    return await apply(request)
  }
  Object.assign(store, {applyLaunches})
}

describe('a job that cannot be decided', () => {
  it('keeps its due times for a leader that can read its schedule', async () => {
    const {world, leader} = await aWorld()
    const repair = spoil(world, {timezone: 'Mars/Olympus'})
    await world.clock.advance(5 * MINUTE + 2 * SECOND)
    assert.equal((await world.launches('good')).length, 5)
    for (const name of BAD) {
      const lines = await world.launchLines(name)
      assert.equal(lines.length, 1, 'one note')
      assert.match(lines[0]!, /^12:01:00 skipped schedule_unreadable: .*Mars\/Olympus/)
      assert.equal((await world.job(name)).nextAt, NOON + MINUTE)
    }
    const reported = leader.events.of('job_undecided').map(({job}) => job)
    assert.deepEqual(reported.toSorted(), BAD, 'reported once each')
    repair()
    await world.clock.advance(MINUTE)
    assert.deepEqual((await world.launchLines('bad-1')).slice(1), [
      '12:01:00..12:04:00 ×4 missed catch_up_latest',
      '12:05:00 launched',
      '12:06:00 launched',
    ])
    await world.check(['good'])
  })

  it('is tried again at once after an edit', async () => {
    const {world} = await aWorld()
    spoil(world, {maxLateness: 'for ever'})
    await world.clock.advance(MINUTE + 5 * SECOND)
    assert.match(
      (await world.launchLines('bad-1'))[0]!,
      /skipped undecidable: max_lateness must be/,
    )
    const edited = aJob('bad-1').scheduled('30 * * * * *').with({displayname: 'edited'})
    await world.submit(edited.with({name: 'bad-1'}))
    assert.equal((await world.job('bad-1')).nextAt, NOON + MINUTE + 30 * SECOND)
  })

  for (const error of [new Error('constraint failed'), new AssertionFailed('a broken rule')])
    it(`is found when the store rejects its decision with ${error.name}`, async () => {
      const {world, leader} = await aWorld()
      await reject(world, error)
      await world.clock.advance(3 * MINUTE + 2 * SECOND)
      for (const name of ['bad-2', 'bad-3', 'good'])
        assert.equal((await world.launches(name)).length, 3, name)
      assert.deepEqual(await world.launchLines('bad-1'), [
        `12:01:00 skipped undecidable: ${error.message}`,
      ])
      assert.deepEqual(leader.events.of('step_failed'), [])
      await world.check(['good', 'bad-2', 'bad-3'])
    })

  it('does not stop the others after a change of the default time zone', async () => {
    const world = new World()
    const leader = await world.start({launchBatchMax: 4})
    for (const name of ['good-1', 'bad', 'good-2'])
      await world.submit(aJob(name).scheduled('0 1 * * * *').with({timezone: ''}))
    const {id: jobId, revision, nextAt} = (await world.store.job('bad'))!
    const row = {scheduledAt: nextAt!, scheduledUntil: nextAt!, count: 1, reason: '', targets: []}
    const rows = [{...row, decision: 'missed'} as const]
    const due = {jobId, revision, expectedNextAt: nextAt!, nextAt, rows, forbid: false}
    const {term} = (await world.store.leader())!
    // The row exists before it is due, so each later one is refused.
    await world.store.applyLaunches({term, dues: [{...due}], requests: []})
    leader.crash()
    await world.clock.advance(2 * MINUTE)
    await world.store.setTimezone('Asia/Kathmandu') // +05:45
    const next = await world.start({name: 'node-b', launchBatchMax: 4})
    await world.clock.advance(20 * MINUTE)
    for (const name of ['good-1', 'good-2'])
      assert.deepEqual(await world.launchLines(name), [
        '12:01:00 missed edited',
        '12:16:00 launched',
      ])
    assert.deepEqual(
      next.events.of('job_undecided').map(({job}) => job),
      ['bad'],
    )
    assert.deepEqual(next.events.of('step_failed'), [])
  })
})
