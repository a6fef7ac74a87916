/** Pauses of firing, and decisions that were made before one. */
import assert from 'node:assert/strict'
import {PAUSES_MAX} from '../../../src/core/firing.ts'
import type {Case} from './case.ts'
import {ALL_JOBS, aRow, HOUR, MINUTE, type Scene} from './scene.ts'

async function pause(scene: Scene, jobs: string, afterMs: number | null = null) {
  const until = afterMs === null ? null : {afterMs}
  const result = await scene.store.pauseFiring({jobs, reason: 'why', until})
  assert(result.kind === 'paused')
  return result.pause
}

export function firingCases(when: Case): void {
  when('decisions made before a pause, or before its end, are conflicts', async (scene) => {
    const {store} = scene
    const job = await scene.submit('a')
    scene.advance(MINUTE)
    const launched = async (settings: number) => {
      const due = {jobId: job.id, revision: 1, expectedNextAt: job.nextAt!, forbid: false}
      const rows = [aRow(job.nextAt!, 'launched')]
      const dues = [{...due, nextAt: job.nextAt! + MINUTE, rows}]
      const applied = await store.applyLaunches({term: scene.term, dues, requests: [], settings})
      return applied.dues[0]
    }
    const before = await store.loadDue({limit: 1})
    await pause(scene, 'other')
    assert.equal(await launched(before.settings.revision), 'conflict')
    const paused = await store.loadDue({limit: 1})
    assert(await store.endFiringPause('other'))
    assert.equal(await launched(paused.settings.revision), 'conflict')
    assert.equal((await store.launches('a', {start: 0, end: 1, decision: null}))!.total, 0)
    const {settings} = await store.loadRequests({afterGroup: 0, limit: 1})
    assert.equal(await launched(settings.revision), 'applied')
  })

  when('pauses have different globs, and a second one replaces the first', async (scene) => {
    const {store} = scene
    await pause(scene, 'b*')
    await pause(scene, 'a')
    const replaced = await pause(scene, 'b*', HOUR)
    assert.deepEqual(replaced, {
      jobs: 'b*',
      reason: 'why',
      pausedAt: scene.now,
      pausedBy: 'belfry',
      until: scene.now + HOUR,
    })
    assert.deepEqual(
      (await store.firingPauses()).map(({jobs, until}) => [jobs, until]),
      [
        ['a', null],
        ['b*', scene.now + HOUR],
      ],
    )
    assert.equal((await store.totals()).firingPaused, 1)
    assert.equal(await store.endFiringPause('b'), null)
    assert.equal((await store.endFiringPause('a'))!.until, scene.now)
    assert.equal(await store.endFiringPause('a'), null)
    scene.advance(HOUR)
    assert.deepEqual(await store.firingPauses(), [])
    assert.equal((await store.totals()).firingPaused, 0)
    const past = await store.pauseFiring({jobs: 'a', reason: '', until: {at: scene.now}})
    assert.deepEqual(past, {kind: 'past', now: scene.now})
  })

  when('a job is shown as paused while its next time will be skipped', async (scene) => {
    const {store} = scene
    for (const name of ['paused', 'other']) await scene.submit(name)
    await scene.submit('unplanned', {schedule: '@manually'})
    const shown = async () => {
      const {rows} = await store.jobs(ALL_JOBS)
      for (const row of rows) assert.deepEqual(await store.job(row.spec.name), row)
      return rows.filter((row) => row.conditions?.isPaused).map(({spec}) => spec.name)
    }
    assert.deepEqual(await shown(), [])
    await pause(scene, 'paused')
    assert.deepEqual(await shown(), ['paused'])
    await pause(scene, '*', MINUTE / 2)
    assert.deepEqual(await shown(), ['paused'], 'a pause that ends before the next time skips none')
    await pause(scene, '*', MINUTE + 1)
    scene.advance(MINUTE + 1)
    assert.deepEqual(
      await shown(),
      ['other', 'paused'],
      'the pause has ended, the time is undecided',
    )
    assert(await store.endFiringPause('paused'))
    await store.removeEndedPauses({term: scene.term})
    assert.deepEqual(await shown(), ['other', 'paused'])
  })

  when('a pause that ended stays until the times before its end are decided', async (scene) => {
    const {store, term} = scene
    const job = await scene.submit('a')
    await pause(scene, 'a', MINUTE + 1)
    await pause(scene, 'b', MINUTE + 1)
    scene.advance(MINUTE + 1)
    assert.deepEqual(await store.removeEndedPauses({term}), [])
    const {settings} = await store.loadDue({limit: 1})
    assert.equal(settings.pauses.length, 2)
    await scene.decide(job, [aRow(job.nextAt!, 'skipped')], job.nextAt! + MINUTE)
    const ended = await store.removeEndedPauses({term})
    assert.deepEqual(ended.map(({jobs}) => jobs).toSorted(), ['a', 'b'])
    assert.deepEqual((await store.loadDue({limit: 1})).settings.pauses, [])
    await pause(scene, 'a')
    await store.endFiringPause('a')
    assert.deepEqual(await store.removeEndedPauses({term}), [], 'a caller has ended it')
  })

  when('pauses are limited in number', async (scene) => {
    for (let index = 0; index < PAUSES_MAX; index += 1) await pause(scene, `job-${index}`)
    const request = {reason: '', until: null}
    assert.deepEqual(await scene.store.pauseFiring({...request, jobs: 'x'}), {kind: 'full'})
    assert.equal((await scene.store.pauseFiring({...request, jobs: 'job-1'})).kind, 'paused')
    await scene.store.endFiringPause('job-2')
    assert.equal((await scene.store.pauseFiring({...request, jobs: 'x'})).kind, 'paused')
  })

  when('pauses that ended before an undecided time do not count', async (scene) => {
    await scene.submit('a')
    scene.advance(HOUR)
    for (let index = 0; index < PAUSES_MAX; index += 1) {
      await pause(scene, `job-${index}`)
      await scene.store.endFiringPause(`job-${index}`)
    }
    assert.equal((await scene.store.loadDue({limit: 1})).settings.pauses.length, PAUSES_MAX)
    assert.equal((await pause(scene, 'x')).jobs, 'x')
  })
}
