/** Released claims: an execution that was never started is pending again, as if it had not been claimed. */
import assert from 'node:assert/strict'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, type Scene} from './scene.ts'
import {claimAs} from '../../support/single-calls.ts'

const key = (group: number, node = 'node-1', attempt = 1) => ({group, node, attempt})

function claimOf({execution: {group, node, attempt}, token}: ClaimedExecution) {
  return {key: {group, node, attempt}, token}
}

function giveBack(scene: Scene, ...claimed: readonly ClaimedExecution[]) {
  return scene.store.releaseClaims(claimed.map(claimOf))
}

async function endedAsLost(scene: Scene): Promise<string[]> {
  const {finished} = await scene.store.markLost({
    term: null,
    nodeId: 'n1',
    exceptIncarnation: 'n1-incarnation-2',
    observed: null,
    reason: 'node_restarted',
    limit: 100,
    jitter: 0.5,
  })
  return finished.map((outcome) => (outcome.kind === 'finished' ? outcome.execution.status : ''))
}

async function statusOf(scene: Scene, group: number) {
  const {open, nodeDeaths, executions} = (await scene.store.launch('a', group))!
  return {open, deaths: nodeDeaths, is: executions.map(({status}) => status)}
}

export function releaseClaimsCases(when: Case): void {
  when('a released execution is pending again, due at once, and can run', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const fresh = await scene.store.execution('a', key(group), 0)
    const before = await scene.job('a')
    scene.advance(1_000)
    const claimed = await scene.claimOne()
    await scene.join('n1', 'n1-incarnation-2')
    scene.advance(5_000)
    const [given] = await giveBack(scene, claimed)
    const found = await scene.store.execution('a', key(group), 0)
    assert.deepEqual(found, {...fresh, notBefore: scene.now})
    assert.equal(given!.execution.status, 'pending')
    assert.deepEqual(
      [given!.execution.jobName, given!.execution.startedAt, given!.execution.revision],
      ['a', null, 0],
    )
    assert.deepEqual(await scene.job('a'), before, 'nothing was counted')
    assert.deepEqual(await statusOf(scene, group), {open: true, deaths: 0, is: ['pending']})
    const life = {nodeId: 'n1', incarnation: 'n1-incarnation-1'}
    assert.deepEqual(await scene.store.activeClaims(life), [])
    assert.deepEqual(await endedAsLost(scene), [])
    const next = {nodeId: 'n1', incarnation: 'n1-incarnation-2', token: 'next', room: 5}
    const again = await claimAs(scene.store, next)
    assert.deepEqual(
      again.claimed.map(({execution}) => [execution.group, execution.attempt, execution.startedAt]),
      [[group, 1, scene.now]],
    )
    assert.equal((await scene.end(again.claimed[0]!, 'succeeded')).kind, 'finished')
  })

  when('a repeated release, or one of an ended claim, changes nothing', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    const other = {...claimed, token: 'of another claim'}
    assert.deepEqual(await giveBack(scene, other), [])
    assert.deepEqual((await statusOf(scene, group)).is, ['running'])
    assert.equal((await giveBack(scene, claimed)).length, 1)
    scene.advance(1)
    assert.deepEqual(await giveBack(scene, claimed), [])
    assert.equal((await scene.end(claimed, 'succeeded')).kind, 'unknown')
    const later = await scene.claimOne()
    assert.deepEqual(await giveBack(scene, claimed), [], 'the new claim stands')
    await scene.end(later, 'succeeded')
    assert.deepEqual(await giveBack(scene, later), [])
    assert.deepEqual((await statusOf(scene, group)).is, ['succeeded'])
    assert.deepEqual(await scene.store.releaseClaims([{key: key(group + 1), token: 't'}]), [])
    assert.deepEqual(await scene.store.releaseClaims([]), [])
  })

  when('several claims are released together, and the others are lost', async (scene) => {
    await scene.submit('a')
    const groups: number[] = []
    for (let index = 0; index < 4; index += 1) groups.push(await scene.run('a'))
    const claims = await scene.claim()
    const [first, second, third, fourth] = claims
    await scene.end(second!, 'succeeded')
    const given = await giveBack(scene, fourth!, second!, first!)
    assert.deepEqual(
      given.map(({key}) => key.group).toSorted((a, b) => a - b),
      [groups[0], groups[3]],
    )
    await scene.join('n1', 'n1-incarnation-2')
    assert.deepEqual(await endedAsLost(scene), ['lost'])
    const page = await scene.store.executions('a', {...ALL_EXECUTIONS, order: 'asc'})
    assert.deepEqual(
      page!.rows.map(({status}) => status),
      ['pending', 'succeeded', 'lost', 'pending'],
    )
    assert.equal(third!.execution.group, groups[2])
  })

  when('a cancelled execution, or one of a deleted job, is not released', async (scene) => {
    await scene.submit('a')
    await scene.submit('b')
    const group = await scene.run('a')
    await scene.run('b')
    const [one, two] = await scene.claim()
    await scene.store.cancelExecution('a', key(group))
    await scene.store.deleteJob('b')
    assert.deepEqual(await giveBack(scene, one!, two!), [])
    assert.deepEqual((await statusOf(scene, group)).is, ['running'])
    await scene.join('n1', 'n1-incarnation-2')
    assert.deepEqual((await endedAsLost(scene)).toSorted(), ['', 'lost'])
  })

  when('a retry of a launch whose retries have ended is not released', async (scene) => {
    await scene.submit('a', {retries: 3})
    await scene.join('n2')
    const group = await scene.run('a', ['n1', 'n2'])
    await scene.claimOne('n2')
    await scene.end(await scene.claimOne('n1'), 'failed')
    scene.advance(10_000)
    const retry = await scene.claimOne('n1')
    assert.equal(retry.execution.attempt, 2)
    await scene.store.cancelExecution('a', key(group, 'node-2'))
    assert.deepEqual(await giveBack(scene, retry), [])
  })

  when(
    'released claims do not count as node deaths, so they never disable the job',
    async (scene) => {
      await scene.submit('a', {retries: 5})
      const group = await scene.run('a')
      for (let life = 2; life < 6; life += 1) {
        const incarnation = life === 2 ? 'n1-incarnation-1' : `n1-incarnation-${life - 1}`
        const request = {nodeId: 'n1', incarnation, token: `token-${life}`, room: 5}
        const {claimed} = await claimAs(scene.store, request)
        await scene.join('n1', `n1-incarnation-${life}`)
        assert.equal((await giveBack(scene, claimed[0]!)).length, 1)
      }
      assert.deepEqual(await statusOf(scene, group), {open: true, deaths: 0, is: ['pending']})
      assert.equal((await scene.job('a')).spec.disabled, false)
    },
  )

  when('a released execution that its node does not claim moves to another node', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    await scene.join('n2')
    await giveBack(scene, claimed)
    scene.advance(4_000)
    const page = {unclaimedMs: 3_000, after: null, limit: 10}
    const {executions} = await scene.store.loadStuck(page)
    assert.deepEqual(
      executions.map(({execution}) => execution.group),
      [group],
    )
    const move = {key: key(group), to: {nodeId: 'n2', nodeName: 'node-2'}}
    assert.deepEqual(await scene.store.applyReassignments({term: scene.term, moves: [move]}), [
      'applied',
    ])
    assert.equal((await scene.claimOne('n2')).execution.group, group)
  })
}
