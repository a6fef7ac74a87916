/** Dependent jobs: one launch for each successful launch of the parent. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'

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
