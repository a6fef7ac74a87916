/** Stuck executions: pending ones that no node claims, and their move to other nodes. */
import assert from 'node:assert/strict'
import {lostLine} from '../../../src/core/execution.ts'
import type {Position} from '../../../src/ports/page.ts'
import type {Case} from './case.ts'
import {MINUTE, type Scene} from './scene.ts'

const UNCLAIMED = {unclaimedMs: 3_000, after: null, limit: 10}

async function stuckNodes(scene: Scene): Promise<string[]> {
  const {executions} = await scene.store.loadStuck(UNCLAIMED)
  return executions.map(({execution}) => execution.node)
}

export function reassignCases(when: Case): void {
  movingCases(when)
  noFreeSlotCases(when)
  endingCases(when)
}

/** A launch of `a` on `n2`, and perhaps others, that has not been claimed. */
async function waitingFor(scene: Scene, nodes: readonly string[] = ['n2']) {
  for (const id of nodes) await scene.join(id)
  await scene.submit('a', {retries: 3})
  const group = await scene.run('a', nodes)
  const executions = nodes.map((nodeId) => ({
    key: {group, node: nodeId.replace('n', 'node-'), attempt: 1},
    nodeId,
  }))
  const end = () => scene.store.endStuck({term: scene.term, executions})
  return {group, end}
}

function noFreeSlotCases(when: Case): void {
  when(
    'without a free slot, only executions of nodes that do not work are stuck',
    async (scene) => {
      await waitingFor(scene, ['n2', 'n3'])
      scene.advance(MINUTE)
      const stuckIf = async (canMove: boolean) => {
        const {executions} = await scene.store.loadStuck({...UNCLAIMED, canMove})
        return executions.map(({execution}) => execution.node)
      }
      assert.deepEqual(await stuckIf(true), ['node-2', 'node-3'])
      assert.deepEqual(await stuckIf(false), [])
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      assert.deepEqual(await stuckIf(false), ['node-2'])
    },
  )
}

function endingCases(when: Case): void {
  when('an execution that no node may run is lost, counted, and not retried', async (scene) => {
    const {group, end} = await waitingFor(scene)
    await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
    scene.advance(MINUTE)
    const [outcome, ...others] = await end()
    assert(outcome?.kind === 'finished' && others.length === 0)
    const {status, reason, startedAt, finishedAt, outputFoot} = outcome.execution
    assert.deepEqual([status, reason, startedAt], ['lost', 'no_target', null])
    assert.deepEqual([finishedAt, outputFoot], [scene.now, lostLine('no_target')])
    assert.deepEqual([outcome.retry, outcome.closed?.status], [null, 'failed'])
    const job = await scene.job('a')
    assert.deepEqual([job.counters.errorCount, job.status], [1, 'failed'])
    const launch = (await scene.store.launch('a', group))!
    assert.deepEqual([launch.open, launch.nodeDeaths, launch.executions.length], [false, 0, 1])
    assert.deepEqual(await end(), [], 'repeated, nothing is left to end')
  })

  when('executions of the same launch on other nodes are still retried', async (scene) => {
    const {group, end} = await waitingFor(scene, ['n2', 'n3'])
    await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
    const [outcome, ...others] = await end()
    assert(outcome?.kind === 'finished' && others.length === 0)
    assert.deepEqual([outcome.execution.node, outcome.closed], ['node-2', null])
    const failed = await scene.end(await scene.claimOne('n3'), 'failed')
    assert(failed.kind === 'finished')
    assert.deepEqual(failed.retry!.key, {group, node: 'node-3', attempt: 2})
    scene.advance(MINUTE)
    const last = await scene.end(await scene.claimOne('n3'), 'succeeded')
    assert(last.kind === 'finished')
    assert.equal(last.closed!.status, 'partially_failed')
  })

  when(
    'a node that returned, is leaving or claimed keeps its execution; a removed one does not',
    async (scene) => {
      const {end} = await waitingFor(scene)
      assert.deepEqual(await end(), [])
      await scene.setStatus('n2', 'n2-incarnation-1', 'leaving')
      assert.deepEqual(await end(), [])
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      await scene.store.removeMember({nodeId: 'n2', limit: 9, jitter: 0.5})
      await scene.join('n2')
      assert.deepEqual(await end(), [])
      assert.equal((await scene.claim('n2')).length, 1)
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      assert.deepEqual(await end(), [])
      await scene.run('a', ['n7'])
      const {executions} = await scene.store.loadStuck(UNCLAIMED)
      const [stuck] = executions.map(({execution: key, nodeId}) => ({key, nodeId}))
      const other = {...stuck!, nodeId: 'n8'}
      assert.deepEqual(await scene.store.endStuck({term: scene.term, executions: [other]}), [])
      const ended = await scene.store.endStuck({term: scene.term, executions: [stuck!]})
      assert.equal(ended.length, 1)
    },
  )

  when('a node that returned without running jobs does not keep its execution', async (scene) => {
    const {end} = await waitingFor(scene)
    const [member] = (await scene.store.members()).filter(({id}) => id === 'n2')
    await scene.store.join({member: {...member!, incarnation: 'n2-incarnation-2', runs: false}}, 0)
    assert.equal((await end()).length, 1)
  })
}

