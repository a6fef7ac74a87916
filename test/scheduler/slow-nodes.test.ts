/** Jobs that are planned more often than their nodes can start them. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {aJob} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND

describe('planned times', () => {
  it('that nodes start too slowly are skipped as behind, and an idle job is launched', async () => {
    const world = new World()
    const node = await world.start({slots: 2, scripts: {busy: {ms: 10 * SECOND}}})
    await world.submit(aJob('busy').scheduled('* * * * * *'))
    await world.submit(aJob('daily').scheduled('0 5 12 * * *'))
    await world.clock.advance(6 * MINUTE)
    assert.ok((await world.store.totals()).pending <= 110)
    const rows = await world.launches('busy')
    const behind = rows.filter(({reason}) => reason === 'behind')
    const skipped = behind.reduce((sum, {count}) => sum + count, 0)
    assert.ok(skipped > 100, `${skipped} planned times skipped`)
    assert.ok(behind.every(({decision}) => decision === 'skipped'))
    const daily = await world.launches('daily')
    assert.deepEqual(
      daily.map(({decision}) => decision),
      ['launched'],
    )
    await world.check(['busy', 'daily'])
    // The queue drains, and the job is launched again.
    node.executor.script('busy', {ms: 100})
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual((await world.store.totals()).pending, 0)
    const [newest] = (await world.launches('busy')).toReversed()
    assert.equal(newest!.decision, 'launched')
  })
})
