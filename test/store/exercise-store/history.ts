/** Reading history: order, pages, filters. */
import assert from 'node:assert/strict'
import type {ExecutionQuery} from '../../../src/ports/history-store.ts'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, ALL_ROWS, textOf, type Scene} from './scene.ts'

async function groups(scene: Scene, query: Partial<ExecutionQuery>) {
  const page = await scene.store.executions('a', {...ALL_EXECUTIONS, ...query})
  return page!.rows.map(({group, attempt, node}) => `${group}-${node}-${attempt}`)
}

export function historyCases(when: Case): void {
  when('executions are returned newest first, and by sort, filter and slice', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    const g1 = await scene.run('a', ['n1', 'n2'])
    const one = await scene.claimOne('n1')
    scene.advance(100)
    const two = await scene.claimOne('n2')
    await scene.end(one, 'failed', {durationMs: 9_000})
    await scene.end(two, 'succeeded', {durationMs: 10})
    const g2 = await scene.run('a')
    scene.advance(20)
    const three = await scene.claimOne('n1')
    const identity = [`${g1}-node-1-1`, `${g1}-node-2-1`, `${g1}-node-1-2`, `${g2}-node-1-1`]
    const [a, b, c, d] = identity as [string, string, string, string]
    assert.equal(three.execution.group, g2)
    assert.deepEqual(await groups(scene, {}), identity.toReversed())
    assert.deepEqual(await groups(scene, {order: 'asc'}), identity)
    assert.deepEqual(await groups(scene, {sort: 'started_at', order: 'asc'}), [c, a, b, d])
    assert.deepEqual(await groups(scene, {sort: 'started_at', order: 'desc'}), [d, b, a, c])
    assert.deepEqual(await groups(scene, {sort: 'finished_at', order: 'desc'}), [a, b, d, c])
    assert.deepEqual(await groups(scene, {sort: 'attempt', order: 'asc'}), [a, b, d, c])
    assert.deepEqual(await groups(scene, {status: 'running'}), [d])
    assert.deepEqual(await groups(scene, {status: 'not_pending'}), [d, b, a])
    const page = await scene.store.executions('a', {...ALL_EXECUTIONS, start: 1, end: 3})
    assert.deepEqual([page!.total, page!.rows.length], [4, 2])
    assert.deepEqual(await groups(scene, {order: 'asc', start: 1, end: 3}), [b, c])
    assert.deepEqual(await groups(scene, {start: 4, end: 9}), [])
    assert.equal(await scene.store.executions('nobody', ALL_EXECUTIONS), null)
  })

  when('busy returns the running executions of all jobs, oldest start first', async (scene) => {
    await scene.submit('b')
    await scene.submit('a')
    const older = await scene.run('b')
    await scene.claim()
    scene.advance(5)
    const newer = await scene.run('a')
    const claimed = await scene.claimOne()
    const key = {group: newer, node: 'node-1', attempt: 1}
    const bytes = new TextEncoder().encode('so far')
    await scene.store.appendOutput([{key, token: claimed.token, offset: 0, bytes}])
    const page = await scene.store.busy({...ALL_ROWS, outputBytes: 3})
    assert.deepEqual(
      page.rows.map((row) => [row.group, row.jobName, textOf(row.output), row.outputTruncated]),
      [
        [older, 'b', '', false],
        [newer, 'a', 'far', true],
      ],
    )
    const second = await scene.store.busy({start: 1, end: 2, outputBytes: 0})
    assert.deepEqual([second.total, second.rows[0]!.group], [2, newer])
  })

  when('an execution is found only under its own job', async (scene) => {
    await scene.submit('a')
    await scene.submit('b')
    const group = await scene.complete('a', 'succeeded')
    const key = {group, node: 'node-1', attempt: 1}
    assert.notEqual(await scene.store.execution('a', key, 0), null)
    assert.equal(await scene.store.execution('b', key, 0), null)
    assert.equal(await scene.store.execution('a', {...key, node: 'node-2'}, 0), null)
    assert.equal(await scene.store.launch('b', group), null)
    assert.equal(await scene.store.outputSince('b', key, 0, 10), null)
  })

  when('launches are returned newest first, and by decision and slice', async (scene) => {
    await scene.submit('a')
    const run = [await scene.run('a'), await scene.run('a'), await scene.run('a')]
    await scene.store.requestRun({name: 'a', forced: false, idempotency: null})
    const launched = await scene.store.launches('a', {start: 0, end: 2, decision: 'launched'})
    assert.deepEqual(
      [launched!.total, launched!.rows.map(({group}) => group)],
      [3, [run[2], run[1]]],
    )
    const all = await scene.store.launches('a', {...ALL_ROWS, decision: null})
    assert.equal(all!.total, 4)
    assert.equal(await scene.store.launches('nobody', {...ALL_ROWS, decision: null}), null)
  })

  when('a page of launches has their executions, by attempt and node', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    const two = await scene.run('a', ['n1', 'n2'])
    await scene.end(await scene.claimOne('n1'), 'failed', {head: 'exit status 1\n'})
    const one = await scene.run('a', ['n2'])
    await scene.store.requestRun({name: 'a', forced: false, idempotency: null})
    const page = await scene.store.launches('a', {...ALL_ROWS, decision: null})
    const ids = page!.rows.map(({group, executions}) => {
      return [group, executions.map(({node, attempt}) => `${node}-${attempt}`)]
    })
    assert.deepEqual(ids.slice(1), [
      [one, ['node-2-1']],
      [two, ['node-1-1', 'node-2-1', 'node-1-2']],
    ])
    assert.deepEqual(ids[0]![1], [], 'an undecided launch has no executions')
    assert.equal(page!.rows[2]!.executions[0]!.outputHead, '', 'lines of output are not read')
    assert.deepEqual(page!.rows[2], await scene.store.launch('a', two))
  })

  when('totals count jobs and running, pending and undecided work', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    await scene.claim()
    await scene.run('a')
    await scene.store.requestRun({name: 'a', forced: false, idempotency: null})
    const totals = await scene.store.totals()
    assert.deepEqual(totals, {
      jobs: 1,
      running: 1,
      pending: 1,
      undecided: 1,
      firingPaused: 0,
      lateMs: 0,
      waitingMs: 0,
    })
  })

  when('usage lists members, their load, and the last run of jobs by pattern', async (scene) => {
    const request = {nodesMax: 1, jobPatterns: ['nightly-*', 'other'], jobsMax: 2}
    for (const name of ['nightly-c', 'nightly-a', 'nightly-b', 'other', 'nightly_x', 'no'])
      await scene.submit(name)
    await scene.submit('nightly-off', {disabled: true})
    await scene.run('nightly-a')
    const first = await scene.claimOne()
    await scene.end(first, 'succeeded', {output: 'four', durationMs: 1_500})
    await scene.run('nightly-b')
    await scene.end(await scene.claimOne(), 'failed')
    await scene.run('no')
    await scene.claimOne()
    await scene.run('no')
    const usage = await scene.store.usage(request)
    const {listedJobs, nodes, members, storeBytes} = usage
    assert.deepEqual(
      listedJobs.map(({name, hasSucceeded}) => [name, hasSucceeded]),
      [
        ['nightly-a', true],
        ['nightly-b', false],
      ],
    )
    const {counters} = await scene.job('nightly-a')
    assert.equal(listedJobs[0]!.createdAt, (await scene.job('nightly-a')).createdAt)
    assert.equal(listedJobs[0]!.lastSuccessAt, counters.lastSuccess)
    assert.equal(listedJobs[0]!.lastDurationMs, 1_500)
    assert.equal(usage.jobsOmitted, 2)
    assert.deepEqual([usage.disabled, usage.outputBytes], [1, 4])
    assert.ok(storeBytes > 4_096)
    assert.equal(members.failed, 0)
    assert.equal(nodes.length + usage.nodesOmitted, members.alive)
    assert.deepEqual([nodes[0]!.running, nodes[0]!.pending, nodes[0]!.isCordoned], [1, 1, false])
    const none = await scene.store.usage({...request, jobPatterns: []})
    assert.deepEqual([none.listedJobs, none.jobsOmitted], [[], 0])
  })
}
