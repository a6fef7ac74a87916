/** Finishing executions: once, by token, with all consequences in the same transaction. */
import assert from 'node:assert/strict'
import {retryDelayMs} from '../../../src/core/finish.ts'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, anEnd, DAY, HOUR} from './scene.ts'

export function finishCases(when: Case): void {
  when(
    'a finish stores every field, and finished_at is the claim time plus the duration',
    async (scene) => {
      await scene.submit('a')
      const group = await scene.run('a')
      const claimed = await scene.claimOne()
      scene.advance(60_000)
      const outcome = await scene.end(claimed, 'failed', {
        durationMs: 1234.4,
        exitCode: 3,
        reason: 'because',
        head: 'exit status 3\n',
        foot: 'note',
        output: 'out',
      })
      assert(outcome.kind === 'finished')
      const {execution, retry, closed, jobDisabled, jobDeleted} = outcome
      assert.equal(execution.finishedAt, execution.startedAt! + 1234)
      assert.deepEqual([retry, jobDisabled, jobDeleted], [null, false, false])
      assert.deepEqual(closed, {status: 'failed', dependents: [], wakesLauncher: false})
      const found = await scene.store.execution('a', {group, node: 'node-1', attempt: 1}, 100)
      const {output, outputTruncated, ...record} = found!
      assert.deepEqual(record, execution)
      assert.deepEqual([record.exitCode, record.reason, record.outputBytes], [3, 'because', 3])
      assert.deepEqual([output.length, outputTruncated], [3, false])
      const job = await scene.job('a')
      assert.deepEqual([job.status, job.counters.errorCount], ['failed', 1])
      assert.equal(job.counters.lastError, execution.finishedAt)
      assert.equal((await scene.store.launch('a', group))!.open, false)
    },
  )

  when('a finish moves started_at to the actual start, but not beyond the end', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    await scene.run('a')
    const [one, two] = await scene.claim()
    const ends = [
      {...anEnd(one!, 'succeeded'), durationMs: 900, startedAfterMs: 250},
      {...anEnd(two!, 'succeeded'), durationMs: 900, startedAfterMs: 5_000},
    ]
    const outcomes = await scene.store.finish(ends)
    const times = outcomes.map((outcome, index) => {
      assert(outcome.kind === 'finished')
      const claimedAt = [one!, two!][index]!.execution.startedAt!
      const {startedAt, finishedAt} = outcome.execution
      return [startedAt! - claimedAt, finishedAt! - claimedAt]
    })
    assert.deepEqual(times, [
      [250, 900],
      [900, 900],
    ])
    const stored = await scene.store.executions('a', ALL_EXECUTIONS)
    const records = outcomes.flatMap((each) => (each.kind === 'finished' ? [each.execution] : []))
    assert.deepEqual(
      stored!.rows.map(({group, startedAt}) => [group, startedAt]).toSorted(byGroup),
      records.map(({group, startedAt}) => [group, startedAt]).toSorted(byGroup),
    )
  })

  when('a repeated finish changes nothing', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const claimed = await scene.claimOne()
    const item = anEnd(claimed, 'succeeded')
    const together = await scene.store.finish([item, anEnd(claimed, 'failed')])
    const key = {group, node: 'node-1', attempt: 1}
    assert.deepEqual(
      together.map(({kind}) => kind),
      ['finished', 'already'],
    )
    const before = await scene.job('a')
    assert.deepEqual(await scene.store.finish([item]), [
      {kind: 'already', key, status: 'succeeded'},
    ])
    assert.deepEqual(await scene.job('a'), before)
    assert.equal(before.counters.successCount, 1)
    const found = await scene.store.execution('a', key, 0)
    assert.equal(found!.lateResult, '')
  })

  when('a node that repeats its own report of a lost execution changes nothing', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const item = {...anEnd(await scene.claimOne(), 'lost'), reason: 'node_stopped' as const}
    const [first] = await scene.store.finish([item])
    assert.equal(first!.kind, 'finished')
    const key = {group, node: 'node-1', attempt: 1}
    const before = await scene.store.execution('a', key, 0)
    assert.deepEqual(await scene.store.finish([item]), [{kind: 'already', key, status: 'lost'}])
    assert.deepEqual(await scene.store.execution('a', key, 0), before)
  })

  when('a finish without the token of the claim is refused', async (scene) => {
    await scene.submit('a')
    const group = await scene.run('a')
    const key = {group, node: 'node-1', attempt: 1}
    const pending = {...anEnd(await fakeClaim(group), 'succeeded'), token: ''}
    assert.deepEqual(await scene.store.finish([pending]), [{kind: 'unknown', key}])
    const claimed = await scene.claimOne()
    const wrong = {...anEnd(claimed, 'succeeded'), token: 'other'}
    const absent = {...anEnd(claimed, 'succeeded'), key: {...key, attempt: 9}}
    const right = anEnd(claimed, 'succeeded')
    const outcomes = await scene.store.finish([wrong, absent, right])
    assert.deepEqual(
      outcomes.map(({kind}) => kind),
      ['unknown', 'unknown', 'finished'],
    )
  })

  when(
    'a failure is retried in its slot, after the backoff, up to the limit of retries',
    async (scene) => {
      await scene.submit('a', {retries: 2})
      const group = await scene.run('a')
      for (const attempt of [1, 2]) {
        const claimed = await scene.claimOne()
        assert.equal(claimed.execution.attempt, attempt)
        const outcome = await scene.end(claimed, attempt === 1 ? 'failed' : 'timed_out')
        const notBefore = scene.now + retryDelayMs(attempt, 0.5)
        const key = {group, node: 'node-1', attempt: attempt + 1}
        assert(outcome.kind === 'finished')
        assert.deepEqual([outcome.retry, outcome.closed], [{key, notBefore}, null])
        assert.equal((await scene.store.launch('a', group))!.open, true)
        assert.equal((await scene.job('a')).status, '')
        scene.advance(retryDelayMs(attempt, 0.5))
      }
      const last = await scene.end(await scene.claimOne(), 'failed')
      assert(last.kind === 'finished' && last.retry === null)
      assert.equal(last.closed!.status, 'failed')
      assert.equal((await scene.job('a')).counters.errorCount, 3)
    },
  )

  when(
    'a launch succeeds after a successful retry, and targets that differ make it partially failed',
    async (scene) => {
      await scene.join('n2')
      await scene.submit('a', {retries: 1})
      await scene.run('a', ['n1', 'n2'])
      const [one] = await scene.claim('n1')
      const [two] = await scene.claim('n2')
      await scene.end(one!, 'failed')
      const second = await scene.end(two!, 'succeeded')
      assert(second.kind === 'finished' && second.closed === null)
      scene.advance(2_000)
      const retried = await scene.end(await scene.claimOne('n1'), 'succeeded')
      assert(retried.kind === 'finished')
      assert.equal(retried.closed!.status, 'success')
      await scene.submit('b')
      await scene.run('b', ['n1', 'n2'])
      const both = [...(await scene.claim('n1')), ...(await scene.claim('n2'))]
      const outcomes = await scene.store.finish([
        anEnd(both[0]!, 'succeeded'),
        anEnd(both[1]!, 'failed'),
      ])
      const closed = outcomes.map((each) => (each.kind === 'finished' ? each.closed : null))
      assert.deepEqual(closed, [
        null,
        {status: 'partially_failed', dependents: [], wakesLauncher: false},
      ])
      assert.equal((await scene.job('b')).status, 'partially_failed')
    },
  )

  when('two nodes that finish together close the launch once', async (scene) => {
    await scene.join('n2')
    await scene.submit('a')
    await scene.submit('child', {parentJob: 'a'})
    await scene.run('a', ['n1', 'n2'])
    const one = await scene.claimOne('n1')
    const two = await scene.claimOne('n2')
    const outcomes = await Promise.all([scene.end(one, 'succeeded'), scene.end(two, 'succeeded')])
    const closed = outcomes.filter((each) => each.kind === 'finished' && each.closed !== null)
    assert.equal(closed.length, 1)
    assert.equal((await scene.store.loadRequests({afterGroup: 0, limit: 9})).requests.length, 1)
  })

  when(
    'an older launch that ends later does not overwrite the status of a newer one',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      await scene.run('a')
      const [older, newer] = await scene.claim()
      await scene.end(newer!, 'succeeded')
      const outcome = await scene.end(older!, 'failed')
      assert(outcome.kind === 'finished' && outcome.closed !== null)
      const job = await scene.job('a')
      assert.equal(job.status, 'success')
      assert.deepEqual([job.counters.successCount, job.counters.errorCount], [1, 1])
    },
  )

  when('statistics count an execution on the UTC day of its end', async (scene) => {
    await scene.submit('a')
    await scene.run('a')
    const claimed = await scene.claimOne()
    await scene.end(claimed, 'succeeded', {durationMs: 13 * HOUR})
    scene.advance(DAY)
    await scene.complete('a', 'cancelled')
    const midnight = scene.now - (scene.now % DAY)
    assert.deepEqual(await scene.store.statistics(3), [
      {date: midnight - 2 * DAY, successCount: 0, failedCount: 0},
      {date: midnight - DAY, successCount: 0, failedCount: 0},
      {date: midnight, successCount: 1, failedCount: 1},
    ])
  })

  when(
    'last_success and last_error are the newest ends, in any order of arrival',
    async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      await scene.run('a')
      const [one, two] = await scene.claim()
      await scene.end(one!, 'succeeded', {durationMs: 5_000})
      await scene.end(two!, 'succeeded', {durationMs: 1_000})
      assert.equal((await scene.job('a')).counters.lastSuccess, one!.execution.startedAt! + 5_000)
    },
  )

  when('a batch of ends of one job counts each of them', async (scene) => {
    await scene.submit('a', {retries: 1})
    for (let index = 0; index < 20; index += 1) await scene.run('a')
    const claimed = await scene.claim()
    await scene.store.finish(
      claimed.map((each, index) => anEnd(each, index % 2 === 0 ? 'succeeded' : 'failed')),
    )
    const {counters} = await scene.job('a')
    assert.deepEqual([counters.successCount, counters.errorCount], [10, 10])
    const page = await scene.store.executions('a', {...ALL_EXECUTIONS, status: 'pending'})
    assert.equal(page!.total, 10)
  })
}

/** A claim with an invented token. */
async function fakeClaim(group: number) {
  const execution = {group, node: 'node-1', attempt: 1}
  return {execution, token: ''} as Parameters<typeof anEnd>[0]
}

function byGroup([one]: (number | null)[], [other]: (number | null)[]): number {
  return one! - other!
}
