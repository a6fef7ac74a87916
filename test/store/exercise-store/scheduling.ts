/** Cordon and drain: what a node may claim, what moves from it, and what it must stop. */
import assert from 'node:assert/strict'
import {type SchedulingChange, schedulingOf} from '../../../src/core/node.ts'
import {claimAs} from '../../support/single-calls.ts'
import type {Case} from './case.ts'
import {anEnd, MINUTE, type Scene} from './scene.ts'

const DRAIN = {kind: 'drain', deadlineMs: MINUTE} as const

async function set(scene: Scene, change: SchedulingChange) {
  const member = await scene.store.setScheduling({nodeId: 'n2', change})
  assert(member !== null)
  return member
}

async function stateOf(scene: Scene): Promise<string> {
  const member = (await scene.store.members()).find(({id}) => id === 'n2')!
  const load = (await scene.store.nodeLoads()).find(({nodeId}) => nodeId === 'n2')!
  return schedulingOf(member, load.running)
}

export function schedulingCases(when: Case): void {
  when('a cordoned node claims nothing, its work is stuck, and may end as lost', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    const group = await scene.run('a', ['n2'])
    const key = {group, node: 'node-2', attempt: 1}
    const end = () => scene.store.endStuck({term: scene.term, executions: [{key, nodeId: 'n2'}]})
    const stuck = async () => {
      const request = {unclaimedMs: MINUTE, canMove: false, after: null, limit: 9} as const
      const pages = await Promise.all([
        scene.store.loadStuck(request),
        scene.store.loadStuck({...request, of: 'gone_nodes'}),
      ])
      return pages.map(({executions}) => executions[0]?.member?.cordonedAt)
    }
    assert.deepEqual([await stuck(), await end()], [[undefined, undefined], []])
    await set(scene, {kind: 'cordon'})
    assert.deepEqual(await scene.claim('n2'), [])
    assert.deepEqual(await stuck(), [scene.now, scene.now])
    const loads = await scene.store.nodeLoads()
    assert.deepEqual(
      loads.find(({nodeId}) => nodeId === 'n2'),
      {
        nodeId: 'n2',
        running: 0,
        waiting: 1,
      },
    )
    const nodes = (await scene.store.candidates()).map(({id, isCordoned}) => [id, isCordoned])
    assert.deepEqual(nodes, [
      ['n1', undefined],
      ['n2', true],
    ])
    assert.equal((await end()).length, 1)
  })

  when('a claim says that the node is cordoned; an uncordoned node claims again', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    await scene.run('a', ['n2'])
    const claim = async (token: string) => {
      const request = {nodeId: 'n2', incarnation: 'n2-incarnation-1', token, room: 5}
      const {claimed, isCordoned, waiting} = await claimAs(scene.store, request)
      return [claimed.length, isCordoned, waiting]
    }
    await set(scene, DRAIN)
    assert.deepEqual(await claim('t1'), [0, true, 0])
    await set(scene, {kind: 'uncordon'})
    assert.deepEqual(await claim('t2'), [1, false, 0])
    await set(scene, {kind: 'cordon'})
    assert.deepEqual(await claim('t2'), [1, true, 0], 'a repeated claim keeps what it took')
  })

  when('after its deadline, a drain stops what runs, and it is retried', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    await scene.run('a', ['n2'])
    const claimed = await scene.claimOne('n2')
    await set(scene, DRAIN)
    assert.deepEqual([await scene.store.cancelled('n2'), await stateOf(scene)], [[], 'draining'])
    scene.advance(MINUTE)
    const {group, node, attempt} = claimed.execution
    assert.deepEqual(await scene.store.cancelled('n2'), [{group, node, attempt}])
    assert.equal(await stateOf(scene), 'draining')
    await set(scene, {kind: 'uncordon'})
    assert.deepEqual([await scene.store.cancelled('n2'), await stateOf(scene)], [[], 'active'])
    const outcome = await scene.end(claimed, 'cancelled')
    assert(outcome.kind === 'finished')
    const {status, reason, outputFoot} = outcome.execution
    assert.deepEqual([status, reason], ['lost', 'node_drained'])
    assert.match(outputFoot, /lost: the node was drained/)
    assert.equal(outcome.retry?.key.attempt, 2)
    await set(scene, DRAIN)
    assert.equal(await stateOf(scene), 'drained')
  })

  when(
    'what a drain stopped is retried, however its end and the next changes fall',
    async (scene) => {
      const changes: readonly SchedulingChange[][] = [
        [],
        [{kind: 'cordon'}],
        [DRAIN],
        [{kind: 'uncordon'}],
        [{kind: 'uncordon'}, {kind: 'cordon'}],
        [{kind: 'uncordon'}, DRAIN, {kind: 'uncordon'}],
      ]
      await scene.join('n2')
      await scene.submit('a', {retries: 1})
      for (const after of changes) {
        await scene.run('a', ['n2'])
        const claimed = await scene.claimOne('n2')
        await set(scene, DRAIN)
        scene.advance(MINUTE)
        assert.equal((await scene.store.cancelled('n2')).length, 1)
        for (const change of after) await set(scene, change)
        const end = anEnd(claimed, 'cancelled')
        const [outcome] = await scene.store.finish([end])
        assert(outcome?.kind === 'finished')
        const {status, reason} = outcome.execution
        const found = [status, reason, outcome.retry?.key.attempt]
        assert.deepEqual(found, ['lost', 'node_drained', 2], JSON.stringify(after))
        assert.equal((await scene.store.finish([end]))[0]?.kind, 'already')
        const stored = await scene.store.execution('a', claimed.execution, 0)
        assert.equal(stored?.lateResult, '', 'a repeated report is no late result')
        await set(scene, {kind: 'uncordon'})
        await scene.store.cancelExecution('a', outcome.retry!.key)
      }
    },
  )

  when('an uncordon deletes the deadline of a drain', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    const kept = await scene.run('a', ['n2'])
    await scene.claimOne('n2')
    await set(scene, DRAIN)
    scene.advance(MINUTE)
    assert.equal((await set(scene, {kind: 'uncordon'})).drainUntil, null)
    await scene.setStatus('n2', 'n2-incarnation-1', 'left')
    await scene.join('n2', 'n2-incarnation-2')
    await scene.run('a', ['n2'])
    const request = {nodeId: 'n2', incarnation: 'n2-incarnation-2', token: 't', room: 1}
    const [claimed] = (await claimAs(scene.store, request)).claimed
    scene.advance(MINUTE)
    assert.equal((await set(scene, {kind: 'cordon'})).drainUntil, null)
    assert.deepEqual(await scene.store.cancelled('n2'), [], `also of launch ${kept}`)
    assert.equal(await stateOf(scene), 'cordoned')
    const outcome = await scene.end(claimed!, 'succeeded')
    assert(outcome.kind === 'finished')
    assert.equal(outcome.execution.status, 'succeeded')
  })

  when('a stop without a request or a drain is lost, and retried', async (scene) => {
    await scene.submit('a', {retries: 1})
    await scene.run('a')
    const outcome = await scene.end(await scene.claimOne(), 'cancelled', {foot: 'stopped\n'})
    assert(outcome.kind === 'finished')
    const {status, reason, outputFoot} = outcome.execution
    assert.deepEqual([status, reason], ['lost', 'not_requested'])
    assert.equal(
      outputFoot,
      'stopped\nlost: the node stopped it, although no cancel was requested\n',
    )
    assert.equal(outcome.retry?.key.attempt, 2)
  })

  when('a released claim has not been stopped by a drain any more', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    await scene.run('a', ['n2'])
    const {execution, token} = await scene.claimOne('n2')
    await set(scene, DRAIN)
    scene.advance(MINUTE)
    await set(scene, {kind: 'uncordon'})
    const released = await scene.store.releaseClaims([{key: execution, token}])
    assert.equal(released.length, 1)
    const outcome = await scene.end(await scene.claimOne('n2'), 'cancelled')
    assert(outcome.kind === 'finished')
    assert.equal(outcome.execution.reason, 'not_requested')
  })

  when('a cancelled execution stays cancelled while its node drains', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    await scene.run('a', ['n2'])
    const claimed = await scene.claimOne('n2')
    await set(scene, {kind: 'drain', deadlineMs: 0})
    await scene.store.cancelExecution('a', claimed.execution)
    const outcome = await scene.end(claimed, 'cancelled')
    assert(outcome.kind === 'finished')
    assert.deepEqual([outcome.execution.status, outcome.retry], ['cancelled', null])
  })

  when('the state of a node survives a leave and a new incarnation, by its id', async (scene) => {
    await scene.join('n2')
    const {cordonedAt} = await set(scene, {kind: 'cordon'})
    assert.equal(cordonedAt, scene.now)
    scene.advance(MINUTE)
    assert.deepEqual(
      [(await set(scene, DRAIN)).cordonedAt, (await set(scene, DRAIN)).drainUntil],
      [cordonedAt, scene.now + MINUTE],
    )
    assert.equal((await set(scene, {kind: 'cordon'})).drainUntil, null, 'a cordon ends a drain')
    await scene.setStatus('n2', 'n2-incarnation-1', 'left')
    await scene.join('n2', 'n2-incarnation-2')
    assert.equal(await stateOf(scene), 'cordoned')
    await scene.setStatus('n2', 'n2-incarnation-2', 'left')
    await scene.join('n3', 'n3-incarnation-1', 'node-2')
    const other = (await scene.store.members()).find(({id}) => id === 'n3')
    assert.equal(other?.cordonedAt, null)
    const unknown = {nodeId: 'nobody', change: {kind: 'cordon'}} as const
    assert.equal(await scene.store.setScheduling(unknown), null)
  })
}
