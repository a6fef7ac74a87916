/** Dependent jobs: one launch for each successful launch of the parent. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {aRow} from './scene.ts'

export function chainCases(when: Case): void {
  when('a successful parent requests each dependent once', async (scene) => {
    await scene.submit('a')
    await scene.submit('c', {parentJob: 'a', schedule: '', disabled: true})
    await scene.submit('b', {parentJob: 'a', schedule: ''})
    const group = await scene.run('a')
    const outcome = await scene.end(await scene.claimOne(), 'succeeded')
    assert(outcome.kind === 'finished')
    assert.deepEqual(outcome.closed, {
      status: 'success',
      dependents: ['b', 'c'],
      wakesLauncher: true,
    })
    const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 10})
    assert.deepEqual(
      requests.map(({job, launch}) => [job.spec.name, launch.cause, launch.parentGroup]),
      [
        ['b', 'parent', group],
        ['c', 'parent', group],
      ],
    )
    const again = await scene.complete('a', 'succeeded')
    const more = await scene.store.loadRequests({afterGroup: 0, limit: 10})
    const parents = more.requests.map(({launch}) => launch.parentGroup)
    assert.deepEqual(parents, [group, group, again, again])
  })

  when('a failed, partially failed or cancelled parent requests no dependent', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    await scene.submit('b', {parentJob: 'a', schedule: ''})
    await scene.complete('a', 'failed')
    await scene.complete('a', 'cancelled')
    await scene.run('a', ['n1', 'n2'])
    await scene.end(await scene.claimOne('n1'), 'succeeded')
    await scene.end(await scene.claimOne('n2'), 'timed_out')
    assert.deepEqual((await scene.store.loadRequests({afterGroup: 0, limit: 10})).requests, [])
  })

  when(
    'an unsuccessful end and its cause are in one row for each job of the chain',
    async (scene) => {
      await scene.submit('a')
      await scene.submit('b', {parentJob: 'a', schedule: ''})
      await scene.submit('c', {parentJob: 'b', schedule: ''})
      const failed = await scene.complete('a', 'failed')
      const b = (await scene.launches('b'))[0]!
      assert.deepEqual(
        [b.cause, b.decision, b.reason, b.parentGroup, b.rootGroup, b.open],
        [
          'parent',
          'skipped',
          `parent_failed: launch ${failed} of a ended failed`,
          failed,
          failed,
          false,
        ],
      )
      const [c] = await scene.launches('c')
      const reason = `parent_skipped: launch ${b.group} of b was skipped: parent_failed`
      assert.deepEqual([c!.reason, c!.parentGroup, c!.rootGroup], [reason, b.group, failed])
      const cancelled = await scene.complete('a', 'cancelled')
      const reasons = (await scene.launches('b')).map((row) => row.reason)
      assert.equal(reasons[0], `parent_failed: launch ${cancelled} of a was cancelled`)
      assert.equal((await scene.launches('c')).length, 2)
      assert.deepEqual((await scene.store.loadRequests({afterGroup: 0, limit: 10})).requests, [])
    },
  )

  when('each row of a parent that did not run is one row of its dependents', async (scene) => {
    await scene.submit('a', {schedule: '@every 1m', concurrency: 'forbid'})
    await scene.submit('b', {parentJob: 'a', schedule: ''})
    for (const minute of [1, 2]) {
      const job = await scene.job('a')
      const row = aRow(job.nextAt!, 'skipped', {reason: 'forbid: launch 1 is still open'})
      await scene.decide(job, [row], job.nextAt! + minute * 60_000)
    }
    const [row, ...others] = await scene.launches('a')
    assert.deepEqual([row!.count, others], [2, []])
    const rows = await scene.launches('b')
    assert.deepEqual(
      rows.map(({reason, parentGroup}) => [reason, parentGroup]),
      [[`parent_skipped: launch ${row!.group} of a was skipped: forbid`, row!.group]],
    )
  })

  when('a launch keeps how and when it closed', async (scene) => {
    await scene.submit('a')
    await scene.join('n2')
    const statuses: unknown[] = []
    for (const status of ['succeeded', 'failed', 'cancelled'] as const) {
      await scene.complete('a', status)
      const [launch] = await scene.launches('a')
      statuses.push(launch!.status)
      assert(launch!.closedAt! >= launch!.executions[0]!.startedAt!)
    }
    await scene.run('a', ['n1', 'n2'])
    const [first, second] = [await scene.claimOne('n1'), await scene.claimOne('n2')]
    await scene.end(first, 'succeeded')
    assert.equal((await scene.launches('a'))[0]!.status, null)
    await scene.end(second, 'timed_out')
    statuses.push((await scene.launches('a'))[0]!.status)
    assert.deepEqual(statuses, ['success', 'failed', 'cancelled', 'partially_failed'])
  })

  when('a successful dependent requests its own dependents', async (scene) => {
    await scene.submit('a')
    await scene.submit('b', {parentJob: 'a', schedule: ''})
    await scene.submit('c', {parentJob: 'b', schedule: ''})
    await scene.complete('a', 'succeeded')
    const [next] = (await scene.store.loadRequests({afterGroup: 0, limit: 10})).requests
    await scene.launchRequest(next!.launch.group)
    const outcome = await scene.end(await scene.claimOne(), 'succeeded')
    assert(outcome.kind === 'finished')
    assert.deepEqual(outcome.closed!.dependents, ['c'])
  })
}
