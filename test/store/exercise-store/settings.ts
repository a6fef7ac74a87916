/** Settings of the whole store: its info, policies, the time zone, readiness, closing. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'

export function settingsCases(when: Case): void {
  when('the info has engine, schema, identity and durability', async (scene) => {
    const info = await scene.store.info()
    assert.notEqual(info.engineVersion, '')
    assert(info.schemaVersion >= 1)
    assert.notEqual(info.clusterId, '')
    assert.notEqual(info.incarnation, info.clusterId)
    assert.deepEqual(info.warnings, [])
    assert(Object.keys(info.durability).length > 0)
  })

  when('the first time zone stays', async (scene) => {
    assert.equal(await scene.store.agreeTimezone('Europe/Berlin'), 'UTC')
  })

  when('the readiness probe writes and reads', async (scene) => {
    await scene.store.probe()
  })

  when('policies are stored by name', async (scene) => {
    const {store} = scene
    assert.deepEqual(await store.policies(), [])
    await store.putPolicy({name: 'b', rules: '{"x": 1}'})
    await store.putPolicy({name: 'a', rules: ''})
    await store.putPolicy({name: 'b', rules: 'new €'})
    assert.deepEqual(await store.policies(), [
      {name: 'a', rules: ''},
      {name: 'b', rules: 'new €'},
    ])
    assert.deepEqual(await store.policy('b'), {name: 'b', rules: 'new €'})
    assert.equal(await store.policy('c'), null)
    assert.deepEqual(await store.deletePolicy('b'), {name: 'b', rules: 'new €'})
    assert.equal(await store.deletePolicy('b'), null)
  })

  when('an acknowledged write is visible to the next read', async (scene) => {
    for (let index = 0; index < 50; index += 1) {
      await scene.store.putPolicy({name: 'p', rules: String(index)})
      assert.equal((await scene.store.policy('p'))!.rules, String(index))
    }
  })

  when('launch numbers grow and are never reused', async (scene) => {
    await scene.submit('a')
    const first = await scene.complete('a', 'succeeded')
    await scene.store.deleteJob('a')
    const keep = {keepLaunches: 0, keepUnlaunched: 0, keepMs: 0, keepOutputBytes: 0}
    const piece = {round: 'all' as const, after: 0, jobLimit: 10, rowLimit: 10}
    await scene.store.prune({term: scene.term, ...keep, ...piece})
    await scene.submit('a')
    assert((await scene.run('a')) > first)
  })

  when('a closed store refuses requests, and can be closed twice', async (scene) => {
    const {store} = scene
    await Promise.all([store.putPolicy({name: 'last', rules: ''}), store.close()])
    await store.close()
    await assert.rejects(store.putPolicy({name: 'x', rules: ''}), {name: 'StoreUnavailable'})
    await assert.rejects(store.policies(), {name: 'StoreUnavailable'})
  })
}
