/** Launches that wait for a node: what runs when one appears, and what many of them cost. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {CatchUp} from '../../src/core/job.ts'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const web = {role: 'web'}

describe('planned times that waited for a node', () => {
  const minutely = aJob('job').scheduled('0 * * * * *').tagged(web)

  async function afterNineMinutes(catchUp: CatchUp): Promise<string[]> {
    const world = new World()
    await world.start()
    await world.submit(minutely.catchingUp(catchUp))
    await world.clock.advance(9 * MINUTE + 40 * SECOND)
    assert.equal((await world.launches('job')).length, 9, 'each waits')
    await world.start({name: 'web', tags: web, leads: false})
    await world.clock.advance(5 * SECOND)
    await world.check(['job'])
    return await world.launchLines('job')
  }

  it('follow catch_up when it appears, in merged rows', async () => {
    assert.deepEqual(await afterNineMinutes('latest'), [
      '12:01:00..12:08:00 ×8 missed catch_up_latest',
      '12:09:00 launched',
    ])
    assert.deepEqual(await afterNineMinutes('skip'), ['12:01:00..12:09:00 ×9 missed catch_up_skip'])
    assert.equal((await afterNineMinutes('all')).length, 9)
  })
})

describe('very many launches that wait', () => {
  it('are read in rounds with pauses, and at once when a node appears', async () => {
    const world = new World()
    const leader = await world.start({launchBatchMax: 10})
    await world.submit(aJob('waits').manual().tagged(web))
    for (let count = 0; count < 300; count += 1) await world.runByHand('waits')
    // Each page takes 100 ms, all pages 3 s.
    leader.delayMs = (method) => (method === 'loadRequests' ? 50 : 0)
    await world.clock.advance(30 * SECOND)
    const before = leader.calls.get('loadRequests')!
    await world.clock.advance(MINUTE)
    const pages = leader.calls.get('loadRequests')! - before
    assert.ok(pages < 350, `${pages} pages in a minute`)
    const late = await world.start({name: 'late', tags: web, slots: 500, leads: false})
    await world.clock.advance(8 * SECOND)
    assert.equal(late.executor.of('waits').length, 300)
    await world.check(['waits'])
  })
})
