/** A node that returns while its executions are being ended: it keeps them or they are lost, never both. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import type {Store} from '../../../src/ports/store.ts'
import {withCluster, type Cluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {beatAs, claimAs} from '../../support/single-calls.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const LIFE = {nodeId: 'n2', incarnation: 'n2-incarnation-1'}

const beat = (store: Store) => beatAs(store, {...LIFE, status: 'alive'})
const claim = async (store: Store) => {
  return (await claimAs(store, {...LIFE, token: 'back', room: 9})).claimed.length
}

/** `n2` has one pending execution and failed. */
async function withStray(play: (cluster: Cluster, end: () => Promise<number>) => Promise<void>) {
  await withCluster(postgres, async (cluster) => {
    const {scene, first} = cluster
    await scene.join('n2')
    await scene.submit('a')
    const group = await scene.run('a', ['n2'])
    await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
    const key = {group, node: 'node-2', attempt: 1}
    const request = {term: scene.term, executions: [{key, nodeId: 'n2'}]}
    await play(cluster, async () => (await first.endStuck(request)).length)
  })
}

describe('the end of an execution that no node may run', () => {
  it('waits for a node whose heartbeat is being stored, which keeps it', async () => {
    await withStray(async ({second, hold, waiting}, end) => {
      const holder = await hold(`SELECT FROM members WHERE id = 'n2' FOR UPDATE`)
      const beaten = beat(second)
      await waiting(1)
      const ended = end()
      await waiting(2)
      await holder.release()
      assert.deepEqual([await beaten, await ended, await claim(second)], ['ok', 0, 1])
    })
  })

  it('delays a node whose heartbeat is too late, which then claims nothing', async () => {
    await withStray(async ({second, hold, waiting}, end) => {
      const holder = await hold(`SELECT FROM launches FOR UPDATE`)
      const ended = end()
      await waiting(1)
      const beaten = beat(second)
      await waiting(2)
      await holder.release()
      assert.deepEqual([await ended, await beaten, await claim(second)], [1, 'ok', 0])
    })
  })

  it('skips an execution claimed by a node that was removed and joined again meanwhile', async () => {
    await withStray(async ({scene, second, hold, waiting}, end) => {
      await second.removeMember({nodeId: 'n2', limit: 9, jitter: 0.5})
      const holder = await hold(`SELECT FROM launches FOR UPDATE`)
      const ended = end()
      await waiting(1)
      await scene.join('n2')
      assert.equal(await claim(second), 1)
      await holder.release()
      assert.equal(await ended, 0)
    })
  })
})
