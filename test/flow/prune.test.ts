/** The prune step over the real store: history is let go in small pieces, what is open or newest stays. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {PruneService} from '../../src/flow/prune.ts'
import type {PruneRequest, PruneResult} from '../../src/ports/leader-store.ts'
import {TermOver} from '../../src/ports/store-failure.ts'
import {aJob} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const KEEP = {keepLaunches: 5, keepUnlaunched: 7, keepMs: null, keepOutputBytes: 1_000}

function aService(prune: (request: PruneRequest) => Promise<PruneResult>) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  let over = 0
  const service = new PruneService({
    store: {prune},
    term: 3,
    over: () => (over += 1),
    clock,
    events,
    keep: KEEP,
  })
  return {clock, events, service, over: () => over}
}

const NOTHING = {nextJobId: 0, rowsDeleted: 0, outputBytesCut: 0, more: false}

describe('the prune service', () => {
  it('walks all jobs in pieces, stays where more is waiting, then rests', async () => {
    const answers: PruneResult[] = [
      {...NOTHING, nextJobId: 200},
      {...NOTHING, nextJobId: 400, more: true},
      {...NOTHING, nextJobId: 400},
      NOTHING,
    ]
    const asked: [afterJobId: number, at: number][] = []
    const {clock, service} = aService(async ({term, afterJobId}) => {
      assert.equal(term, 3)
      asked.push([afterJobId, clock.monotonicMs()])
      return answers[asked.length - 1] ?? NOTHING
    })
    service.start()
    await clock.advance(9 * SECOND)
    assert.deepEqual(asked, [
      [0, 0],
      [200, 50],
      [200, 100],
      [400, 150],
    ])
    await clock.advance(2 * SECOND)
    assert.deepEqual(asked.slice(4), [[0, 10_150]])
    await service.stop()
    assert.equal(clock.waiting, 0)
  })

  it('says that the term is over', async () => {
    const {clock, events, service, over} = aService(async () => {
      throw new TermOver('term 3 is over')
    })
    service.start()
    await clock.settle()
    assert.equal(over(), 1)
    assert.equal(events.of('step_failed')[0]!.step, 'prune')
    await service.stop()
  })
})

describe('retention', () => {
  it('keeps the newest launches, never an open one, and the counters of all', async () => {
    const world = new World()
    const script = ({scheduledAt}: {scheduledAt: number}) =>
      ({ms: new Date(scheduledAt).getSeconds() === 2 ? Infinity : 100}) as const
    await world.start({prunes: true, keepLaunches: 5, scripts: {job: script}})
    await world.submit(aJob('job').every('1s'))
    await world.clock.advance(45_900)
    const rows = await world.ledger('job')
    const kept = rows.map(({scheduledAt}) => new Date(scheduledAt).getSeconds())
    assert.equal(kept[0], 2, 'still open')
    assert.equal(kept.at(-1), 45)
    // Rounds are ten seconds apart: at most that many more than the limit.
    assert.ok(rows.length >= 6 && rows.length <= 16, `${rows.length} rows`)
    assert.equal((await world.job('job')).counters.successCount, 44)
    const executions = await world.executions('job')
    assert.equal(executions.length, rows.length)
  })
})
