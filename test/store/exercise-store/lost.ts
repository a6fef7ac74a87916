/**
 * Executions of a failed node: lost once, retried by the usual rule, with late results only recorded.
 */
import assert from 'node:assert/strict'
import type {JobSpec} from '../../../src/core/job.ts'
import {ALL_AUDIT} from './audit.ts'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, ALL_ROWS, anEnd, MINUTE, type Scene} from './scene.ts'
import {beatAs, claimAs} from '../../support/single-calls.ts'

function markLost(scene: Scene, over: Partial<Parameters<Scene['store']['markLost']>[0]> = {}) {
  const request = {
    term: scene.term,
    nodeId: 'n1',
    exceptIncarnation: null,
    observed: null,
    limit: 100,
    jitter: 0.5,
  }
  return scene.store.markLost({...request, reason: 'node_lost', ...over})
}

export function lostCases(when: Case): void {
  when('running executions of a failed node become lost and are retried', async (scene) => {
    await scene.submit('a', {retries: 1})
    const group = await scene.run('a', ['n1', 'n2'])
    await scene.claim('n1')
    await scene.claim('n2')
    scene.advance(2 * MINUTE)
    await beatAs(scene.store, {nodeId: 'n2', incarnation: 'n2-incarnation-1', status: 'alive'})
    const {finished, more} = await markLost(scene)
    assert.equal(more, false)
    assert.equal(finished.length, 1)
    const outcome = finished[0]!
    assert(outcome.kind === 'finished')
    const {status, reason, finishedAt} = outcome.execution
    assert.deepEqual([status, reason, finishedAt], ['lost', 'node_lost', scene.now])
    assert.deepEqual(outcome.retry!.key, {group, node: 'node-1', attempt: 2})
    assert.equal((await scene.job('a')).counters.errorCount, 1)
    assert.deepEqual((await markLost(scene)).finished, [])
  })

  when('a late result of a lost execution is recorded and changes nothing else', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    await markLost(scene)
    const before = await scene.job('a')
    const key = {group, node: 'node-1', attempt: 1}
    const late = await scene.store.finish([anEnd(claimed, 'succeeded', {exitCode: 0, output: 'x'})])
    assert.deepEqual(late, [{kind: 'already', key, status: 'lost'}])
    const found = await scene.store.execution('a', key, 100)
    assert.deepEqual([found!.status, found!.output.length], ['lost', 0])
    assert.equal(found!.lateResult, 'succeeded, exit status 0')
    assert.deepEqual(await scene.job('a'), before)
  })

  when(
    'a lost execution may continue if its job keeps running and no later attempt exists',
    async (scene) => {
      const standing = async (over: Partial<JobSpec>, meanwhile?: 'cancel') => {
        await scene.submit('a', over)
        const group = await scene.run('a', ['n1', 'n2'])
        const {token} = await scene.claimOne()
        const key = {group, node: 'node-1', attempt: 1}
        if (meanwhile === 'cancel') await scene.store.cancelExecution('a', {...key, node: 'node-2'})
        await markLost(scene)
        const [answer] = await scene.store.verifyClaims([{key, token}])
        return answer
      }
      assert.equal(await standing({}), 'lost_may_continue')
      assert.equal(
        await standing({concurrency: 'forbid', onDisconnect: 'keep'}),
        'lost_may_continue',
      )
      assert.equal(await standing({concurrency: 'forbid', onDisconnect: ''}), 'revoked')
      assert.equal(await standing({concurrency: 'allow', onDisconnect: 'stop'}), 'revoked')
      const keep = {concurrency: 'allow', onDisconnect: 'keep'} as const
      assert.equal(await standing({...keep}, 'cancel'), 'revoked')
      assert.equal(await standing({...keep, retries: 1}), 'revoked', 'its retry waits')
    },
  )

  when(
    'a starting node ends the claims of its previous incarnations without a term',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      await scene.claimOne()
      await scene.run('a')
      await scene.join('n1', 'n1-incarnation-2')
      const life = {nodeId: 'n1', incarnation: 'n1-incarnation-2'}
      const {claimed} = await claimAs(scene.store, {...life, token: 'new token', room: 5})
      assert.equal(claimed.length, 1)
      const own = {
        term: null,
        exceptIncarnation: 'n1-incarnation-2',
        observed: null,
        reason: 'node_restarted',
      } as const
      const {finished} = await markLost(scene, own)
      assert.equal(finished.length, 1)
      const busy = await scene.store.busy({...ALL_ROWS, outputBytes: 0})
      assert.deepEqual(
        busy.rows.map(({group}) => group),
        [claimed[0]!.execution.group],
      )
    },
  )

  when(
    'a late request of an incarnation that was replaced ends nothing of its successor',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      await scene.join('n1', 'n1-incarnation-2')
      const current = {nodeId: 'n1', incarnation: 'n1-incarnation-2'}
      const {claimed} = await claimAs(scene.store, {...current, token: 'new token', room: 5})
      assert.equal(claimed.length, 1)
      const ofEarlier = {
        term: null,
        exceptIncarnation: 'n1-incarnation-1',
        observed: null,
        reason: 'node_restarted',
      } as const
      assert.deepEqual(await markLost(scene, ofEarlier), {finished: [], more: false})
      const busy = await scene.store.busy({...ALL_ROWS, outputBytes: 0})
      assert.equal(busy.rows.length, 1)
    },
  )

  when(
    'executions of a node are not ended if it sent a heartbeat or restarted meanwhile',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      await scene.claimOne()
      const [seen] = await scene.store.members()
      const observed = {incarnation: seen!.incarnation, heartbeatAt: seen!.heartbeatAt}
      const other = {...observed, incarnation: 'another incarnation'}
      assert.deepEqual((await markLost(scene, {observed: other})).finished, [])
      scene.advance(1)
      await beatAs(scene.store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', status: 'alive'})
      assert.deepEqual(await markLost(scene, {observed}), {finished: [], more: false})
      const fresh = {...observed, heartbeatAt: scene.now}
      assert.equal((await markLost(scene, {observed: fresh})).finished.length, 1)
    },
  )

  when('the executions of a failed node are ended in bounded batches', async (scene) => {
    await scene.submit('a')
    for (let index = 0; index < 5; index += 1) await scene.run('a')
    await scene.claim()
    const sizes: [number, boolean][] = []
    for (let more = true; more;) {
      const result = await markLost(scene, {limit: 2})
      sizes.push([result.finished.length, result.more])
      more = result.more
    }
    assert.deepEqual(sizes, [
      [2, true],
      [2, true],
      [1, false],
    ])
  })

  when(
    'a job that kills its node twice is disabled, with a launch row that says so',
    async (scene) => {
      const job = await scene.submit('a', {retries: 5})
      const group = await scene.run('a', ['n1', 'n2'])
      await scene.claimOne('n1')
      const other = await scene.claimOne('n2')
      const n2Lives = () =>
        beatAs(scene.store, {nodeId: 'n2', incarnation: 'n2-incarnation-1', status: 'alive'})
      scene.advance(MINUTE)
      await n2Lives()
      const first = await markLost(scene)
      assert(first.finished[0]!.kind === 'finished' && !first.finished[0]!.jobDisabled)
      scene.advance(MINUTE)
      await scene.claimOne('n1')
      await n2Lives()
      await scene.end(other, 'failed')
      const second = await markLost(scene)
      const outcome = second.finished[0]!
      assert(outcome.kind === 'finished' && outcome.jobDisabled)
      assert.equal(outcome.retry, null)
      assert.deepEqual(
        outcome.endedRetries!.map(({node, attempt, status}) => [node, attempt, status]),
        [['node-2', 2, 'cancelled']],
      )
      const after = await scene.job('a')
      assert.deepEqual([after.spec.disabled, after.nextAt, after.revision], [true, null, 2])
      const history = await scene.store.launches('a', {...ALL_ROWS, decision: null})
      const rows = history!.rows.map(({decision, reason}) => `${decision} ${reason.split(':')[0]}`)
      assert.deepEqual(rows.toSorted(), [
        'launched ',
        'missed disabled',
        'skipped disabled',
        'skipped quarantined',
      ])
      assert.equal(
        history!.rows.find(({decision}) => decision === 'missed')!.scheduledAt,
        job.nextAt,
      )
      const recorded = await scene.store.audit({...ALL_AUDIT, action: 'job.toggle'})
      assert.deepEqual(
        recorded.rows.map(({actor, revisionAfter}) => [actor.name, revisionAfter]),
        [['belfry', 2]],
      )
      const launch = (await scene.store.launch('a', group))!
      assert.deepEqual([launch.nodeDeaths, launch.open], [2, false])
      assert.deepEqual(
        launch.executions
          .map(({node, attempt, status}) => `${node} ${attempt} ${status}`)
          .toSorted(),
        ['node-1 1 lost', 'node-1 2 lost', 'node-2 1 failed', 'node-2 2 cancelled'],
      )
    },
  )

  when('executions of nodes that failed together are lost by an outage', async (scene) => {
    await scene.join('n2')
    await scene.submit('a', {retries: 1})
    await scene.run('a', ['n1', 'n2'])
    for (const nodeId of ['n1', 'n2']) {
      await scene.claimOne(nodeId)
      await scene.setStatus(nodeId, `${nodeId}-incarnation-1`, 'failed')
    }
    scene.advance(MINUTE)
    for (const nodeId of ['n1', 'n2']) await markLost(scene, {nodeId})
    const executions = await scene.store.executions('a', ALL_EXECUTIONS)
    const reasons = executions!.rows.map(({reason}) => reason).filter(Boolean)
    assert.deepEqual(reasons, ['node_outage', 'node_outage'])
  })

  when('an outage of several nodes disables none of the jobs they ran', async (scene) => {
    await scene.join('n2')
    await scene.join('n3')
    const jobs = ['wide', 'single']
    for (const name of jobs) await scene.submit(name, {retries: 5, schedule: '@manually'})
    await scene.run('wide', ['n1', 'n2'])
    await scene.run('single')
    for (let outage = 1; outage <= 3; outage += 1) {
      for (const nodeId of ['n1', 'n2']) await scene.claim(nodeId)
      scene.advance(10 * MINUTE)
      await beatAs(scene.store, {nodeId: 'n3', incarnation: 'n3-incarnation-1', status: 'alive'})
      for (const nodeId of ['n1', 'n2']) await markLost(scene, {nodeId})
    }
    for (const name of jobs) assert.equal((await scene.job(name)).spec.disabled, false, name)
    // No member was marked as failed, so an outage is only possible, and the reason does not say it.
    const executions = await scene.store.executions('wide', ALL_EXECUTIONS)
    const reasons = new Set(executions!.rows.map(({reason}) => reason).filter(Boolean))
    assert.deepEqual([...reasons], ['node_lost'])
  })

  when('a node that dies twice with several jobs disables none of them', async (scene) => {
    for (const name of ['a', 'b']) {
      await scene.submit(name, {retries: 5, schedule: '@manually'})
      await scene.run(name)
    }
    for (let death = 1; death <= 3; death += 1) {
      assert.equal((await scene.claim()).length, 2)
      scene.advance(10 * MINUTE)
      await markLost(scene)
      scene.advance(10 * MINUTE)
    }
    for (const name of ['a', 'b']) assert.equal((await scene.job(name)).spec.disabled, false, name)
  })

  when('nodes that shut down gracefully do not count as deaths', async (scene) => {
    await scene.submit('a', {retries: 5})
    for (let round = 1; round <= 3; round += 1) {
      if (round === 1) await scene.run('a')
      scene.advance(10 * MINUTE)
      await scene.claimOne()
      await markLost(scene, {reason: 'node_stopped'})
    }
    assert.equal((await scene.job('a')).spec.disabled, false)
  })
}
