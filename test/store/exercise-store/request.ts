/** Requests to run: by hand and on create, and the decisions of the leader about them. */
import assert from 'node:assert/strict'
import type {RequestDecision} from '../../../src/core/launch-record.ts'
import type {Case} from './case.ts'
import {ALL_JOBS, aRow, DAY, MINUTE, targets, type Scene} from './scene.ts'

function ask(scene: Scene, name: string, forced = false) {
  return scene.store.requestRun({name, forced, idempotency: null})
}

async function accepted(scene: Scene, name: string): Promise<number> {
  const result = await ask(scene, name, true)
  assert(result.kind === 'accepted')
  return result.group
}

function decide(scene: Scene, requests: readonly RequestDecision[]) {
  return scene.store.applyLaunches({term: scene.term, dues: [], requests})
}

export function requestCases(when: Case): void {
  when('a request gets a launch number and keeps it when launched', async (scene) => {
    const job = await scene.submit('a', {disabled: true})
    await scene.store.setPaused(true)
    const result = await ask(scene, 'a')
    assert(result.kind === 'accepted')
    assert.equal(result.job.id, job.id)
    const {requests, now} = await scene.store.loadRequests({afterGroup: 0, limit: 10})
    assert.equal(now, scene.now)
    const {launch, openGroup} = requests[0]!
    assert.deepEqual([launch.group, launch.cause, openGroup], [result.group, 'manual', null])
    assert.deepEqual([launch.scheduledAt, launch.storedAt], [scene.now, scene.now])
    const decided = await scene.launchRequest(result.group, ['n1', 'n2'])
    assert.deepEqual(decided!.targets, ['node-1', 'node-2'])
    assert.deepEqual(
      [decided!.launch.group, decided!.launch.decision, decided!.launch.term],
      [result.group, 'launched', scene.term],
    )
    const view = (await scene.store.launch('a', result.group))!
    const {executions, parent: _parent, children: _children, ...stored} = view
    assert.deepEqual(stored, decided!.launch)
    assert.deepEqual(
      executions.map(({node, slot, status}) => [node, slot, status]),
      [
        ['node-1', 0, 'pending'],
        ['node-2', 1, 'pending'],
      ],
    )
    assert.deepEqual(await ask(scene, 'nobody'), {kind: 'unknown'})
  })

  when('a decision about a row that is no longer pending is a conflict', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    assert.equal(await scene.launchRequest(group), null)
    const unknown = await scene.launchRequest(999_999)
    assert.equal(unknown, null)
    const skip = {group, revision: 1, kind: 'skip', decision: 'skipped', reason: 'forbid'} as const
    assert.deepEqual((await decide(scene, [skip])).requests, ['conflict'])
  })

  when('with forbid a request is refused while a launch is open, unless forced', async (scene) => {
    await scene.submit('a', {concurrency: 'forbid'})
    const first = await accepted(scene, 'a')
    assert.deepEqual(await ask(scene, 'a'), {kind: 'forbidden', openGroup: first})
    assert.equal((await ask(scene, 'a', true)).kind, 'accepted')
  })

  when('the reply to a request with a key is found after the job was deleted', async (scene) => {
    await scene.submit('a')
    const idempotency = {key: 'k', scope: 's', fingerprint: 'f'}
    assert.equal(await scene.store.earlierRun(idempotency), null)
    const asked = await scene.store.requestRun({name: 'a', forced: false, idempotency})
    await scene.store.deleteJob('a')
    assert.deepEqual(await scene.store.earlierRun(idempotency), asked)
    const other = await scene.store.earlierRun({...idempotency, fingerprint: 'g'})
    assert.deepEqual(other, {kind: 'idempotency_mismatch'})
  })

  when('with forbid only one of two requests decided together is launched', async (scene) => {
    await scene.submit('a', {concurrency: 'forbid'})
    const groups = [await accepted(scene, 'a'), await accepted(scene, 'a')]
    const launches = groups.map((group) => {
      return {group, revision: 1, kind: 'launch', targets: targets(['n1']), forbid: true} as const
    })
    const together = await decide(scene, launches)
    assert.deepEqual(together.requests, ['applied', 'conflict'])
    const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 10})
    assert.deepEqual(
      requests.map(({launch, openGroup}) => [launch.group, openGroup]),
      [[groups[1], groups[0]]],
    )
    assert.equal(await scene.launchRequest(groups[1]!, ['n1'], true), null)
    assert.notEqual(await scene.launchRequest(groups[1]!, ['n1'], false), null)
  })

  when(
    'with forbid a waiting planned time blocks later requests but not earlier ones',
    async (scene) => {
      const job = await scene.submit('a', {concurrency: 'forbid'})
      const before = await accepted(scene, 'a')
      scene.advance(MINUTE)
      const row = aRow(job.nextAt!, 'pending', {reason: 'waits_for_node'})
      const {decided} = await scene.decide(job, [row], job.nextAt! + MINUTE, true)
      const waiting = decided[0]!.launch
      assert.deepEqual([waiting.decision, waiting.open, waiting.decidedAt], ['pending', true, null])
      const after = await accepted(scene, 'a')
      const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 10})
      assert.deepEqual(
        requests.map(({launch, openGroup}) => [launch.group, openGroup]),
        [
          [before, null],
          [waiting.group, null],
          [after, waiting.group],
        ],
      )
      const page = await scene.store.loadRequests({afterGroup: waiting.group, limit: 10})
      assert.deepEqual(
        page.requests.map(({launch}) => launch.group),
        [after],
      )
    },
  )

  when('a request may wait with a reason and then be skipped', async (scene) => {
    await scene.submit('a')
    const group = await accepted(scene, 'a')
    const stay = {group, revision: 1, kind: 'stay', reason: 'waits_for_node'} as const
    scene.advance(10)
    const waitsSince = scene.now
    const stayed = await decide(scene, [stay])
    scene.advance(10)
    const repeated = await decide(scene, [stay])
    const view = (await scene.store.launch('a', group))!
    const {executions: none, parent: _parent, children: _children, ...waiting} = view
    assert.deepEqual(none, [])
    assert.deepEqual(stayed, {
      ...stayed,
      requests: ['applied'],
      decided: [{launch: waiting, targets: []}],
    })
    assert.deepEqual([repeated.requests, repeated.decided], [['applied'], []])
    assert.deepEqual([waiting.reason, waiting.storedAt], ['waits_for_node', waitsSince])
    assert.deepEqual((await scene.store.totals()).waitingMs, 10)
    const other = await scene.submit('b')
    const conditions = {isPaused: false, waitsForNode: true}
    assert.deepEqual(await scene.store.job('a'), {...(await scene.job('a')), conditions})
    assert.deepEqual(await scene.store.job('b'), other)
    const {rows} = await scene.store.jobs(ALL_JOBS)
    assert.deepEqual(
      rows.map((row) => row.conditions),
      [conditions, undefined],
    )
    assert.equal(waiting.scheduledAt, waitsSince - 10)
    const skip = {
      group,
      revision: 1,
      kind: 'skip',
      decision: 'skipped',
      reason: 'no_target',
    } as const
    const {decided} = await decide(scene, [skip])
    const {launch} = decided[0]!
    assert.deepEqual([launch.decision, launch.reason, launch.open], ['skipped', 'no_target', false])
    assert.equal((await scene.store.job('a'))!.conditions, undefined)
    const {executions, parent, children, ...stored} = (await scene.store.launch('a', group))!
    assert.deepEqual([stored, executions, parent, children], [launch, [], null, []])
    assert.deepEqual((await scene.store.loadRequests({afterGroup: 0, limit: 10})).requests, [])
  })

  when('a decision about a request of a job edited meanwhile is a conflict', async (scene) => {
    await scene.submit('a')
    const group = await accepted(scene, 'a')
    await scene.submit('a', {concurrency: 'forbid'})
    const launch = {kind: 'launch', targets: targets(['n1']), forbid: false} as const
    const skip = {kind: 'skip', decision: 'skipped', reason: 'no_target'} as const
    const stay = {kind: 'stay', reason: 'waits_for_node'} as const
    for (const decision of [launch, skip, stay]) {
      const {requests} = await decide(scene, [{group, revision: 1, ...decision}])
      assert.deepEqual(requests, ['conflict'], decision.kind)
    }
    assert.equal((await scene.store.launch('a', group))!.reason, '')
    const again = await decide(scene, [{group, revision: 2, ...launch}])
    assert.deepEqual(again.requests, ['applied'])
  })

  when('neighbouring planned times that are skipped become one row', async (scene) => {
    const job = await scene.submit('a')
    const first = job.nextAt!
    const times = [first, first + MINUTE, first + 2 * MINUTE]
    scene.advance(3 * MINUTE)
    const rows = times.map((time) => aRow(time, 'pending', {reason: 'waits_for_node'}))
    const {decided} = await scene.decide(job, rows, first + 3 * MINUTE)
    const skips = decided.map(({launch: {group}}) => {
      return {group, revision: 1, kind: 'skip', decision: 'skipped', reason: 'no_target'} as const
    })
    await decide(scene, skips)
    const history = await scene.store.launches('a', {start: 0, end: null, decision: null})
    assert.deepEqual(
      history!.rows.map(({scheduledAt, scheduledUntil, count}) => [
        scheduledAt,
        scheduledUntil,
        count,
      ]),
      [[first, first + 2 * MINUTE, 3]],
    )
  })

  when('a repeated idempotency key stores one request', async (scene) => {
    await scene.submit('a')
    const idempotency = {key: 'k', scope: 's', fingerprint: 'run a'}
    const request = {name: 'a', forced: false, idempotency}
    const first = await scene.store.requestRun(request)
    assert.deepEqual(await scene.store.requestRun(request), first)
    const other = {...request, forced: true, idempotency: {...idempotency, fingerprint: 'x'}}
    assert.deepEqual(await scene.store.requestRun(other), {kind: 'idempotency_mismatch'})
    assert.equal((await scene.store.loadRequests({afterGroup: 0, limit: 10})).requests.length, 1)
    scene.advance(DAY)
    assert.notDeepEqual(await scene.store.requestRun(request), first)
  })
}
