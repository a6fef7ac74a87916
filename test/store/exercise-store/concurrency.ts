/** Concurrent requests of many nodes, which an engine may batch: each node gets its own reply. */
import assert from 'node:assert/strict'
import type {MemberStatus} from '../../../src/core/node.ts'
import type {Case} from './case.ts'
import {beatAs, claimAs} from '../../support/single-calls.ts'
import {NOTHING_CLAIMED} from '../../support/fixtures.ts'

export function concurrencyCases(when: Case): void {
  when('batched claims of many nodes give each node only its own executions', async (scene) => {
    await scene.submit('a', {retries: 1})
    for (const id of ['n2', 'n3']) await scene.join(id)
    await scene.run('a', ['n2'])
    await scene.end(await scene.claimOne('n2'), 'failed')
    const group = await scene.run('a')
    const claim = (nodeId: string, token: string, incarnation = `${nodeId}-incarnation-1`) => {
      return claimAs(scene.store, {nodeId, incarnation, token, room: 5})
    }
    const [idle, first, again, other, retried, former] = await Promise.all([
      claim('n3', 'idle'),
      claim('n1', 'first'),
      claim('n1', 'first'),
      claim('n1', 'other'),
      claim('n2', 'retried'),
      claim('n1', 'former', 'n1-incarnation-0'),
    ])
    assert.deepEqual(idle, NOTHING_CLAIMED)
    const groups = first.claimed.map(({execution}) => execution.group)
    assert.deepEqual([groups, first.newest], [[group], 'first'])
    assert.deepEqual(again, first)
    assert.deepEqual([other.claimed, other.newest], [[], 'first'])
    assert.deepEqual([retried.claimed, retried.newest], [[], 'token-n2-1'])
    assert(retried.nextDueInMs !== null && retried.nextDueInMs > 0)
    assert.deepEqual(former.claimed, [])
    scene.advance(retried.nextDueInMs)
    const [due, none] = await Promise.all([claim('n2', 'due'), claim('n3', 'none')])
    assert.deepEqual([due.claimed.length, none.claimed.length], [1, 0])
  })

  when(
    'batched heartbeats of many nodes are all stored, and the last status of each wins',
    async (scene) => {
      for (const id of ['n2', 'n3']) await scene.join(id)
      const beat = (
        nodeId: string,
        status: MemberStatus,
        incarnation = `${nodeId}-incarnation-1`,
      ) => {
        // A node never reports itself as failed.
        assert(status !== 'failed')
        return beatAs(scene.store, {nodeId, incarnation, status})
      }
      assert.equal(await beat('n3', 'left'), 'ok')
      scene.advance(5_000)
      const answers = await Promise.all([
        beat('n3', 'alive'),
        beat('n2', 'alive'),
        beat('n4', 'alive'),
        beat('n1', 'alive'),
        beat('n1', 'leaving', 'n1-incarnation-0'),
        beat('n2', 'leaving'),
      ])
      assert.deepEqual(answers, ['ok', 'ok', 'unknown', 'ok', 'fenced', 'ok'])
      const members = await scene.store.members()
      assert.deepEqual(
        members.map(({id, status, heartbeatAt}) => [id, status, scene.now - heartbeatAt]),
        [
          ['n1', 'alive', 0],
          ['n2', 'leaving', 0],
          ['n3', 'alive', 0],
        ],
      )
    },
  )
}
