/**
 * Cancelling: a pending execution ends at once, a running one gets a cancel request. Neither is retried.
 */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS} from './scene.ts'

export function cancelCases(when: Case): void {
  when(
    'cancelling a pending execution ends it at once and counts it as an error',
    async (scene) => {
      await scene.submit('a', {retries: 3})
      const group = await scene.run('a')
      const key = {group, node: 'node-1', attempt: 1}
      const result = await scene.store.cancelExecution('a', key)
      assert(result.kind === 'requested')
      const [ended] = result.ended
      assert(ended?.kind === 'finished')
      assert.deepEqual([ended.execution, ended.closed!.status], [result.execution, 'failed'])
      const {status, startedAt, finishedAt} = result.execution
      assert.deepEqual([status, startedAt, finishedAt], ['cancelled', null, scene.now])
      assert.deepEqual(await scene.claim(), [])
      const launch = (await scene.store.launch('a', group))!
      assert.deepEqual([launch.open, launch.retriesEnded], [false, true])
      const job = await scene.job('a')
      assert.deepEqual([job.counters.errorCount, job.status], [1, 'failed'])
      const again = await scene.store.cancelExecution('a', key)
      assert.deepEqual(again, {kind: 'over', status: 'cancelled'})
    },
  )

  when('cancelling a running execution waits for its node and prevents retries', async (scene) => {
    await scene.submit('a', {retries: 3})
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    const key = {group, node: 'node-1', attempt: 1}
    assert.deepEqual(await scene.store.cancelled('n1'), [])
    const asked = scene.now
    const first = await scene.store.cancelExecution('a', key)
    scene.advance(10)
    const second = await scene.store.cancelExecution('a', key)
    assert(first.kind === 'requested' && second.kind === 'requested')
    assert.equal(first.execution.status, 'running')
    assert.equal(second.execution.cancelRequestedAt, asked)
    assert.deepEqual(await scene.store.cancelled('n1'), [key])
    assert.deepEqual(await scene.store.cancelled('n2'), [])
    const outcome = await scene.end(claimed, 'failed')
    assert(outcome.kind === 'finished')
    assert.deepEqual([outcome.retry, outcome.closed!.status], [null, 'failed'])
    assert.deepEqual(await scene.store.cancelled('n1'), [])
  })

  when(
    'a cancel ends the retries of the launch’s other targets, not their first attempts',
    async (scene) => {
      await scene.submit('a', {retries: 3})
      const group = await scene.run('a', ['n1', 'n2', 'n3'])
      const one = await scene.claimOne('n1')
      const two = await scene.claimOne('n2')
      await scene.end(two, 'failed')
      const first = {group, node: 'node-1', attempt: 1}
      const cancelled = await scene.store.cancelExecution('a', first)
      assert(cancelled.kind === 'requested')
      const ended = cancelled.ended.map((outcome) => {
        assert(outcome.kind === 'finished')
        const {node, attempt, status} = outcome.execution
        return [node, attempt, status, outcome.retry, outcome.closed]
      })
      assert.deepEqual(ended, [['node-2', 2, 'cancelled', null, null]])
      const again = await scene.store.cancelExecution('a', first)
      assert(again.kind === 'requested')
      assert.deepEqual(again.ended, [])
      const page = await scene.store.executions('a', {...ALL_EXECUTIONS, order: 'asc'})
      assert.deepEqual(
        page!.rows.map(({node, attempt, status}) => [node, attempt, status]),
        [
          ['node-1', 1, 'running'],
          ['node-2', 1, 'failed'],
          ['node-3', 1, 'pending'],
          ['node-2', 2, 'cancelled'],
        ],
      )
      assert.equal((await scene.job('a')).counters.errorCount, 2)
      await scene.end(one, 'cancelled')
      const last = await scene.end(await scene.claimOne('n3'), 'failed')
      assert(last.kind === 'finished')
      assert.deepEqual([last.retry, last.closed!.status], [null, 'failed'])
    },
  )

  when('the end of a cancelled execution reports the retries that ended with it', async (scene) => {
    await scene.submit('a', {retries: 3})
    const group = await scene.run('a', ['n2', 'n3', 'n4'])
    await scene.end(await scene.claimOne('n2'), 'failed')
    const endedWith = async (node: string) => {
      const result = await scene.store.cancelExecution('a', {group, node, attempt: 1})
      assert(result.kind === 'requested' && result.ended[0]?.kind === 'finished')
      return result.ended[0].endedRetries?.map(({node, attempt, status}) => [node, attempt, status])
    }
    assert.deepEqual(await endedWith('node-3'), [['node-2', 2, 'cancelled']])
    assert.equal(await endedWith('node-4'), undefined)
  })

  when('cancelling an execution of another job is refused as unknown', async (scene) => {
    await scene.submit('a')
    await scene.submit('b')
    const group = await scene.run('a')
    const key = {group, node: 'node-1', attempt: 1}
    const unknown = {kind: 'unknown'}
    assert.deepEqual(await scene.store.cancelExecution('b', key), unknown)
    assert.deepEqual(await scene.store.cancelExecution('nobody', key), unknown)
    assert.deepEqual(await scene.store.cancelExecution('a', {...key, attempt: 2}), unknown)
  })
}
