/** Importing jobs from a file. */
import assert from 'node:assert/strict'
import type {JobSpec} from '../../../src/core/job.ts'
import type {Case} from './case.ts'
import {ALL_JOBS, aSpec, HOUR, type Scene} from './scene.ts'

const NONE = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

function restore(scene: Scene, specs: readonly JobSpec[], disabled = false) {
  const entries = specs.map((spec) => ({spec, counters: NONE}))
  return scene.store.restore(entries, {disabled})
}

export function restoreCases(when: Case): void {
  when('parents may be anywhere in the file, and the report follows its order', async (scene) => {
    await scene.submit('kept')
    const result = await restore(scene, [
      aSpec('leaf', {schedule: '', parentJob: 'stem'}),
      aSpec('kept', {owner: 'me'}),
      aSpec('stem', {schedule: '', parentJob: 'root'}),
      aSpec('root'),
    ])
    const lines = ['leaf', 'kept', 'stem', 'root'].map((name) => ({name, created: name !== 'kept'}))
    assert.deepEqual(result, {kind: 'restored', lines})
    assert.deepEqual((await scene.job('root')).dependentJobs, ['stem'])
    assert.deepEqual(
      [(await scene.job('kept')).revision, (await scene.job('leaf')).revision],
      [2, 1],
    )
  })

  when('counters and the status are imported only for new jobs', async (scene) => {
    await scene.submit('old')
    const counters = {successCount: 5, errorCount: 2, lastSuccess: 1_000, lastError: 2_000}
    const entries = ['old', 'new'].map((name) => ({
      spec: aSpec(name),
      counters,
      status: 'partially_failed' as const,
    }))
    await scene.store.restore(entries, {disabled: false})
    const [old, fresh] = [await scene.job('old'), await scene.job('new')]
    assert.deepEqual([fresh.counters, fresh.status], [counters, 'partially_failed'])
    assert.deepEqual([old.counters, old.status], [NONE, ''])
    await scene.join('n1')
    await scene.complete('new', 'succeeded')
    assert.equal((await scene.job('new')).status, 'success')
  })

  when(
    'one invalid entry refuses the whole file, and every invalid entry is named',
    async (scene) => {
      await scene.submit('stored')
      const result = await restore(scene, [
        aSpec('fine'),
        aSpec('twice'),
        aSpec('twice'),
        aSpec('orphan', {parentJob: 'nobody'}),
        aSpec('x', {parentJob: 'y'}),
        aSpec('y', {parentJob: 'x'}),
        aSpec('mayfly', {ephemeral: true}),
        aSpec('child', {parentJob: 'mayfly'}),
      ])
      assert(result.kind === 'refused')
      const named = new Set(result.problems.map(({name}) => name))
      assert.deepEqual([...named].toSorted(), ['child', 'mayfly', 'orphan', 'twice', 'x', 'y'])
      const {rows} = await scene.store.jobs(ALL_JOBS)
      assert.deepEqual(
        rows.map(({spec}) => spec.name),
        ['stored'],
      )
    },
  )

  when('a cycle through stored jobs is refused', async (scene) => {
    await scene.submit('a')
    await scene.submit('b', {schedule: '', parentJob: 'a'})
    const result = await restore(scene, [aSpec('a', {parentJob: 'b'})])
    assert.equal(result.kind, 'refused')
    assert.equal((await scene.job('a')).spec.parentJob, '')
  })

  when(
    'an import as disabled disables all jobs, and a paused store imports none',
    async (scene) => {
      await restore(scene, [aSpec('a'), aSpec('b')], true)
      const {rows} = await scene.store.jobs({...ALL_JOBS, disabled: true})
      assert.equal(rows.length, 2)
      assert.equal((await scene.job('a')).nextAt, null)
      await scene.store.setPaused(true)
      assert.deepEqual(await restore(scene, [aSpec('c')]), {kind: 'paused'})
    },
  )

  when('an import plans no past times', async (scene) => {
    const schedule = `@at ${new Date(scene.now - HOUR).toISOString()}`
    await restore(scene, [aSpec('past', {schedule}), aSpec('future')])
    assert.equal((await scene.job('past')).nextAt, null)
    assert((await scene.job('future')).nextAt! >= scene.now)
  })
}
