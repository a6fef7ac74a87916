/** Retention of history: the newest and the open launches stay, and each call is bounded. */
import assert from 'node:assert/strict'
import type {PruneRequest} from '../../../src/ports/leader-store.ts'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, ALL_ROWS, anEnd, aRow, aSpec, DAY, MINUTE, type Scene} from './scene.ts'

const KEEP: Omit<PruneRequest, 'term'> = {
  keepLaunches: 100,
  keepExecutions: 1_000,
  keepUnlaunched: 1_000,
  keepMs: null,
  keepOutputBytes: 2 ** 31,
  round: 'all',
  after: 0,
  jobLimit: 100,
  rowLimit: 1_000,
}

function prune(scene: Scene, keep: Partial<PruneRequest>) {
  return scene.store.prune({...KEEP, term: scene.term, ...keep})
}

/** The rows that belong to no live job. */
export function pruneOther(scene: Scene, keep: Partial<PruneRequest> = {}) {
  return prune(scene, {...keep, round: 'other'})
}

async function launchesOf(scene: Scene, name: string): Promise<number[]> {
  const page = await scene.store.launches(name, {...ALL_ROWS, decision: null})
  return page!.rows.map(({group}) => group).toReversed()
}

export function pruneCases(when: Case): void {
  when(
    'retention keeps the newest launches with their executions, and every open one',
    async (scene) => {
      await scene.submit('a')
      const open = await scene.run('a')
      await scene.claim()
      const groups: number[] = []
      for (let index = 0; index < 4; index += 1)
        groups.push(await scene.complete('a', 'succeeded', {output: 'x'}))
      const result = await prune(scene, {keepLaunches: 2})
      const {rowsDeleted, outputBytesCut, more, isRoundOver} = result
      assert.deepEqual([rowsDeleted, outputBytesCut, more, isRoundOver], [4, 2, false, true])
      assert.deepEqual(await launchesOf(scene, 'a'), [open, ...groups.slice(2)])
      assert.equal((await scene.store.executions('a', ALL_EXECUTIONS))!.total, 3)
      const before = await scene.job('a')
      assert.equal(before.counters.successCount, 4)
      await prune(scene, {keepLaunches: 0})
      assert.deepEqual(await launchesOf(scene, 'a'), [open])
      assert.deepEqual(await scene.job('a'), before)
    },
  )

  when('launches are kept longer than their executions and output', async (scene) => {
    await scene.submit('a', {retries: 1})
    const open = await scene.run('a')
    await scene.claim()
    const groups: number[] = []
    for (let index = 0; index < 4; index += 1)
      groups.push(await scene.complete('a', 'succeeded', {output: 'x'}))
    const job = await scene.job('a')
    const bounded = await prune(scene, {keepExecutions: 1, rowLimit: 2})
    assert.deepEqual([bounded.rowsDeleted, bounded.more], [2, true])
    const {rowsDeleted, outputBytesCut, more} = await prune(scene, {keepExecutions: 1})
    assert.deepEqual([rowsDeleted, outputBytesCut, more], [1, 1, false])
    const launches = await scene.launches('a')
    assert.deepEqual(
      launches.map(({group, status, executions}) => [group, status, executions.length]),
      [
        [groups[3], 'success', 1],
        ...groups
          .slice(0, 3)
          .toReversed()
          .map((group) => [group, 'success', 0]),
        [open, null, 1],
      ],
    )
    assert.deepEqual(await scene.job('a'), job)
    assert.equal((await prune(scene, {keepExecutions: 1})).rowsDeleted, 0)
  })

  when('rows without a launch have a limit of their own', async (scene) => {
    const job = await scene.submit('a')
    scene.advance(10 * MINUTE)
    const rows = Array.from({length: 6}, (_, index) =>
      aRow(job.nextAt! + index * MINUTE, index % 2 === 0 ? 'skipped' : 'missed'),
    )
    await scene.decide(job, rows, job.nextAt! + 6 * MINUTE)
    await scene.complete('a', 'failed')
    const result = await prune(scene, {keepUnlaunched: 2})
    assert.equal(result.rowsDeleted, 4)
    assert.equal((await launchesOf(scene, 'a')).length, 3)
  })

  when('retention by age deletes old closed launches', async (scene) => {
    await scene.submit('a')
    await scene.complete('a', 'succeeded')
    const open = await scene.run('a')
    scene.advance(3 * DAY)
    const young = await scene.run('a')
    for (const claimed of (await scene.claim()).slice(1)) await scene.end(claimed, 'succeeded')
    await prune(scene, {keepMs: 2 * DAY})
    assert.deepEqual(await launchesOf(scene, 'a'), [open, young])
  })

  for (const seen of ['a join', 'a renewal of the lease', 'a takeover'] as const)
    when(
      `a clock far ahead or a standstill, found by ${seen}, deletes nothing by age`,
      async (scene) => {
        const {store} = scene
        const keepMs = 90 * DAY
        const limits = {
          keepMs,
          keepEntries: 1_000,
          keepBytes: 1e9,
          keepRefused: 10,
          keepRevisions: 0,
        }
        const deleted = async () => {
          const {term} = scene
          const members = {term, leftAfterMs: 30 * DAY, failedAfterMs: 30 * DAY, limit: 10}
          return [
            (await prune(scene, {keepMs})).rowsDeleted,
            (await store.pruneAudit({term, ...limits, after: 0, limit: 100})).rowsDeleted > 0,
            (await store.pruneMembers(members)).length,
          ]
        }
        await scene.submit('a')
        await scene.complete('a', 'succeeded')
        await scene.join('n2')
        await scene.setStatus('n2', 'n2-incarnation-1', 'left')
        const token = {kind: 'client', policies: [], isFirst: false} as const
        const expiresAt = scene.now + DAY
        await store.createToken({...token, accessor: 't', digest: 't', name: 't', expiresAt})
        const isTokenKept = async () => {
          const other = {accessor: 'u', digest: 'u', name: 'u', expiresAt: null}
          await store.createToken({...token, ...other})
          await store.deleteToken('u')
          return (await store.token('t')) !== null
        }
        let holder = 'holder-1'
        const renew = () => store.renewLease({term: scene.term, holder, ttlMs: 6_000})
        assert.ok(await renew())
        scene.advance(400 * DAY)
        if (seen === 'a join') await scene.join('n1')
        if (seen === 'a renewal of the lease') assert.ok(await renew())
        if (seen === 'a takeover') {
          holder = 'holder-2'
          await scene.lead(holder)
        }
        await scene.complete('a', 'failed')
        assert.deepEqual(await deleted(), [0, false, 0])
        assert.ok(await isTokenKept())
        for (let day = 0; day < 29; day += 1) {
          scene.advance(DAY / 24)
          assert.ok(await renew())
        }
        assert.deepEqual(
          await deleted(),
          [0, false, 0],
          'it has run for less than the limits since',
        )
        scene.advance(91 * DAY)
        assert.deepEqual(await deleted(), [4, true, 1])
        assert.ok(!(await isTokenKept()))
      },
    )

  when('a call is bounded by rows and jobs, and returns where to continue', async (scene) => {
    const jobs = [await scene.submit('a'), await scene.submit('b'), await scene.submit('c')]
    for (const {spec} of jobs)
      for (let index = 0; index < 3; index += 1) await scene.complete(spec.name, 'succeeded')
    const none = {keepLaunches: 0}
    const cut = await prune(scene, {...none, rowLimit: 4})
    assert.deepEqual([cut.rowsDeleted, cut.more], [4, true])
    const first = await prune(scene, {...none, jobLimit: 2})
    const {newestGroup, ...place} = first
    assert.deepEqual(place, {
      next: jobs[1]!.id,
      isRoundOver: false,
      rowsDeleted: 8,
      outputBytesCut: 0,
      more: false,
    })
    assert.equal(newestGroup, (await launchesOf(scene, 'c')).at(-1))
    const rest = await prune(scene, {...none, jobLimit: 2, after: first.next})
    assert.deepEqual([rest.isRoundOver, rest.rowsDeleted, rest.more], [true, 6, false])
    for (const {spec} of jobs) assert.deepEqual(await launchesOf(scene, spec.name), [])
  })

  when('a round over recent launches visits no other job, and can be continued', async (scene) => {
    for (const name of ['a', 'b', 'c']) await scene.submit(name)
    for (let index = 0; index < 2; index += 1) await scene.complete('a', 'succeeded')
    const {newestGroup} = await prune(scene, {})
    const none = {keepLaunches: 0, round: 'launched'} as const
    const quiet = await prune(scene, {...none, after: newestGroup})
    assert.deepEqual([quiet.rowsDeleted, quiet.next, quiet.isRoundOver], [0, newestGroup, true])
    const [b1, c1, b2] = [
      await scene.complete('b', 'succeeded'),
      await scene.complete('c', 'succeeded'),
      await scene.complete('b', 'failed'),
    ]
    const first = await prune(scene, {...none, after: newestGroup, jobLimit: 2})
    assert.deepEqual([first.next, first.isRoundOver, first.rowsDeleted], [c1, false, 6])
    const rest = await prune(scene, {...none, after: first.next, jobLimit: 2})
    assert.deepEqual([rest.next, rest.isRoundOver, rest.rowsDeleted], [c1, true, 0])
    assert(b1 < c1 && c1 < b2)
    assert.equal((await launchesOf(scene, 'a')).length, 2)
    const open = await scene.run('c')
    await scene.store.deleteJob('b')
    const last = await prune(scene, {...none, after: newestGroup})
    assert.deepEqual([last.next, last.isRoundOver], [open, true])
    assert.deepEqual(await launchesOf(scene, 'c'), [open])
  })

  when.withManyRows(
    'retention by age finds any number of old launches behind open ones',
    async (scene) => {
      await scene.submit('a')
      const open: number[] = []
      for (let index = 0; index < 60; index += 1) open.push(await scene.run('a'))
      for (let index = 0; index < 60; index += 1) await scene.run('a')
      const claimed = (await scene.claim('n1', 120)).filter(({execution}) => {
        return execution.group > open.at(-1)!
      })
      for (const one of claimed) await scene.end(one, 'succeeded')
      scene.advance(3 * DAY)
      const old = {keepMs: DAY, keepLaunches: 1_000}
      const first = await prune(scene, old)
      assert.deepEqual([first.rowsDeleted, first.more], [100, true])
      const rest = await prune(scene, old)
      assert.deepEqual([rest.rowsDeleted, rest.more], [20, false])
      assert.deepEqual(await launchesOf(scene, 'a'), open)
    },
  )

  when('a launch with more rows than the limit is still deleted', async (scene) => {
    await scene.join('n2')
    await scene.join('n3')
    await scene.submit('a')
    await scene.run('a', ['n1', 'n2', 'n3'])
    for (const node of ['n1', 'n2', 'n3']) await scene.end(await scene.claimOne(node), 'failed')
    const result = await prune(scene, {keepLaunches: 0, rowLimit: 2})
    assert.deepEqual([result.rowsDeleted, result.more], [4, false])
  })

  when(
    'too much output deletes the oldest first, and none of running executions',
    async (scene) => {
      await scene.submit('a')
      const running = await scene.run('a')
      const held = await scene.claimOne()
      const bytes = new TextEncoder().encode('0123456789')
      const key = {group: running, node: 'node-1', attempt: 1}
      await scene.store.appendOutput([{key, token: held.token, offset: 0, bytes}])
      const groups: number[] = []
      for (let index = 0; index < 3; index += 1)
        groups.push(await scene.complete('a', 'succeeded', {output: '0123456789'}))
      const result = await pruneOther(scene, {keepOutputBytes: 25})
      assert.deepEqual([result.outputBytesCut, result.more], [20, false])
      const page = await scene.store.executions('a', {...ALL_EXECUTIONS, order: 'asc'})
      assert.deepEqual(
        page!.rows.map(({output, outputTruncated}) => [output.length, outputTruncated]),
        [
          [10, false],
          [0, true],
          [0, true],
          [10, false],
        ],
      )
      assert.equal((await pruneOther(scene, {keepOutputBytes: 25})).outputBytesCut, 0)
    },
  )

  when('a deleted job leaves no rows after its last execution has ended', async (scene) => {
    await scene.submit('a')
    await scene.complete('a', 'succeeded', {output: 'abc'})
    await scene.run('a')
    const running = await scene.claimOne()
    await scene.store.deleteJob('a')
    assert.equal((await pruneOther(scene)).rowsDeleted, 0)
    await scene.end(running, 'cancelled')
    const result = await pruneOther(scene)
    assert.deepEqual([result.rowsDeleted, result.outputBytesCut], [4, 3])
    assert.equal((await pruneOther(scene)).rowsDeleted, 0)
  })

  when(
    'an ephemeral job’s launch expires after a day, and so do old keys and statistics',
    async (scene) => {
      await scene.submit('once', {ephemeral: true})
      const group = await scene.complete('once', 'succeeded')
      const idempotency = {key: 'k', scope: 's', fingerprint: 'f'}
      await scene.trySubmit(aSpec('a'), {idempotency})
      await pruneOther(scene)
      assert.notEqual(await scene.store.launch('once', group), null)
      scene.advance(DAY)
      // The launch, its execution, the deleted job and the key.
      assert.equal((await pruneOther(scene)).rowsDeleted, 4)
      scene.advance(401 * DAY)
      // The day of the statistics, and the events of the first term and the first node.
      assert.equal((await pruneOther(scene)).rowsDeleted, 3)
    },
  )

  when.withManyRows(
    'many deleted jobs are removed in bounded calls, with all their launches',
    async (scene) => {
      for (const name of ['a', 'b', 'c']) {
        await scene.submit(name)
        for (let index = 0; index < 60; index += 1) await scene.run(name)
        const ends = (await scene.claim('n1', 100)).map((each) => anEnd(each, 'succeeded'))
        await scene.store.finish(ends)
        await scene.store.deleteJob(name)
      }
      let calls = 0
      let rows = 0
      for (let more = true; more; calls += 1) {
        const result = await pruneOther(scene, {rowLimit: 100})
        assert(result.rowsDeleted <= 100 + 3, `${result.rowsDeleted} rows`)
        rows += result.rowsDeleted
        more = result.more
      }
      assert.deepEqual([rows, calls > 3], [3 * (60 * 2 + 1), true])
      assert.equal((await pruneOther(scene)).rowsDeleted, 0)
    },
  )

  when('a round over jobs leaves rows of no job to their own round', async (scene) => {
    await scene.submit('a')
    await scene.complete('a', 'succeeded', {output: 'abc'})
    await scene.store.deleteJob('a')
    assert.equal((await prune(scene, {})).rowsDeleted, 0)
    assert.equal((await pruneOther(scene)).rowsDeleted, 3)
  })
}