function movingCases(when: Case): void {
  when(
    'an execution is stuck if it is unclaimed for long or its node is not alive',
    async (scene) => {
      await scene.join('n2')
      await scene.join('n4')
      const job = await scene.submit('a')
      const group = await scene.run('a', ['n1', 'n2', 'n3', 'n4'])
      await scene.setStatus('n4', 'n4-incarnation-1', 'failed')
      assert.deepEqual(await stuckNodes(scene), ['node-3', 'node-4'])
      scene.advance(2_999)
      assert.deepEqual(await stuckNodes(scene), ['node-3', 'node-4'])
      await scene.claim('n2')
      scene.advance(1)
      const {executions, now} = await scene.store.loadStuck(UNCLAIMED)
      assert.equal(now, scene.now)
      assert.deepEqual(
        executions.map(({execution}) => execution.node),
        ['node-1', 'node-3', 'node-4'],
      )
      const [unclaimed, ofNonMember, ofFailed] = [executions[0]!, executions[1]!, executions[2]!]
      const heartbeatAt = scene.opened.startedAt
      assert.deepEqual(unclaimed.member, {
        status: 'alive',
        runs: true,
        cordonedAt: null,
        heartbeatAt,
      })
      assert.deepEqual(ofNonMember.member, null)
      assert.deepEqual(ofFailed.member, {
        status: 'failed',
        runs: true,
        cordonedAt: null,
        heartbeatAt,
      })
      assert.deepEqual(
        [unclaimed.nodeId, unclaimed.cause, unclaimed.execution.group],
        ['n1', 'manual', group],
      )
      assert.deepEqual(unclaimed.usedNodes, ['node-1', 'node-2', 'node-3', 'node-4'])
      assert.deepEqual(unclaimed.job, job)
    },
  )

  when('stuck executions are read in pages, also those of one launch', async (scene) => {
    await scene.submit('a')
    const groups = [
      await scene.run('a'),
      await scene.run('a', ['n1', 'n2', 'n3']),
      await scene.run('a'),
    ]
    scene.advance(3_000)
    const pages: string[][] = []
    for (let after: Position | null = null, more = true; more;) {
      const {executions, next} = await scene.store.loadStuck({...UNCLAIMED, after, limit: 2})
      pages.push(executions.map(({execution: {group, node}}) => `${groups.indexOf(group)} ${node}`))
      after = next
      more = next !== null
    }
    assert.deepEqual(pages, [['0 node-1', '1 node-1'], ['1 node-2', '1 node-3'], ['2 node-1']])
  })

  when('only its new node claims a moved execution', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    const group = await scene.run('a')
    scene.advance(3_000)
    const move = {
      key: {group, node: 'node-1', attempt: 1},
      to: {nodeId: 'n2', nodeName: 'node-2'},
    }
    const {term, store} = scene
    assert.deepEqual(await store.applyReassignments({term, moves: [move, move]}), [
      'applied',
      'conflict',
    ])
    assert.deepEqual(await stuckNodes(scene), [])
    assert.deepEqual(await scene.claim('n1'), [])
    const {execution} = await scene.claimOne('n2')
    assert.deepEqual([execution.node, execution.slot], ['node-2', 0])
  })

  when(
    'a claimed execution, or one that would collide with another target, does not move',
    async (scene) => {
      await scene.join('n2')
      await scene.submit('a')
      const group = await scene.run('a', ['n1', 'n2'])
      const key = {group, node: 'node-1', attempt: 1}
      const {term, store} = scene
      const taken = {key, to: {nodeId: 'n2', nodeName: 'node-2'}}
      assert.deepEqual(await store.applyReassignments({term, moves: [taken]}), ['conflict'])
      await scene.claim('n1')
      const claimed = {key, to: {nodeId: 'n3', nodeName: 'node-3'}}
      assert.deepEqual(await store.applyReassignments({term, moves: [claimed]}), ['conflict'])
    },
  )

  when('an execution may move to another identity with the name of its node', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    scene.advance(10_000)
    await scene.join('n9', 'n9-incarnation-1', 'node-1')
    const key = {group, node: 'node-1', attempt: 1}
    const moves = [{key, to: {nodeId: 'n9', nodeName: 'node-1'}}]
    assert.deepEqual(await scene.store.applyReassignments({term: scene.term, moves}), ['applied'])
    assert.deepEqual((await scene.claimOne('n9')).execution.group, group)
  })
}
