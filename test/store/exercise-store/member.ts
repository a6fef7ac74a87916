/** Membership: identities, names, heartbeats, fencing. */
import assert from 'node:assert/strict'
import type {MemberStatus} from '../../../src/core/node.ts'
import type {Case} from './case.ts'
import {DAY} from './scene.ts'
import {beatAs} from '../../support/single-calls.ts'

export function memberCases(when: Case): void {
  when('a member is stored with every field', async (scene) => {
    scene.advance(5_000)
    assert.deepEqual(await scene.join('n2'), {kind: 'joined'})
    const members = await scene.store.members()
    assert.deepEqual(members[1], {
      id: 'n2',
      name: 'node-2',
      incarnation: 'n2-incarnation-1',
      address: '127.0.0.1',
      port: 8080,
      tags: {node: 'node-2'},
      server: true,
      runs: true,
      version: '1',
      slots: 8,
      status: 'alive',
      startedAt: scene.now,
      heartbeatAt: scene.now,
      cordonedAt: null,
      drainUntil: null,
    })
  })

  when('a heartbeat that a wrong clock stored in the future keeps no name', async (scene) => {
    scene.advance(DAY)
    await beatAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', status: 'alive'})
    scene.advance(-DAY)
    assert.deepEqual(await scene.join('n9', 'life', 'node-1'), {kind: 'joined'})
  })

  when('a name belongs to one identity while its heartbeat is fresh', async (scene) => {
    assert.deepEqual(await scene.join('n9', 'life', 'node-1'), {kind: 'taken', by: 'n1'})
    scene.advance(10_000)
    assert.deepEqual(await scene.join('n9', 'life', 'node-1'), {kind: 'joined'})
    const members = await scene.store.members()
    assert.deepEqual(
      members.map(({id, name, status}) => [id, name, status]),
      [
        ['n1', 'node-1', 'failed'],
        ['n9', 'node-1', 'alive'],
      ],
    )
  })

  when('a name is free at once after its holder left', async (scene) => {
    await scene.setStatus('n1', 'n1-incarnation-1', 'left')
    assert.deepEqual(await scene.join('n9', 'life', 'node-1'), {kind: 'joined'})
  })

  when(
    'a returning identity is admitted at once and fences its previous incarnation',
    async (scene) => {
      const beat = (incarnation: string) =>
        beatAs(scene.store, {nodeId: 'n1', incarnation, status: 'alive'})
      assert.equal(await beat('n1-incarnation-1'), 'ok')
      assert.deepEqual(await scene.join('n1', 'n1-incarnation-2'), {kind: 'joined'})
      assert.equal(await beat('n1-incarnation-1'), 'fenced')
      assert.equal(await beat('n1-incarnation-2'), 'ok')
      const stranger = {nodeId: 'n7', incarnation: 'x', status: 'alive'} as const
      assert.equal(await beatAs(scene.store, stranger), 'unknown')
      assert.equal((await scene.store.members()).length, 1)
    },
  )

  when(
    'a newcomer that cannot name the incarnation that sends heartbeats is not admitted',
    async (scene) => {
      const [member] = await scene.store.members()
      const newcomer = {...member!, incarnation: 'n1-incarnation-2'}
      const join = (ended: readonly string[], name = member!.name) =>
        scene.store.join({member: {...newcomer, name}, ended}, 10_000)
      assert.deepEqual(await join([]), {kind: 'alive', member})
      assert.deepEqual(await join(['n1-incarnation-0'], 'renamed'), {kind: 'alive', member})
      assert.deepEqual(await scene.store.members(), [member])

      assert.deepEqual(await join(['n1-incarnation-0', 'n1-incarnation-1']), {kind: 'joined'})
      assert.deepEqual(await join([]), {kind: 'joined'}, 'it joins again itself')
    },
  )

  when(
    'a newcomer is admitted when its other incarnation left, failed or is silent',
    async (scene) => {
      const join = async (id: string) => {
        const member = (await scene.store.members()).find((each) => each.id === id)
        const newcomer = {...member!, incarnation: `${id}-incarnation-2`}
        return (await scene.store.join({member: newcomer, ended: []}, 10_000)).kind
      }
      for (const id of ['n2', 'n3', 'n4']) await scene.join(id)
      await scene.setStatus('n2', 'n2-incarnation-1', 'left')
      assert.equal(await join('n2'), 'joined')
      await scene.setStatus('n3', 'n3-incarnation-1', 'failed')
      assert.equal(await join('n3'), 'joined')
      await scene.setStatus('n4', 'n4-incarnation-1', 'leaving')
      assert.equal(await join('n4'), 'alive')
      scene.advance(10_000)
      assert.equal(await join('n4'), 'joined')
    },
  )

  when(
    'a heartbeat stores the status, and a failure applies only to the observed incarnation',
    async (scene) => {
      scene.advance(2_000)
      assert.equal(await scene.fail('n1', 'n1-incarnation-1'), true)
      assert.deepEqual(await scene.store.candidates(), [])
      await beatAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', status: 'alive'})
      const [member] = await scene.store.members()
      assert.deepEqual([member!.status, member!.heartbeatAt], ['alive', scene.now])
      assert.equal(await scene.fail('n1', 'another incarnation'), false)
      assert.equal((await scene.store.members())[0]!.status, 'alive')
    },
  )

  when('a node that sent a heartbeat or left meanwhile is not marked as failed', async (scene) => {
    const {term, now: heartbeatAt} = scene
    const failure = {term, nodeId: 'n1', observed: {incarnation: 'n1-incarnation-1', heartbeatAt}}
    const statusAfter = async (status: 'alive' | 'leaving' | 'left') => {
      await beatAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', status})
      assert.equal(await scene.store.failMember(failure), false)
      return (await scene.store.members())[0]!.status
    }
    assert.equal(await statusAfter('left'), 'left')
    scene.advance(1)
    for (const status of ['alive', 'leaving', 'left'] as const)
      assert.equal(await statusAfter(status), status)
  })

  when(
    'a name that another node took does not return to its old holder while that node is present',
    async (scene) => {
      const beat = (nodeId: string, incarnation: string, status: MemberStatus = 'alive') =>
        beatAs(scene.store, {nodeId, incarnation, status})
      scene.advance(10_000)
      assert.deepEqual(await scene.join('n9', 'n9-incarnation', 'node-1'), {kind: 'joined'})
      const before = await scene.store.members()
      for (const status of ['alive', 'leaving', 'failed'] as const)
        assert.equal(await beat('n1', 'n1-incarnation-1', status), 'taken')
      assert.deepEqual(await scene.store.members(), before)
      assert.equal(await beat('n9', 'n9-incarnation', 'leaving'), 'ok')
      assert.equal(await beat('n1', 'n1-incarnation-1'), 'taken')
      assert.equal(await beat('n9', 'n9-incarnation', 'left'), 'ok')
      assert.equal(await beat('n1', 'n1-incarnation-1'), 'ok')
      assert.equal(await beat('n9', 'n9-incarnation'), 'taken')
    },
  )

  when('an old holder of a name may still report that it left', async (scene) => {
    scene.advance(10_000)
    await scene.join('n9', 'n9-incarnation', 'node-1')
    const left = {nodeId: 'n1', incarnation: 'n1-incarnation-1', status: 'left'} as const
    assert.equal(await beatAs(scene.store, left), 'ok')
    assert.deepEqual(
      (await scene.store.members()).map(({id, status}) => [id, status]),
      [
        ['n1', 'left'],
        ['n9', 'alive'],
      ],
    )
  })

  when(
    'the name of a failed node is free, and returns to it if the next holder fails too',
    async (scene) => {
      await scene.setStatus('n1', 'n1-incarnation-1', 'failed')
      assert.deepEqual(await scene.join('n9', 'n9-incarnation', 'node-1'), {kind: 'joined'})
      await scene.setStatus('n9', 'n9-incarnation', 'failed')
      const life = {nodeId: 'n1', incarnation: 'n1-incarnation-1', status: 'alive'} as const
      assert.equal(await beatAs(scene.store, life), 'ok')
      assert.equal(await beatAs(scene.store, {...life, incarnation: 'another'}), 'fenced')
    },
  )

  when('an old holder of a name claims no execution that waited for it', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    scene.advance(10_000)
    await scene.join('n9', 'n9-incarnation', 'node-1')
    assert.deepEqual(await scene.claim('n1'), [])
  })
}
