/** The lease: one holder at a time, growing terms, and no writes of a deposed leader. */
import assert from 'node:assert/strict'
import {TermOver} from '../../../src/ports/store-errors.ts'
import type {Case} from './case.ts'
import type {Scene} from './scene.ts'

function acquire(scene: Scene, holder: string) {
  return scene.store.acquireLease({holder, nodeId: `node of ${holder}`, ttlMs: 6_000})
}

export function leaseCases(when: Case): void {
  when('a valid lease cannot be taken, an expired one can, with a higher term', async (scene) => {
    assert.equal(await acquire(scene, 'other'), null)
    scene.advance(5_999)
    assert.equal(await acquire(scene, 'other'), null)
    scene.advance(1)
    assert.equal(await scene.store.leader(), null)
    const lease = await acquire(scene, 'other')
    assert(lease !== null && lease.term > scene.term)
    assert.equal(lease.expiresAt, scene.now + 6_000)
    const leader = await scene.store.leader()
    assert.deepEqual(leader, {...lease, nodeId: 'node of other'})
  })

  when(
    'a valid lease can be taken by a node that observed it unchanged, unless it changed since',
    async (scene) => {
      const {store, term} = scene
      const request = {holder: 'other', nodeId: 'n2', ttlMs: 6_000}
      const unchanged = await store.heldLease()
      const {isConnected, ...held} = unchanged!
      assert.deepEqual(held, {term, holder: 'holder-1', expiresAt: scene.now + 6_000})
      assert.notEqual(isConnected, false)
      scene.advance(1_000)
      assert.equal(await store.renewLease({term, holder: 'holder-1', ttlMs: 6_000}), true)
      assert.equal(await store.acquireLease({...request, unchanged}), null)
      const renewed = await store.heldLease()
      for (const other of [{term: term + 1}, {holder: 'another'}, {expiresAt: scene.now}])
        assert.equal(
          await store.acquireLease({...request, unchanged: {...renewed!, ...other}}),
          null,
        )
      const lease = await store.acquireLease({...request, unchanged: renewed})
      assert.deepEqual(lease, {term: term + 1, expiresAt: scene.now + 6_000})
      assert.equal(await store.renewLease({term, holder: 'holder-1', ttlMs: 6_000}), false)
      await store.resignLease({term: term + 1, holder: 'other'})
      assert.equal(await store.heldLease(), null)
    },
  )

  when('an expired lease stays in the row until it is taken', async (scene) => {
    const held = await scene.store.heldLease()
    scene.advance(60_000)
    assert.deepEqual(await scene.store.heldLease(), held)
  })

  when('a late renewal keeps the term if no other node took the lease', async (scene) => {
    const {term} = scene
    const renew = () => scene.store.renewLease({term, holder: 'holder-1', ttlMs: 6_000})
    scene.advance(5_000)
    assert.equal(await renew(), true)
    scene.advance(5_000)
    assert.equal(await acquire(scene, 'other'), null)
    scene.advance(60_000)
    assert.equal(await renew(), true)
    scene.advance(60_000)
    await acquire(scene, 'other')
    assert.equal(await renew(), false)
    const wrong = await scene.store.renewLease({term: term + 1, holder: 'holder-1', ttlMs: 6_000})
    assert.equal(wrong, false)
  })

  when('resigning releases the lease at once and ends the term', async (scene) => {
    const {term} = scene
    await scene.store.resignLease({term, holder: 'another holder'})
    assert.equal(await acquire(scene, 'other'), null)
    await scene.store.resignLease({term, holder: 'holder-1'})
    assert.equal(await scene.store.leader(), null)
    await assert.rejects(scene.store.applyLaunches({term, dues: [], requests: []}), TermOver)
    const lease = await acquire(scene, 'other')
    assert(lease !== null && lease.term > term)
  })

  when('every write of a deposed leader is fenced and changes nothing', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    const {term, store} = scene
    scene.advance(6_000)
    await scene.lead('successor')
    const key = {group, node: 'node-1', attempt: 1}
    const to = {nodeId: 'n2', nodeName: 'node-2'}
    const keep = {
      keepLaunches: 0,
      keepExecutions: 1_000,
      keepUnlaunched: 0,
      keepMs: null,
      keepOutputBytes: 0,
    }
    const lost = {
      nodeId: 'n1',
      exceptIncarnation: null,
      observed: null,
      reason: 'node_lost',
      limit: 9,
    } as const
    await assert.rejects(store.applyLaunches({term, dues: [], requests: []}), TermOver)
    await assert.rejects(store.applyReassignments({term, moves: [{key, to}]}), TermOver)
    const observed = {incarnation: 'n1-incarnation-1', heartbeatAt: scene.opened.startedAt}
    await assert.rejects(store.failMember({term, nodeId: 'n1', observed}), TermOver)
    await assert.rejects(store.endStuck({term, executions: [{key, nodeId: 'n1'}]}), TermOver)
    await assert.rejects(store.markLost({...lost, term, jitter: 0}), TermOver)
    const piece = {round: 'all' as const, after: 0, jobLimit: 9, rowLimit: 9}
    await assert.rejects(store.prune({term, ...keep, ...piece}), TermOver)
    assert.equal((await scene.end(claimed, 'succeeded')).kind, 'finished')
  })
}
