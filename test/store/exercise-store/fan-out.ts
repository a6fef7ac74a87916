/**
 * Launches on many nodes: an end loads a part of the launch, and has the effects that it has on a small one.
 */
import assert from 'node:assert/strict'
import type {FinalStatus} from '../../../src/core/execution.ts'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import type {Case} from './case.ts'
import {anEnd, type Scene} from './scene.ts'

/** More than are loaded whole. */
const NODES = 40
const NODE_IDS = Array.from({length: NODES}, (_, index) => `n${index + 1}`)

/**
 * A job with a dependent, launched and claimed on 40 nodes; with the executions in the order of their nodes.
 */
async function aFanOut(scene: Scene, retries = 0) {
  await scene.submit('a', {retries})
  await scene.submit('child', {parentJob: 'a', schedule: ''})
  const group = await scene.run('a', NODE_IDS)
  const claimed: ClaimedExecution[] = []
  for (const id of NODE_IDS) claimed.push(await scene.claimOne(id))
  const launch = async () => (await scene.store.launch('a', group))!
  const requested = async () => {
    const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 10})
    return requests.map(({job}) => job.spec.name)
  }
  return {group, claimed, launch, requested}
}

export function fanOutCases(when: Case): void {
  when('the last of many ends closes the launch, and requests the dependents', async (scene) => {
    const {claimed, launch, requested} = await aFanOut(scene)
    const last = claimed.pop()!
    for (const each of claimed) {
      const outcome = await scene.end(each, 'succeeded')
      assert(outcome.kind === 'finished')
      assert.equal(outcome.closed, null)
    }
    assert.deepEqual([(await launch()).open, await requested()], [true, []])
    const outcome = await scene.end(last, 'succeeded')
    assert(outcome.kind === 'finished')
    assert.deepEqual(outcome.closed, {
      status: 'success',
      dependents: ['child'],
      wakesLauncher: true,
    })
    assert.deepEqual([(await launch()).open, await requested()], [false, ['child']])
    const {counters, status} = await scene.job('a')
    assert.deepEqual([counters.successCount, counters.errorCount, status], [NODES, 0, 'success'])
  })

  when('many ends in one call close the launch once', async (scene) => {
    const {claimed, requested} = await aFanOut(scene)
    const outcomes = await scene.store.finish(claimed.map((each) => anEnd(each, 'succeeded')))
    const closed = outcomes.map((each) => (each.kind === 'finished' ? each.closed : 'not finished'))
    assert.deepEqual(closed.slice(0, -1), Array(NODES - 1).fill(null))
    assert.deepEqual(closed.at(-1), {status: 'success', dependents: ['child'], wakesLauncher: true})
    assert.deepEqual(await requested(), ['child'])
  })

  when('a retry keeps the launch of many nodes open until it has ended', async (scene) => {
    const {claimed, launch, requested} = await aFanOut(scene, 1)
    const [failing, ...others] = claimed
    const failed = await scene.end(failing!, 'failed')
    assert(failed.kind === 'finished')
    assert.deepEqual(failed.retry!.key, {...keyOf(failing!), attempt: 2})
    for (const each of others) await scene.end(each, 'succeeded')
    assert.equal((await launch()).open, true)
    scene.advance(60_000)
    const closing = await scene.end(await scene.claimOne('n1'), 'failed')
    assert(closing.kind === 'finished')
    assert.deepEqual(closing.closed, {
      status: 'partially_failed',
      dependents: [],
      wakesLauncher: false,
    })
    assert.deepEqual([(await launch()).open, await requested()], [false, []])
    assert.equal((await scene.job('a')).status, 'partially_failed')
  })

  when('a cancellation ends the waiting retries of all nodes of the launch', async (scene) => {
    const {claimed, launch} = await aFanOut(scene, 3)
    for (const each of [claimed[0]!, claimed[20]!, claimed[39]!]) await scene.end(each, 'failed')
    const cancelled = await scene.store.cancelExecution('a', keyOf(claimed[7]!))
    assert(cancelled.kind === 'requested')
    assert.equal(cancelled.ended.length, 3)
    const executions = (await launch()).executions
    const waiting = executions.filter(({status}) => status === 'pending')
    assert.deepEqual([executions.length, waiting.length], [NODES + 3, 0])

    const later = await scene.end(claimed[9]!, 'failed')
    assert(later.kind === 'finished')
    assert.equal(later.retry, null)
  })

  when('the end of one dead node loses its execution and retries it', async (scene) => {
    const {group, claimed, launch} = await aFanOut(scene, 1)
    const {finished} = await scene.store.markLost({
      term: scene.term,
      nodeId: 'n33',
      exceptIncarnation: null,
      observed: null,
      reason: 'node_lost',
      limit: 10,
      jitter: 0.5,
    })
    assert(finished.length === 1 && finished[0]!.kind === 'finished')
    assert.deepEqual(finished[0]!.retry!.key, {group, node: 'node-33', attempt: 2})
    const statuses: readonly FinalStatus[] = ['succeeded', 'cancelled', 'timed_out']
    for (const [index, each] of claimed.entries()) {
      if (index === 32) continue
      const status = statuses[index % 3]!
      if (status === 'cancelled') await scene.store.cancelExecution('a', each.execution)
      await scene.end(each, status)
    }
    assert.equal((await launch()).open, false, 'a cancel ended the retries')
    assert.equal((await scene.job('a')).status, 'partially_failed')
  })
}

function keyOf({execution: {group, node, attempt}}: ClaimedExecution) {
  return {group, node, attempt}
}
