/** Planned times beside decisions: new time zone data, faulty jobs, a clock that was wrong. */
import assert from 'node:assert/strict'
import {TermOver} from '../../../src/ports/store-errors.ts'
import type {Case} from './case.ts'
import {ALL_ROWS, aRow, DAY, HOUR, MINUTE} from './scene.ts'

export function planningCases(when: Case): void {
  when('jobs are planned again once for each version of the time zone data', async (scene) => {
    const names = ['a', 'b', 'c']
    const planned: (number | null)[] = []
    for (const name of names) {
      const job = await scene.submit(name, {schedule: '0 0 15 * * *'})
      planned.push(job.nextAt)
      await scene.decide(job, [], job.nextAt! + HOUR)
    }
    const {term, store} = scene
    const replan = async (zoneData: string) => {
      const pages: (number | null)[] = []
      for (let after: number | null = 0; after !== null; pages.push(after))
        after = await store.replan({term, zoneData, after, limit: 2})
      return pages.length
    }
    const nexts = async () => Promise.all(names.map(async (name) => (await scene.job(name)).nextAt))
    assert.equal(await replan('2026a'), 2)
    assert.deepEqual(await nexts(), planned)
    await scene.decide(await scene.job('a'), [], planned[0]! + HOUR)
    assert.equal(await replan('2026a'), 1)
    assert.deepEqual((await nexts())[0], planned[0]! + HOUR)
    assert.equal(await replan('2026b'), 2)
    assert.deepEqual(await nexts(), planned)
    await assert.rejects(
      store.replan({term: term - 1, zoneData: 'x', after: 0, limit: 2}),
      TermOver,
    )
  })

  when('a page of due jobs continues after the last one', async (scene) => {
    for (const name of ['a', 'b', 'c']) await scene.submit(name)
    scene.advance(MINUTE)
    const first = await scene.store.loadDue({limit: 2})
    assert.deepEqual([first.jobs.length, first.damaged], [2, []])
    const second = await scene.store.loadDue({limit: 2, after: first.next})
    assert.deepEqual(
      second.jobs.map(({job}) => job.spec.name),
      ['c'],
    )
    assert.equal(second.next, null)
  })

  when('a fault is one row, which covers no planned time', async (scene) => {
    const {id, nextAt} = await scene.submit('a')
    const {term, store} = scene
    const faults = [
      {jobId: id, reason: 'undecidable: why'},
      {jobId: 999, reason: 'no such job'},
    ]
    for (let time = 0; time < 2; time += 1)
      await store.applyLaunches({term, dues: [], requests: [], faults})
    const {rows} = (await store.launches('a', {...ALL_ROWS, decision: null}))!
    assert.deepEqual(
      rows.map(({cause, decision, reason, open}) => [cause, decision, reason, open]),
      [['manual', 'skipped', 'undecidable: why', false]],
    )
    assert.equal((await scene.job('a')).nextAt, nextAt)
  })

  when('an edit takes back the rows of times after now', async (scene) => {
    const job = await scene.submit('a', {schedule: '0 * * * * *'})
    const at = job.nextAt!
    scene.advance(DAY)
    const missed = aRow(at, 'missed', {
      scheduledUntil: at + DAY - 3 * MINUTE,
      count: DAY / MINUTE - 2,
      reason: 'catch_up_latest',
    })
    const last = at + DAY - 2 * MINUTE
    const rows = [missed, aRow(last, 'launched'), aRow(last + MINUTE, 'skipped')]
    await scene.decide(job, rows, last + 2 * MINUTE)
    scene.advance(5 * MINUTE - DAY)
    const edited = await scene.submit('a', {schedule: '30 * * * * *'})
    assert.equal(edited.nextAt, scene.now + MINUTE / 2)
    assert.equal(edited.decidedUntil, scene.now)
    const history = (await scene.store.launches('a', {...ALL_ROWS, decision: null}))!
    assert.deepEqual(
      history.rows.map(({cause, decision, scheduledAt, scheduledUntil, count}) => [
        cause,
        decision,
        scheduledAt,
        scheduledUntil,
        count,
      ]),
      [
        ['manual', 'launched', last, last, 1],
        ['schedule', 'missed', at, scene.now, 5],
      ],
    )
  })

  when('jobs that were decided up to the future are found', async (scene) => {
    const job = await scene.submit('a', {schedule: '0 0 * * * *'})
    await scene.submit('other', {schedule: '0 0 0 1 1 *'})
    const until = job.nextAt! + 10 * DAY
    const missed = aRow(job.nextAt!, 'missed', {scheduledUntil: until, count: 241})
    await scene.decide(job, [missed], until + 3_600_000)
    const {aheadJobs, aheadUntil} = await scene.store.endFutureWaits({term: scene.term})
    assert.deepEqual([aheadJobs, aheadUntil], [1, until])
    scene.advance(11 * DAY)
    assert.equal((await scene.store.endFutureWaits({term: scene.term})).aheadJobs, 0)
  })

  when('waits that began in the future end', async (scene) => {
    await scene.submit('a')
    scene.advance(DAY)
    const group = await scene.run('a')
    scene.advance(-DAY)
    assert.equal((await scene.claim()).length, 0)
    const {ended, aheadJobs} = await scene.store.endFutureWaits({term: scene.term})
    assert.deepEqual([ended, aheadJobs], [1, 0])
    assert.equal((await scene.claimOne()).execution.group, group)
    assert.equal((await scene.store.endFutureWaits({term: scene.term})).ended, 0)
  })
}
