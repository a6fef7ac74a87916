/** Members deleted by retention after a long absence, or removed by an operator. */
import assert from 'node:assert/strict'
import type {MemberRecord} from '../../../src/core/node.ts'
import {TermOver} from '../../../src/ports/store-errors.ts'
import type {Case} from './case.ts'
import {ALL_ROWS, anEnd, HOUR, MINUTE, type Scene} from './scene.ts'
import {beatAs, claimAs} from '../../support/single-calls.ts'
import {NOTHING_CLAIMED} from '../../support/fixtures.ts'

const LEFT_AFTER_MS = HOUR
const FAILED_AFTER_MS = 3 * HOUR

function prune(scene: Scene, limit = 10): Promise<readonly MemberRecord[]> {
  const after = {leftAfterMs: LEFT_AFTER_MS, failedAfterMs: FAILED_AFTER_MS}
  return scene.store.pruneMembers({term: scene.term, ...after, limit})
}

const remove = (scene: Scene, nodeId = 'n2', limit = 10) =>
  scene.store.removeMember({nodeId, limit, jitter: 0.5})

async function ids(scene: Scene): Promise<string[]> {
  return (await scene.store.members()).map(({id}) => id)
}

/** `n2` has an execution of `job` and has failed. */
async function failedWhileRunning(scene: Scene, retries = 0): Promise<number> {
  await scene.join('n2')
  await scene.submit('a', {retries})
  const group = await scene.run('a', ['n2'])
  await scene.claimOne('n2')
  await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
  return group
}

export function memberRetentionCases(when: Case): void {
  forgettingCases(when)
  removingCases(when)
  afterwardsCases(when)
}

function forgettingCases(when: Case): void {
  when('retention deletes members that left or failed long ago, and no others', async (scene) => {
    for (const id of ['n2', 'n3', 'n4']) await scene.join(id)
    await scene.setStatus('n2', 'n2-incarnation-1', 'left')
    await scene.setStatus('n3', 'n3-incarnation-1', 'failed')
    await scene.setStatus('n4', 'n4-incarnation-1', 'leaving')
    scene.advance(LEFT_AFTER_MS - 1)
    assert.deepEqual(await prune(scene), [])
    scene.advance(1)
    const [left] = (await scene.store.members()).filter(({id}) => id === 'n2')
    assert.deepEqual(await prune(scene), [left])
    assert.deepEqual(await ids(scene), ['n1', 'n3', 'n4'])
    scene.advance(FAILED_AFTER_MS - LEFT_AFTER_MS - 1)
    assert.deepEqual(await prune(scene), [])
    scene.advance(1)
    assert.deepEqual(
      (await prune(scene)).map(({id}) => id),
      ['n3'],
    )
    scene.advance(100 * FAILED_AFTER_MS)
    assert.deepEqual(await prune(scene), [])
    assert.deepEqual(await ids(scene), ['n1', 'n4'])
  })

  when('the age of a member counts from its last heartbeat', async (scene) => {
    await scene.join('n2')
    scene.advance(10 * FAILED_AFTER_MS)
    await beatAs(scene.store, {nodeId: 'n2', incarnation: 'n2-incarnation-1', status: 'left'})
    assert.deepEqual(await prune(scene), [])
    scene.advance(LEFT_AFTER_MS)
    assert.equal((await prune(scene)).length, 1)
  })

  when('retention keeps members with pending or running executions', async (scene) => {
    const group = await failedWhileRunning(scene)
    await scene.run('a', ['n2'])
    scene.advance(FAILED_AFTER_MS)
    assert.deepEqual(await prune(scene), [])
    const {term} = scene
    const whole = {
      exceptIncarnation: null,
      observed: null,
      reason: 'node_lost',
      jitter: 0.5,
    } as const
    await scene.store.markLost({term, nodeId: 'n2', limit: 10, ...whole})
    assert.deepEqual(await prune(scene), [], 'one is still pending')
    const key = {group: group + 1, node: 'node-2', attempt: 1}
    const to = {nodeId: 'n1', nodeName: 'node-1'}
    assert.deepEqual(await scene.store.applyReassignments({term, moves: [{key, to}]}), ['applied'])
    assert.equal((await prune(scene)).length, 1)
    assert.equal((await scene.store.launch('a', group))!.executions[0]!.node, 'node-2')
  })

  when(
    'retention deletes members in bounded batches, the oldest heartbeat first',
    async (scene) => {
      for (const id of ['n5', 'n3', 'n4', 'n2']) {
        await scene.join(id)
        scene.advance(MINUTE)
        await scene.setStatus(id, `${id}-incarnation-1`, 'left')
      }
      scene.advance(LEFT_AFTER_MS)
      const pruned: string[][] = []
      for (let more = true; more;) {
        const batch = await prune(scene, 3)
        pruned.push(batch.map(({id}) => id))
        more = batch.length === 3
      }
      assert.deepEqual(pruned, [['n5', 'n3', 'n4'], ['n2']])
    },
  )

  when('retention under an ended term deletes no member', async (scene) => {
    await scene.join('n2')
    await scene.setStatus('n2', 'n2-incarnation-1', 'left')
    scene.advance(LEFT_AFTER_MS)
    const after = {leftAfterMs: LEFT_AFTER_MS, failedAfterMs: FAILED_AFTER_MS, limit: 10}
    await assert.rejects(scene.store.pruneMembers({term: scene.term - 1, ...after}), TermOver)
    assert.deepEqual(await ids(scene), ['n1', 'n2'])
  })
}

