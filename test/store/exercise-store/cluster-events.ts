/** Events of the cluster: written with the change that they are about, ended by the change that ends them. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import type {Scene} from './scene.ts'

const MINUTE = 60_000

/** Kinds of the events since the start, oldest first, with subject, age and length in ms. */
async function events(scene: Scene, from = 0): Promise<string[]> {
  const found = await scene.store.clusterEvents({from, to: scene.now + MINUTE, limit: 100})
  return found.toReversed().map(({kind, subject, at, until}) => {
    const length = until === null ? '' : ` for ${until - at}`
    return `${kind} ${subject} ${scene.now - at} ago${length}`
  })
}

export function clusterEventCases(when: Case): void {
  when('a node fails and comes back, its failure has a begin and an end', async (scene) => {
    const from = scene.now + 1
    scene.advance(MINUTE)
    await scene.join('n2')
    scene.advance(MINUTE)
    assert.equal(await scene.fail('n2', 'n2-incarnation-1'), true)
    assert.deepEqual(
      await events(scene, from),
      [`node_failed node-2 ${MINUTE} ago`, `node_joined node-2 ${MINUTE} ago`]
        .toSorted()
        .toReversed(),
    )
    scene.advance(MINUTE)
    await scene.setStatus('n2', 'n2-incarnation-1', 'alive')
    const failure = (await events(scene, from)).find((event) => event.startsWith('node_failed'))
    assert.equal(failure, `node_failed node-2 ${2 * MINUTE} ago for ${2 * MINUTE}`)
  })

  when('a node leaves, one event says so', async (scene) => {
    await scene.join('n2')
    const from = scene.now + 1
    scene.advance(MINUTE)
    await scene.setStatus('n2', 'n2-incarnation-1', 'leaving')
    await scene.setStatus('n2', 'n2-incarnation-1', 'left')
    await scene.setStatus('n2', 'n2-incarnation-1', 'left')
    assert.deepEqual(await events(scene, from), ['node_left node-2 0 ago'])
  })

  when('a lease expires, the time without a leader is known', async (scene) => {
    const {store, term} = scene
    await store.renewLease({term, holder: 'holder-1', ttlMs: MINUTE})
    const from = scene.now + 1
    scene.advance(3 * MINUTE)
    await scene.lead('holder-2')
    assert.deepEqual(await events(scene, from), [
      `no_leader  ${2 * MINUTE} ago for ${2 * MINUTE}`,
      'term_began node-1 0 ago',
    ])
    await store.resignLease({term: scene.term, holder: 'holder-2'})
    scene.advance(MINUTE)
    assert.equal((await events(scene, scene.now)).join(), `no_leader  ${MINUTE} ago`)
    await scene.lead('holder-3')
    assert.equal((await events(scene, scene.now))[0], `no_leader  ${MINUTE} ago for ${MINUTE}`)
  })

  when(
    'a lease is taken early, the time without a leader begins with its renewal',
    async (scene) => {
      const {store, term} = scene
      await store.renewLease({term, holder: 'holder-1', ttlMs: 6_000})
      const from = scene.now + 1
      scene.advance(3_000)
      const {isConnected: _isConnected, ...unchanged} = (await store.heldLease())!
      const request = {holder: 'holder-2', nodeId: 'n1', ttlMs: 6_000}
      await store.acquireLease({...request, unchanged})
      assert.deepEqual(await events(scene, from), [
        'no_leader  3000 ago for 3000',
        'term_began node-1 0 ago',
      ])
      scene.advance(8_000)
      await store.acquireLease({...request, storeFailed: true})
      const [last] = await store.clusterEvents({from, to: scene.now, limit: 1})
      assert.deepEqual([last!.kind, last!.detail], ['no_leader', 'store'])
    },
  )

  when('the clock is held, the event begins before the step', async (scene) => {
    const {store, term} = scene
    const from = scene.now + 1
    scene.advance(2 * MINUTE)
    await store.noteClockHeld({term, heldMs: MINUTE})
    assert.deepEqual(await events(scene, from), [`clock_held  ${MINUTE} ago`])
    await store.noteClockHeld({term, heldMs: null})
    assert.deepEqual(await events(scene, from), [`clock_held  ${MINUTE} ago for ${MINUTE}`])
  })

  when('events are more than a year old, they are deleted', async (scene) => {
    const {term, store} = scene
    const stored = async () =>
      (await store.clusterEvents({from: 0, to: scene.now + MINUTE, limit: 9})).length
    assert.notEqual(await stored(), 0)
    scene.advance(401 * 24 * 60 * MINUTE)
    const keep = {
      keepLaunches: 1,
      keepExecutions: 1_000,
      keepUnlaunched: 1,
      keepMs: null,
      keepOutputBytes: 1e9,
    }
    await store.prune({term, round: 'other', ...keep, after: 0, jobLimit: 1, rowLimit: 100})
    assert.equal(await stored(), 0)
  })
}
