/** Spans in which a job was disabled: one row each, counted when it ends and at each read before. */
import assert from 'node:assert/strict'
import type {Actor} from '../../../src/core/audit.ts'
import type {LaunchRecord} from '../../../src/core/launch-record.ts'
import type {Case} from './case.ts'
import {ALL_ROWS, aSpec, type Scene} from './scene.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const ALICE: Actor = {name: 'alice', accessor: 'a1', kind: 'management', address: ''}
/** Planned at each full minute from here on. */
const MINUTELY = '0 * * * * *'

function shown({decision, reason, count, scheduledAt, scheduledUntil}: LaunchRecord) {
  return {is: `${decision} ${reason}`, count, scheduledAt, scheduledUntil}
}

async function spans(scene: Scene) {
  return (await scene.launches('a'))
    .filter(({reason}) => reason.startsWith('disabled: '))
    .map(shown)
}

/** Advances to the next full minute. */
function toFullMinute(scene: Scene): void {
  scene.advance(MINUTE - (scene.now % MINUTE))
}

function reasonAt(at: number, by = 'alice'): string {
  return `skipped disabled: by ${by} since ${new Date(at).toISOString()}`
}

export function disabledCases(when: Case): void {
  when('a job was disabled, one row names who and counts its planned times', async (scene) => {
    await scene.submit('a', {schedule: MINUTELY})
    toFullMinute(scene)
    scene.advance(10 * SECOND)
    const at = scene.now
    const off = await scene.store.toggle('a', null, ALICE)
    assert(off.kind === 'toggled')
    const before = {is: reasonAt(at), count: 0, scheduledAt: at + 1, scheduledUntil: at + 1}
    assert.deepEqual(await spans(scene), [before])
    scene.advance(2 * MINUTE)
    const first = at + 50 * SECOND
    const during = {...before, count: 2, scheduledAt: first, scheduledUntil: first + MINUTE}
    assert.deepEqual(await spans(scene), [during])
    scene.advance(MINUTE)
    await scene.store.toggle('a', null, ALICE)
    const over = {...during, count: 3, scheduledUntil: first + 2 * MINUTE}
    assert.deepEqual(await spans(scene), [over])
    scene.advance(5 * MINUTE)
    assert.deepEqual(await spans(scene), [over])
  })

  when('a job was disabled for less than its interval, no row is left', async (scene) => {
    await scene.submit('a', {schedule: MINUTELY})
    toFullMinute(scene)
    scene.advance(1)
    for (let time = 0; time < 3; time += 1) {
      await scene.store.toggle('a', null, ALICE)
      await scene.store.toggle('a', null, ALICE)
    }
    assert.deepEqual(await spans(scene), [])
    assert.equal((await scene.job('a')).spec.disabled, false)
  })

  when(
    'a disabled job gets another schedule, each schedule has a row of its own',
    async (scene) => {
      const created = scene.now
      await scene.trySubmit(aSpec('a', {schedule: MINUTELY, disabled: true}), {actor: ALICE})
      toFullMinute(scene)
      await scene.submit('a', {schedule: MINUTELY, disabled: true, owner: 'ops'})
      scene.advance(2 * MINUTE)
      const edited = scene.now
      await scene.submit('a', {schedule: '30 * * * * *', disabled: true, owner: 'ops'})
      scene.advance(10 * MINUTE)
      const found = await spans(scene)
      assert.deepEqual(
        found.map(({is, count}) => [is, count]),
        [
          [reasonAt(edited, 'belfry'), 10],
          [reasonAt(created), 3],
        ],
      )
    },
  )

  when('a job without planned times is disabled, no row says so', async (scene) => {
    await scene.submit('parent')
    await scene.submit('a', {schedule: '@manually', disabled: true})
    await scene.submit('a', {schedule: '', parentJob: 'parent', disabled: true})
    assert.deepEqual(await spans(scene), [])
  })

  when('an open span is older than all rows that are kept, it stays', async (scene) => {
    await scene.submit('a', {schedule: MINUTELY, disabled: true})
    for (let time = 0; time < 3; time += 1) await scene.complete('a', 'succeeded')
    scene.advance(90 * 24 * 60 * MINUTE)
    const {term, store} = scene
    const keep = {
      keepLaunches: 1,
      keepExecutions: 1_000,
      keepUnlaunched: 0,
      keepMs: MINUTE,
      keepOutputBytes: 1e9,
    }
    const limits = {after: 0, jobLimit: 100, rowLimit: 100}
    await store.prune({term, round: 'all', ...keep, ...limits})
    const page = await store.launches('a', {...ALL_ROWS, decision: null})
    assert.deepEqual(
      page!.rows.map(({decision, count}) => [decision, count]),
      [['skipped', 90 * 24 * 60]],
    )
  })
}
