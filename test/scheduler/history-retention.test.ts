/** History retention over the real store: small batches; open and newest launches stay. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {HistoryRetention} from '../../src/scheduler/retention.ts'
import type {PruneRequest, PruneResult} from '../../src/ports/leader-store.ts'
import {TermOver} from '../../src/ports/store-errors.ts'
import {aJob} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const KEEP = {keepLaunches: 5, keepUnlaunched: 7, keepMs: null, keepOutputBytes: 1_000}

function aRetention(prune: (request: PruneRequest) => Promise<PruneResult>) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  let over = 0
  const service = new HistoryRetention({
    store: {prune},
    term: 3,
    onTermOver: () => (over += 1),
    clock,
    events,
    keep: KEEP,
    allEveryMs: 10 * MINUTE,
  })
  return {clock, events, service, over: () => over}
}

const OVER: PruneResult = {
  next: 0,
  isRoundOver: true,
  newestGroup: 0,
  rowsDeleted: 0,
  outputBytesCut: 0,
  more: false,
}

describe('history retention', () => {
  type Request = [round: string, after: number, at: number]

  /** Requests of the service to a store with these replies, followed by replies without more work. */
  function asking(answers: readonly PruneResult[]) {
    const asked: Request[] = []
    const given = aRetention(async ({term, round, after}) => {
      assert.equal(term, 3)
      asked.push([round, after, given.clock.monotonicMs()])
      return answers[asked.length - 1] ?? {...OVER, next: after}
    })
    return {...given, asked}
  }

  it('walks all jobs in batches, repeats a batch with more rows, then pauses', async () => {
    const {clock, service, asked} = asking([
      {...OVER, next: 200, isRoundOver: false},
      {...OVER, next: 400, isRoundOver: false, more: true},
      {...OVER, next: 400, isRoundOver: false},
      {...OVER, next: 450},
    ])
    service.start()
    await clock.advance(9 * SECOND)
    assert.deepEqual(asked, [
      ['all', 0, 0],
      ['all', 200, 50],
      ['all', 200, 100],
      ['all', 400, 150],
    ])
    await clock.advance(2 * SECOND)
    assert.equal(asked.length, 5)
    await service.stop()
    assert.equal(clock.waiting, 0)
  })

  it('then prunes only jobs launched since the round over all jobs began', async () => {
    const {clock, service, asked} = asking([
      {...OVER, next: 200, isRoundOver: false, newestGroup: 70},
      {...OVER, next: 250, newestGroup: 90},
      {...OVER, next: 80, isRoundOver: false, newestGroup: 95},
      {...OVER, next: 95, newestGroup: 95},
      {...OVER, next: 95, newestGroup: 95},
      {...OVER, next: 99, newestGroup: 99},
    ])
    service.start()
    await clock.advance(41 * SECOND)
    assert.deepEqual(asked, [
      ['all', 0, 0],
      ['all', 200, 50],
      ['launched', 70, 10_050],
      ['launched', 80, 10_100],
      ['launched', 95, 20_100],
      ['launched', 95, 30_100],
      ['launched', 99, 40_100],
    ])
    await service.stop()
  })

  it('prunes all jobs again after the interval', async () => {
    const {clock, service, asked} = asking([
      {...OVER, newestGroup: 5},
      ...Array.from({length: 59}, () => ({...OVER, next: 5})),
      {...OVER, next: 5},
      {...OVER, next: 250, newestGroup: 7},
    ])
    service.start()
    await clock.advance(10 * MINUTE + 25 * SECOND)
    assert.deepEqual(asked.slice(59), [
      ['launched', 5, 590_000],
      ['launched', 5, 600_000],
      ['all', 0, 610_000],
      ['launched', 7, 620_000],
    ])
    await service.stop()
  })

  it('reports that the term is over', async () => {
    const {clock, events, service, over} = aRetention(async () => {
      throw new TermOver('term 3 is over')
    })
    service.start()
    await clock.settle()
    assert.equal(over(), 1)
    assert.equal(events.of('step_failed')[0]!.step, 'history_retention')
    await service.stop()
  })
})

describe('retention over the store', () => {
  it('keeps the newest launches, all open ones, and the counters', async () => {
    const world = new World()
    const script = ({scheduledAt}: {scheduledAt: number}) =>
      ({ms: new Date(scheduledAt).getSeconds() === 2 ? Infinity : 100}) as const
    await world.start({prunes: true, keepLaunches: 5, scripts: {job: script}})
    await world.submit(aJob('job').every('1s'))
    await world.clock.advance(45_900)
    const rows = await world.launches('job')
    const kept = rows.map(({scheduledAt}) => new Date(scheduledAt).getSeconds())
    assert.equal(kept[0], 2, 'still open')
    assert.equal(kept.at(-1), 45)
    // Rounds are 10 s apart: at most that many launches above the limit.
    assert.ok(rows.length >= 6 && rows.length <= 16, `${rows.length} rows`)
    assert.equal((await world.job('job')).counters.successCount, 44)
    const executions = await world.executions('job')
    assert.equal(executions.length, rows.length)
  })

  it('prunes an idle job with the next round over all jobs', async () => {
    const world = new World()
    const script = () => ({ms: 60_000}) as const
    await world.start({prunes: true, keepLaunches: 3, slots: 20, scripts: {job: script}})
    await world.submit(aJob('job').manual())
    for (let count = 0; count < 10; count += 1) await world.runByHand('job')
    await world.clock.advance(2 * MINUTE)
    assert.deepEqual(new Set(await world.statuses('job')), new Set(['succeeded']))
    assert.equal(
      (await world.launches('job')).length,
      10,
      'nothing of it was over when it was looked at',
    )
    await world.clock.advance(8 * MINUTE + 20 * SECOND)
    assert.equal((await world.launches('job')).length, 3)
  })
})
