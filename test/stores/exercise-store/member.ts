/** Cases of membership: identities, names, heartbeats, fencing. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'

export function memberCases(when: Case): void {
  when('a member is stored whole', async (scene) => {
    scene.advance(5_000)
    assert.deepEqual(await scene.join('n2'), {kind: 'joined'})
    const members = await scene.store.members()
    assert.deepEqual(members[1], {
      id: 'n2',
      name: 'node-2',
      incarnation: 'n2-life-1',
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
    })
  })

  when('a name is one identity’s while its heartbeat is fresh', async (scene) => {
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

  when('a name is free at once when its holder left', async (scene) => {
    await scene.store.setMemberStatus({
      term: scene.term,
      nodeId: 'n1',
      incarnation: 'n1-life-1',
      status: 'left',
    })
    assert.deepEqual(await scene.join('n9', 'life', 'node-1'), {kind: 'joined'})
  })

  when('a returning identity is admitted at once and fences its earlier life', async (scene) => {
    const beat = (incarnation: string) =>
      scene.store.beat({nodeId: 'n1', incarnation, status: 'alive'})
    assert.equal(await beat('n1-life-1'), 'ok')
    assert.deepEqual(await scene.join('n1', 'n1-life-2'), {kind: 'joined'})
    assert.equal(await beat('n1-life-1'), 'fenced')
    assert.equal(await beat('n1-life-2'), 'ok')
    const stranger = {nodeId: 'n7', incarnation: 'x', status: 'alive'} as const
    assert.equal(await scene.store.beat(stranger), 'unknown')
    assert.equal((await scene.store.members()).length, 1)
  })

  when(
    'heartbeats carry the status; a status is set on the life it was meant for',
    async (scene) => {
      scene.advance(2_000)
      await scene.store.setMemberStatus({
        term: scene.term,
        nodeId: 'n1',
        incarnation: 'n1-life-1',
        status: 'failed',
      })
      assert.deepEqual(await scene.store.candidates(), [])
      await scene.store.beat({nodeId: 'n1', incarnation: 'n1-life-1', status: 'alive'})
      const [member] = await scene.store.members()
      assert.deepEqual([member!.status, member!.heartbeatAt], ['alive', scene.now])
      await scene.store.setMemberStatus({
        term: scene.term,
        nodeId: 'n1',
        incarnation: 'another life',
        status: 'failed',
      })
      assert.equal((await scene.store.members())[0]!.status, 'alive')
    },
  )
}
