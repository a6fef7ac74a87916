/** Locks of the ends of a launch on many nodes: an end waits only for what it changes. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import type {Scene} from '../exercise-store/scene.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

/** More than are loaded whole. The first one in the order of names is the last of these ids. */
const NODES = Array.from({length: 40}, (_, index) => `n${index + 10}`)

async function aFanOut(scene: Scene) {
  await scene.submit('a')
  await scene.submit('child', {parentJob: 'a', schedule: ''})
  await scene.run('a', NODES)
}

describe('an end of a launch on many nodes', () => {
  it('does not wait for an execution of another node', async () => {
    await withCluster(postgres, async ({scene, hold}) => {
      await aFanOut(scene)
      const ending = await scene.claimOne('n48')
      const holder = await hold(`SELECT FROM executions WHERE node_name = 'node-49' FOR UPDATE`)
      assert.equal((await scene.end(ending, 'succeeded')).kind, 'finished')
      await holder.release()
    })
  })

  it('locks dependent jobs only when the launch closes well', async () => {
    await withCluster(postgres, async ({scene, hold, waiting}) => {
      await aFanOut(scene)
      const claimed = []
      for (const id of NODES) claimed.push(await scene.claimOne(id))
      const last = claimed.pop()!
      const holder = await hold(`SELECT FROM jobs WHERE name = 'child' FOR UPDATE`)
      for (const each of claimed)
        assert.equal((await scene.end(each, 'succeeded')).kind, 'finished')
      const closing = scene.end(last, 'succeeded')
      await waiting(1)
      await holder.release()
      const outcome = await closing
      assert(outcome.kind === 'finished')
      assert.deepEqual(outcome.closed, {
        status: 'success',
        dependents: ['child'],
        wakesLauncher: true,
      })

      await scene.run('a', ['n10'])
      const failing = await scene.claimOne('n10')
      const again = await hold(`SELECT FROM jobs WHERE name = 'child' FOR UPDATE`)
      assert.equal((await scene.end(failing, 'failed')).kind, 'finished')
      await again.release()
    })
  })
})
