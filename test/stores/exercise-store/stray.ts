/** Cases of pending executions that nobody takes, and of giving them to other nodes. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import type {Scene} from './scene.ts'

const UNCLAIMED = {unclaimedMs: 3_000, afterGroup: 0, limit: 10}

async function strayNodes(scene: Scene): Promise<string[]> {
  const {strays} = await scene.store.loadStray(UNCLAIMED)
  return strays.map(({execution}) => execution.node)
}

export function strayCases(when: Case): void {
  when('an execution is stray when unclaimed for long, or its node is not alive', async (scene) => {
    await scene.join('n2')
    await scene.join('n4')
    const job = await scene.submit('a')
    const group = await scene.run('a', ['n1', 'n2', 'n3', 'n4'])
    await scene.store.setMemberStatus({
      term: scene.term,
      nodeId: 'n4',
      incarnation: 'n4-life-1',
      status: 'failed',
    })
    assert.deepEqual(await strayNodes(scene), ['node-3', 'node-4'])
    scene.advance(2_999)
    assert.deepEqual(await strayNodes(scene), ['node-3', 'node-4'])
    await scene.claim('n2')
    scene.advance(1)
    const {strays, now} = await scene.store.loadStray(UNCLAIMED)
    assert.equal(now, scene.now)
    assert.deepEqual(
      strays.map(({execution}) => execution.node),
      ['node-1', 'node-3', 'node-4'],
    )
    const stray = strays[0]!
    assert.deepEqual([stray.nodeId, stray.cause, stray.execution.group], ['n1', 'manual', group])
    assert.deepEqual(stray.usedNodes, ['node-1', 'node-2', 'node-3', 'node-4'])
    assert.deepEqual(stray.job, job)
  })

  when('strays are read page by page', async (scene) => {
    await scene.submit('a')
    const groups = [await scene.run('a'), await scene.run('a'), await scene.run('a')]
    scene.advance(3_000)
    const page = async (afterGroup: number) => {
      const {strays} = await scene.store.loadStray({unclaimedMs: 3_000, afterGroup, limit: 2})
      return strays.map(({execution}) => execution.group)
    }
    assert.deepEqual(await page(0), groups.slice(0, 2))
    assert.deepEqual(await page(groups[1]!), groups.slice(2))
    assert.deepEqual(await page(groups[2]!), [])
  })

  when('a moved execution is claimed by its new node only', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    const group = await scene.run('a')
    scene.advance(3_000)
    const move = {
      key: {group, node: 'node-1', attempt: 1},
      to: {nodeId: 'n2', nodeName: 'node-2'},
    }
    const {term, store} = scene
    assert.deepEqual(await store.applyMoves({term, moves: [move, move]}), ['applied', 'conflict'])
    assert.deepEqual(await strayNodes(scene), [])
    assert.deepEqual(await scene.claim('n1'), [])
    const {execution} = await scene.claimOne('n2')
    assert.deepEqual([execution.node, execution.slot], ['node-2', 0])
  })

  when(
    'what is claimed, or would meet another target of the launch, does not move',
    async (scene) => {
      await scene.join('n2')
      await scene.submit('a')
      const group = await scene.run('a', ['n1', 'n2'])
      const key = {group, node: 'node-1', attempt: 1}
      const {term, store} = scene
      const taken = {key, to: {nodeId: 'n2', nodeName: 'node-2'}}
      assert.deepEqual(await store.applyMoves({term, moves: [taken]}), ['conflict'])
      await scene.claim('n1')
      const claimed = {key, to: {nodeId: 'n3', nodeName: 'node-3'}}
      assert.deepEqual(await store.applyMoves({term, moves: [claimed]}), ['conflict'])
    },
  )

  when('another identity under the name of its node may have it', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    scene.advance(10_000)
    await scene.join('n9', 'n9-life-1', 'node-1')
    const key = {group, node: 'node-1', attempt: 1}
    const moves = [{key, to: {nodeId: 'n9', nodeName: 'node-1'}}]
    assert.deepEqual(await scene.store.applyMoves({term: scene.term, moves}), ['applied'])
    assert.deepEqual((await scene.claimOne('n9')).execution.group, group)
  })
}
