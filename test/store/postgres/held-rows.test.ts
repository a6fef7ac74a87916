/** Rows that another session keeps locked: their callers fail in time, and no other work is blocked. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import type {DueDecision} from '../../../src/core/launch-record.ts'
import type {JobRecord} from '../../../src/core/job.ts'
import {StoreUnavailable} from '../../../src/ports/store-errors.ts'
import {withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {anEnd, aRow, MINUTE, targets} from '../exercise-store/scene.ts'
import {claimAs} from '../../support/single-calls.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function launching({id: jobId, revision, nextAt}: JobRecord): DueDecision {
  const rows = [aRow(nextAt!, 'launched')]
  return {jobId, revision, expectedNextAt: nextAt!, nextAt: nextAt! + MINUTE, rows, forbid: false}
}

describe('the leader', () => {
  it('decides unlocked jobs at once, and locked ones after the release', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      const held = await scene.submit('held')
      const free = await scene.submit('free')
      scene.advance(MINUTE + 1)
      const holder = await hold(`LOCK TABLE definitions IN SHARE MODE`)
      const deleting = second.deleteJob('held')
      await waiting(1)
      const {term} = scene
      const request = {term, dues: [launching(held), launching(free)], requests: []}
      const applied = await first.applyLaunches(request)
      assert.deepEqual(applied.dues, ['conflict', 'applied'])
      // The leader did not wait for the lock of the job.
      await waiting(1)
      await holder.release()
      assert.equal((await deleting).kind, 'deleted')
      const later = await first.applyLaunches({...request, dues: [launching(held)]})
      assert.deepEqual(later.dues, ['conflict'])
    })
  })

  it('leaves a locked request pending and launches the others', async () => {
    await withCluster(postgres, async ({scene, first, hold}) => {
      await scene.submit('a')
      const groups: number[] = []
      for (let count = 0; count < 2; count += 1) {
        const asked = await first.requestRun({name: 'a', forced: true, idempotency: null})
        assert(asked.kind === 'accepted')
        groups.push(asked.group)
      }
      const requests = groups.map((group) => {
        return {
          group,
          revision: 1,
          kind: 'launch',
          targets: targets(['n1']),
          forbid: false,
        } as const
      })
      const holder = await hold(`SELECT FROM launches WHERE group_id = ${groups[0]} FOR UPDATE`)
      const decide = () => first.applyLaunches({term: scene.term, dues: [], requests})
      assert.deepEqual((await decide()).requests, ['conflict', 'applied'])
      await holder.release()
      assert.deepEqual((await decide()).requests, ['applied', 'conflict'])
    })
  })
})

describe('ends of a job that is locked', () => {
  it('fail in time, without failing the ends of other jobs', async () => {
    await withCluster(postgres, async ({scene, first, hold}) => {
      const {id} = await scene.submit('held')
      await scene.submit('free')
      for (let count = 0; count < 20; count += 1) await scene.run('held')
      await scene.run('free')
      const claimed = await scene.claim()
      const holder = await hold(`SELECT FROM jobs WHERE id = ${id} FOR UPDATE`)
      const beganAt = performance.now()
      // Sent together, they start as one transaction.
      const ends = await Promise.allSettled(
        claimed.map((each) => first.finish([anEnd(each, 'succeeded')])),
      )
      assert(performance.now() - beganAt < 10_000)
      const told = ends.map((end) => (end.status === 'fulfilled' ? end.value[0]!.kind : end.reason))
      assert.equal(told.pop(), 'finished')
      assert.equal(told.length, 20)
      assert(told.every((reason) => reason instanceof StoreUnavailable))
      await holder.release()
      assert.equal((await scene.job('held')).counters.successCount, 0)
    })
  })
})

describe('the leader’s connection', () => {
  it('is free while every other write queue waits', async () => {
    await withCluster(postgres, async ({scene, first, hold, waiting}) => {
      await scene.submit('a')
      await scene.run('a')
      const claimed = await scene.claimOne()
      const {key, token} = anEnd(claimed, 'succeeded')
      const {term} = scene
      const held = 'jobs, executions, launches, node_claims, policies'
      const holder = await hold(`LOCK TABLE ${held} IN ACCESS EXCLUSIVE MODE`)
      const output = {key, token, offset: 0, bytes: new Uint8Array(1)}
      const others = [
        first.toggle('a'),
        claimAs(first, {nodeId: 'n1', incarnation: 'n1-incarnation-1', token: 'other', room: 1}),
        first.appendOutput([output]),
        first.finish([anEnd(claimed, 'succeeded')]),
        first.applyReassignments({term, moves: [{key, to: {nodeId: 'n1', nodeName: 'node-1'}}]}),
        first.putPolicy({name: 'p', rules: ''}),
      ]
      await waiting(others.length)
      await first.applyLaunches({term, dues: [], requests: []})
      // None of them failed to make room for it.
      await waiting(others.length)
      await holder.release()
      await Promise.all(others)
    })
  })
})