function removingCases(when: Case): void {
  when('removing a present or unknown member is refused', async (scene) => {
    for (const status of ['alive', 'leaving'] as const) {
      await beatAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', status})
      const [member] = await scene.store.members()
      assert.deepEqual(await remove(scene, 'n1'), {kind: 'present', member})
    }
    for (const status of ['left', 'failed'] as const) {
      await scene.join('n2')
      await scene.setStatus('n2', 'n2-incarnation-1', status)
      const member = (await scene.store.members())[1]!
      assert.deepEqual(await remove(scene), {kind: 'removed', member, finished: []})
      assert.deepEqual(await remove(scene), {kind: 'unknown'})
    }
    assert.deepEqual(await ids(scene), ['n1'])
  })

  when('executions of a removed member are lost, counted and retried', async (scene) => {
    const group = await failedWhileRunning(scene, 1)
    await beatAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', status: 'alive'})
    const removal = await remove(scene)
    assert(removal.kind === 'removed')
    const [outcome] = removal.finished
    assert(outcome?.kind === 'finished')
    assert.deepEqual([outcome.execution.status, outcome.execution.reason], ['lost', 'node_lost'])
    assert.deepEqual(outcome.retry!.key, {group, node: 'node-2', attempt: 2})
    assert.equal((await scene.job('a')).counters.errorCount, 1)
    const busy = await scene.store.busy({...ALL_ROWS, outputBytes: 0})
    assert.equal(busy.total, 0)
    const {executions} = await scene.store.loadStuck({unclaimedMs: 60_000, after: null, limit: 10})
    assert.deepEqual(
      executions.map(({execution, nodeId}) => [execution.attempt, nodeId]),
      [[2, 'n2']],
    )
  })

  when(
    'executions of a removed member that had left do not count as node deaths',
    async (scene) => {
      await failedWhileRunning(scene)
      await scene.setStatus('n2', 'n2-incarnation-1', 'left')
      const removal = await remove(scene)
      assert(removal.kind === 'removed' && removal.finished[0]?.kind === 'finished')
      assert.equal(removal.finished[0].execution.reason, 'node_stopped')
    },
  )

  when(
    'a member with many executions is removed in bounded batches, itself in the last',
    async (scene) => {
      await failedWhileRunning(scene)
      await beatAs(scene.store, {nodeId: 'n2', incarnation: 'n2-incarnation-1', status: 'alive'})
      for (let count = 0; count < 3; count += 1) await scene.run('a', ['n2'])
      assert.equal((await scene.claim('n2')).length, 3)
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      const first = await remove(scene, 'n2', 3)
      assert(first.kind === 'ending')
      assert.deepEqual([first.finished.length, await ids(scene)], [3, ['n1', 'n2']])
      const second = await remove(scene, 'n2', 3)
      assert(second.kind === 'removed')
      assert.deepEqual([second.finished.length, await ids(scene)], [1, ['n1']])
    },
  )
}

function afterwardsCases(when: Case): void {
  const life = {nodeId: 'n2', incarnation: 'n2-incarnation-1'}

  when('a removed member is unknown, claims nothing, and may join again', async (scene) => {
    await failedWhileRunning(scene)
    await scene.run('a', ['n2'])
    await remove(scene)
    assert.equal(await beatAs(scene.store, {...life, status: 'alive'}), 'unknown')
    assert.deepEqual(await claimAs(scene.store, {...life, token: 't', room: 5}), NOTHING_CLAIMED)
    assert.deepEqual(await scene.join('n2'), {kind: 'joined'})
    assert.equal(await beatAs(scene.store, {...life, status: 'alive'}), 'ok')
    assert.equal((await scene.claim('n2')).length, 1)
  })

  when('a late result of a removed node is recorded on the lost execution', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    await scene.run('a', ['n2'])
    const claimed = await scene.claimOne('n2')
    await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
    await remove(scene)
    const [outcome] = await scene.store.finish([anEnd(claimed, 'succeeded')])
    assert(outcome?.kind === 'already' && outcome.status === 'lost')
  })

  when(
    'a failed node claims nothing new, and a repeated claim returns its executions',
    async (scene) => {
      await scene.join('n2')
      await scene.submit('a')
      await scene.run('a', ['n2'])
      const first = await claimAs(scene.store, {...life, token: 'first', room: 5})
      await scene.run('a', ['n2'])
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      assert.deepEqual((await claimAs(scene.store, {...life, token: 'new', room: 5})).claimed, [])
      const again = await claimAs(scene.store, {...life, token: 'first', room: 5})
      assert.deepEqual(again.claimed, first.claimed)
      await beatAs(scene.store, {...life, status: 'alive'})
      assert.equal((await claimAs(scene.store, {...life, token: 'new', room: 5})).claimed.length, 1)
    },
  )
}
