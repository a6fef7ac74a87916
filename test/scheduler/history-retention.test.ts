/** History retention over the real store: small batches; open and newest launches stay. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {HistoryRetention} from '../../src/scheduler/retention.ts'
import type {PruneRequest, PruneResult} from '../../src/ports/leader-store.ts'
import {TermOver} from '../../src/ports/store-errors.ts'
import {aJob} from '../support/fixtures.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const DAY = 24 * 60 * MINUTE
const KEEP = {keepLaunches: 5, keepExecutions: 5, keepMs: null, keepOutputBytes: 1_000}

function aRetention(prune: (request: PruneRequest) => Promise<PruneResult>) {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  let over = 0
  const service = new HistoryRetention({
    store: {prune},
    wakeup: new TestWakeup(),
    term: 3,
    onTermOver: () => (over += 1),
    clock,
    events,
    keep: KEEP,
    limits: {unlaunchedRowsKept: 7, pruneAllMs: 10 * MINUTE},
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
  type Request = [after: number, at: number]

  /**
   * Requests of one round to a store that takes `batchMs` for each, with these replies, followed by replies
   * without more work. Other rounds find nothing.
   */
  function asking(round: PruneRequest['round'], answers: readonly PruneResult[], batchMs = 0) {
    const asked: Request[] = []
    const given = aRetention(async (request) => {
      assert.equal(request.term, 3)
      if (request.round !== round) return {...OVER, newestGroup: 70, next: request.after}
      asked.push([request.after, given.clock.monotonicMs()])
      const answer = answers[asked.length - 1]
      if (batchMs > 0) await new Promise<void>((done) => void given.clock.after(batchMs, done))
      return answer ?? {...OVER, next: request.after}
    })
    return {...given, asked}
  }

  it('walks all jobs in batches, repeats a batch with more rows, then waits', async () => {
    const {clock, service, asked} = asking('all', [
      {...OVER, next: 200, isRoundOver: false},
      {...OVER, next: 400, isRoundOver: false, more: true},
      {...OVER, next: 400, isRoundOver: false},
      {...OVER, next: 450},
    ])
    service.start()
    await clock.advance(9 * MINUTE)
    const batches = asked.map(([after]) => after)
    assert.deepEqual(batches, [0, 200, 200, 400])
    assert.equal(asked.at(-1)![1], 0, 'an idle store is not spared')
    await clock.advance(2 * MINUTE)
    assert.deepEqual(asked.slice(4), [[0, 10 * MINUTE]])
    await service.stop()
    assert.equal(clock.waiting, 0)
  })

  it('pauses after a batch for as long as the busy store took for it', async () => {
    const more = {...OVER, isRoundOver: false, more: true}
    const {clock, service, asked} = asking('all', [more, more, more], 40)
    service.start()
    await clock.advance(SECOND)
    assert.deepEqual(asked, [
      [0, 0],
      [0, 80],
      [0, 160],
      [0, 240],
    ])
    await clock.finish(service.stop())
  })

  it('prunes only jobs launched since the round over all jobs began', async () => {
    const {clock, service, asked} = asking('launched', [
      {...OVER, next: 80, isRoundOver: false},
      {...OVER, next: 95},
      {...OVER, next: 95},
      {...OVER, next: 99},
    ])
    service.start()
    await clock.advance(41 * SECOND)
    assert.deepEqual(asked, [
      [70, 0],
      [80, 0],
      [95, 10_000],
      [95, 20_000],
      [99, 30_000],
      [99, 40_000],
    ])
    await service.stop()
  })

  it('prunes all jobs and other rows while a round over launches never ends', async () => {
    const counts = {all: 0, launched: 0, other: 0}
    const {clock, service} = aRetention(async ({round}) => {
      counts[round] += 1
      await new Promise<void>((done) => void clock.after(1_000, done))
      return round === 'launched' ? {...OVER, isRoundOver: false} : OVER
    })
    service.start()
    await clock.advance(21 * MINUTE)
    assert.equal(counts.all, 3)
    assert.ok(counts.other > 100, `${counts.other} batches`)
    assert.ok(counts.launched > 500, `${counts.launched} batches`)
    await clock.finish(service.stop())
  })

  it('reports that the term is over', async () => {
    const {clock, events, service, over} = aRetention(async () => {
      throw new TermOver('term 3 is over')
    })
    service.start()
    await clock.settle()
    assert.ok(over() > 0, 'by each kind of round')
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

  for (const servers of [1, 2])
    it(`deletes nothing by age under a clock 400 days ahead, with ${servers} servers`, async () => {
      const world = new World()
      for (let number = 1; number <= servers; number += 1) {
        const identity = {name: `s${number}`, incarnation: `s${number}-1`}
        await world.start({...identity, prunes: true, keepMs: 90 * DAY})
      }
      await world.submit(aJob('job').manual())
      for (let count = 0; count < 5; count += 1) await world.runByHand('job')
      // The lease has expired by the clock before its holder renews it.
      await world.clock.advance(5 * MINUTE + 100)
      for (const byMs of [400 * DAY, -400 * DAY]) {
        world.clock.stepWall(byMs)
        await world.clock.advance(11 * MINUTE)
        assert.equal((await world.launches('job')).length, 5, `the clock stepped by ${byMs} ms`)
      }
      if (servers === 2) assert.ok((await world.store.leader())!.term > 1, 'one took over')
    })
})
