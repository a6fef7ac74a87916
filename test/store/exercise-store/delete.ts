/** Deleting jobs and resetting their history. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {pruneOther} from './prune.ts'
import {ALL_EXECUTIONS, ALL_JOBS, ALL_ROWS, anEnd, aSpec} from './scene.ts'

export function deleteCases(when: Case): void {
  when('deleting a job with dependents is refused', async (scene) => {
    await scene.submit('a')
    await scene.submit('c', {parentJob: 'a'})
    await scene.submit('b', {parentJob: 'a'})
    const refused = await scene.store.deleteJob('a')
    assert.deepEqual(refused, {kind: 'dependents', names: ['b', 'c']})
    assert.notEqual(await scene.store.job('a'), null)
    assert.deepEqual(await scene.store.deleteJob('nobody'), {kind: 'unknown'})
  })

  when(
    'a job created again has no revision of the deleted one, also after retention',
    async (scene) => {
      const {store} = scene
      await scene.submit('a')
      const {revision} = await scene.submit('a', {owner: 'x'})
      assert.equal(revision, 2)
      await store.deleteJob('a')
      assert.equal((await scene.submit('a')).revision, 3)
      await store.deleteJob('a')
      assert.deepEqual(await scene.trySubmit(aSpec('a'), {ifMatch: [1]}), {
        kind: 'precondition',
        revision: null,
      })
      // Two rounds: launches first, then the row of the job.
      for (let round = 0; round < 2; round += 1) await pruneOther(scene)
      const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
      const entry = {spec: aSpec('a'), counters}
      const restored = await store.restore([entry], {disabled: false})
      assert.equal(restored.kind, 'restored')
      assert.equal((await scene.job('a')).revision, 4)
      const stale = await store.deleteJob('a', [1, 2, 3])
      assert.deepEqual(stale, {kind: 'precondition', revision: 4})
      assert.equal((await scene.submit('other')).revision, 1)

      await scene.submit('once', {ephemeral: true})
      await scene.complete('once', 'succeeded')
      assert.equal((await scene.submit('once', {ephemeral: true})).revision, 2)
    },
  )

  when('a deleted job and its history disappear from every reply at once', async (scene) => {
    const job = await scene.submit('a', {metadata: {k: 'v'}})
    await scene.submit('ab')
    const group = await scene.complete('a', 'succeeded', {output: 'hello'})
    const running = await scene.run('a')
    const [claimed] = await scene.claim()
    const waiting = await scene.run('a', ['n1', 'n2'])
    await scene.store.requestRun({name: 'a', forced: false, idempotency: null})
    const deleted = await scene.store.deleteJob('a')
    assert(deleted.kind === 'deleted')
    assert.equal(deleted.job.id, job.id)

    const {store} = scene
    const key = {group, node: 'node-1', attempt: 1}
    assert.equal(await store.job('a'), null)
    assert.equal(await store.executions('a', ALL_EXECUTIONS), null)
    assert.equal(await store.execution('a', key, 100), null)
    assert.equal(await store.outputSince('a', key, 0, 100), null)
    assert.equal(await store.launches('a', {...ALL_ROWS, decision: null}), null)
    assert.equal(await store.launch('a', running), null)
    assert.equal((await store.busy({...ALL_ROWS, outputBytes: 0})).total, 0)
    assert.deepEqual((await store.loadRequests({afterGroup: 0, limit: 10})).requests, [])
    const {rows} = await store.jobs(ALL_JOBS)
    assert.deepEqual(
      rows.map(({spec}) => spec.name),
      ['ab'],
    )
    assert.deepEqual(await scene.claim('n1'), [])
    assert.deepEqual(await scene.claim('n2'), [])
    assert.equal(await scene.launchRequest(waiting), null)
    assert.deepEqual(await store.totals(), {
      jobs: 1,
      running: 0,
      pending: 0,
      undecided: 0,
      firingPaused: 0,
      lateMs: 0,
      waitingMs: 0,
    })
    const toEnd = await store.cancelled('n1')
    assert.deepEqual(toEnd, [{group: running, node: 'node-1', attempt: 1}])
    assert.deepEqual(await store.appendOutput([{...held(claimed!), offset: 0, bytes: bytes()}]), [
      false,
    ])
    assert.deepEqual(await store.finish([anEnd(claimed!, 'succeeded')]), [
      {kind: 'unknown', key: toEnd[0]},
    ])
    assert.deepEqual(await store.cancelled('n1'), [])
  })

  when(
    'ends of a deleted job count neither in statistics nor in a later job of the same name',
    async (scene) => {
      const first = await scene.submit('a')
      await scene.run('a')
      const claimed = await scene.claimOne()
      await scene.store.deleteJob('a')
      const second = await scene.submit('a')
      assert.notEqual(second.id, first.id)
      assert.equal((await scene.end(claimed, 'failed')).kind, 'unknown')
      assert.equal((await scene.job('a')).counters.errorCount, 0)
      const [today] = await scene.store.statistics(1)
      assert.deepEqual([today!.successCount, today!.failedCount], [0, 0])
      assert.equal((await scene.store.executions('a', ALL_EXECUTIONS))!.total, 0)
    },
  )

  when(
    'a new job with forbid waits for running executions of a deleted job of the same name',
    async (scene) => {
      await scene.submit('a')
      const old = await scene.run('a')
      const claimed = await scene.claimOne()
      await scene.store.deleteJob('a')
      await scene.submit('a', {concurrency: 'forbid'})
      const request = {name: 'a', forced: false, idempotency: null}
      const refused = {kind: 'forbidden', openGroup: null}
      assert.deepEqual(await scene.store.requestRun(request), refused)
      scene.advance(120_000)
      const due = await scene.store.loadDue({limit: 10})
      assert.deepEqual(
        due.jobs.map(({openGroup}) => openGroup),
        [old],
      )
      await scene.end(claimed, 'cancelled')
      assert.equal((await scene.store.loadDue({limit: 10})).jobs[0]!.openGroup, null)
      assert.equal((await scene.store.requestRun(request)).kind, 'accepted')
    },
  )

  when(
    'a run refused by forbid names a launch of the job itself before one of a deleted job',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      await scene.claimOne()
      await scene.store.deleteJob('a')
      await scene.submit('a', {concurrency: 'forbid'})
      const request = {name: 'a', forced: false, idempotency: null}
      const own = await scene.store.requestRun({...request, forced: true})
      assert(own.kind === 'accepted')
      const refused = {kind: 'forbidden', openGroup: own.group}
      assert.deepEqual(await scene.store.requestRun(request), refused)
    },
  )

  when('resetting the history keeps open launches, launch rows and statistics', async (scene) => {
    await scene.submit('a', {retries: 1})
    await scene.complete('a', 'succeeded', {output: 'x'})
    const failed = await scene.complete('a', 'failed')
    const open = await scene.run('a')
    const claimed = await scene.claimOne()
    const job = await scene.store.resetHistory('a')
    const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
    assert.deepEqual([job!.counters, job!.status, job!.revision], [counters, '', 1])
    const left = await scene.store.executions('a', ALL_EXECUTIONS)
    assert.deepEqual(
      left!.rows.map(({group, attempt, status}) => [group, attempt, status]),
      [
        [open, 1, 'running'],
        [failed, 2, 'pending'],
        [failed, 1, 'failed'],
      ],
    )
    const history = await scene.store.launches('a', {...ALL_ROWS, decision: 'launched'})
    assert.equal(history!.total, 3)
    await scene.end(claimed, 'succeeded')
    const after = await scene.job('a')
    assert.deepEqual([after.counters.successCount, after.status], [1, 'success'])
    const [today] = await scene.store.statistics(1)
    assert.deepEqual([today!.successCount, today!.failedCount], [2, 1])
    assert.equal(await scene.store.resetHistory('nobody'), null)
  })
}

function held({execution, token}: Parameters<typeof anEnd>[0]) {
  const {group, node, attempt} = execution
  return {key: {group, node, attempt}, token}
}

function bytes(): Uint8Array {
  return new TextEncoder().encode('late')
}
