/**
 * Two servers that change, delete or decide one job concurrently, and a session that keeps its lock: the
 * result is that of some serial order.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {StoreUnavailable} from '../../../src/ports/store-errors.ts'
import type {FinishOutcome} from '../../../src/core/end-requests.ts'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import type {Store} from '../../../src/ports/store.ts'
import {withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {anEnd, aRow, aSpec, MINUTE} from '../exercise-store/scene.ts'
import {beatAs} from '../../support/single-calls.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const CHILD = {schedule: '', parentJob: 'a'}

async function endOn(store: Store, claimed: ClaimedExecution): Promise<FinishOutcome> {
  const [outcome] = await store.finish([anEnd(claimed, 'succeeded')])
  return outcome!
}

/** Pending requests of deleted jobs, which the leader would never decide. */
const ORPHANS = `SELECT l.group_id FROM launches l JOIN jobs j ON j.id = l.job_id
  WHERE l.open = 1 AND l.decision = 'pending' AND j.deleted_at IS NOT NULL`

describe('changing a definition', () => {
  it('while the leader decides about the old one makes the decision a conflict', async () => {
    const changes = [
      {change: {schedule: '@every 1h'}, left: [{decision: 'missed', reason: 'edited'}]},
      {change: {owner: 'somebody'}, left: []},
    ]
    for (const {change, left} of changes)
      await withCluster(postgres, async ({scene, second, hold, waiting, rows}) => {
        const job = await scene.submit('a')
        scene.advance(MINUTE + 1)
        const holder = await hold(`LOCK TABLE definitions IN SHARE MODE`)
        const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
        const submitting = second.submit({spec: aSpec('a', change), ...request})
        await waiting(1)
        const row = aRow(job.nextAt!, 'launched')
        const decide = () => scene.decide(job, [row], job.nextAt! + MINUTE)
        assert.deepEqual((await decide()).dues, ['conflict'])
        await waiting(1)
        await holder.release()
        assert.equal((await submitting).kind, 'stored')
        assert.deepEqual((await decide()).dues, ['conflict'])
        assert.deepEqual(await rows('SELECT decision, reason FROM launches'), left)
      })
  })

  it('of one name at two servers creates one job, and the other submit is refused', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      const create = (store: Store, name: string) => {
        const request = {ifMatch: null, createOnly: true, runOnCreate: false, idempotency: null}
        return store.submit({spec: aSpec(name), ...request})
      }
      const names = Array.from({length: 20}, (_, index) => `job-${index}`)
      const results = await Promise.all([
        ...names.map((name) => create(first, name)),
        ...names.toReversed().map((name) => create(second, name)),
      ])
      const stored = results.filter(({kind}) => kind === 'stored')
      const told = results.filter(({kind}) => kind === 'precondition')
      assert.deepEqual([stored.length, told.length], [20, 20])
      assert.equal((await scene.job('job-7')).revision, 1)
    })
  })

  it('whose precondition fails only after the wait for the lock changes nothing', async () => {
    for (const ask of ['toggle', 'deleteJob'] as const)
      await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
        await scene.submit('a')
        const holder = await hold(`LOCK TABLE definitions IN SHARE MODE`)
        const request = {ifMatch: [1], createOnly: false, runOnCreate: false, idempotency: null}
        const submitting = second.submit({spec: aSpec('a', {owner: 'somebody'}), ...request})
        await waiting(1)
        const asking = first[ask]('a', [1])
        await waiting(2)
        await holder.release()
        assert.equal((await submitting).kind, 'stored')
        assert.deepEqual(await asking, {kind: 'precondition', revision: 2})
        assert.equal((await scene.job('a')).spec.disabled, false)
        assert.notEqual((await first[ask]('a', [2])).kind, 'precondition')
      })
  })

  it('of two jobs that name each other as parent stores only one', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
      for (let round = 0; round < 8; round += 1) {
        const [x, y] = [`x${round}`, `y${round}`]
        await scene.submit(x)
        await scene.submit(y)
        const results = await Promise.all([
          first.submit({spec: aSpec(x, {parentJob: y}), ...request}),
          second.submit({spec: aSpec(y, {parentJob: x}), ...request}),
        ])
        assert.deepEqual(results.map(({kind}) => kind).toSorted(), ['cycle', 'stored'])
      }
    })
  })

  it('does not lose its parent to a concurrent deletion', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
      for (let round = 0; round < 8; round += 1) {
        await scene.submit(`p${round}`)
        const spec = aSpec(`c${round}`, {schedule: '', parentJob: `p${round}`})
        const [stored, deleted] = await Promise.all([
          first.submit({spec, ...request}),
          second.deleteJob(`p${round}`),
        ])
        const kinds = `${stored.kind} ${deleted.kind}`
        assert(['stored dependents', 'parent_unknown deleted'].includes(kinds), kinds)
      }
    })
  })

  it('with one idempotency key at two servers is one request', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a')
      const idempotency = {key: 'k', scope: 'caller', fingerprint: 'f'}
      const ask = (store: Store) => store.requestRun({name: 'a', forced: false, idempotency})
      const [one, two] = await Promise.all([ask(first), ask(second)])
      assert.equal(one.kind, 'accepted')
      assert.deepEqual(two, one)
    })
  })

  it('stores no job after submissions were paused', async () => {
    await withCluster(postgres, async ({scene, second, hold, waiting}) => {
      await scene.submit('a')
      const holder = await hold(`LOCK TABLE definitions IN SHARE MODE`)
      const submitting = scene.trySubmit(aSpec('b'))
      await waiting(1)
      const pausing = second.setPaused(true)
      await waiting(2)
      await holder.release()
      assert.equal((await submitting).kind, 'stored')
      await pausing
      assert.equal((await scene.trySubmit(aSpec('c'))).kind, 'paused')
    })
  })
})

describe('a lock that another session keeps', () => {
  it('fails its waiters before the deadline of a caller and blocks no other job', async () => {
    await withCluster(postgres, async ({scene, first, hold, waiting}) => {
      const {id} = await scene.submit('a')
      await scene.submit('b')
      await scene.run('b')
      const holder = await hold(`SELECT FROM jobs WHERE id = ${id} FOR UPDATE`)
      const beganAt = performance.now()
      const refused = assert.rejects(first.toggle('a'), StoreUnavailable)
      await waiting(1)
      const incarnation = 'n1-incarnation-1'
      assert.equal(await beatAs(first, {nodeId: 'n1', incarnation, status: 'alive'}), 'ok')
      const {term} = scene
      assert.equal(await first.renewLease({term, holder: 'holder-1', ttlMs: 6_000}), true)
      assert.equal((await endOn(first, await scene.claimOne())).kind, 'finished')
      assert.equal((await scene.job('a')).revision, 1)
      await waiting(1)
      await refused
      assert(performance.now() - beganAt < 5_000)
      await holder.release()
      assert.equal((await first.toggle('a')).kind, 'toggled')
    })
  })
})

describe('deleting a job', () => {
  it('during a finish either counts the end first or drops it', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting, rows}) => {
      for (const isEndFirst of [true, false]) {
        const {id} = await scene.submit('a')
        await scene.run('a')
        const claimed = await scene.claimOne()
        const holder = await hold(`SELECT FROM jobs WHERE id = ${id} FOR UPDATE`)
        const early = isEndFirst ? endOn(first, claimed) : second.deleteJob('a')
        await waiting(1)
        const late = isEndFirst ? second.deleteJob('a') : endOn(first, claimed)
        await waiting(2)
        await holder.release()
        const kinds = [(await early).kind, (await late).kind]
        assert.deepEqual(kinds, isEndFirst ? ['finished', 'deleted'] : ['deleted', 'unknown'])
        assert.deepEqual(await rows('SELECT group_id FROM launches WHERE open = 1'), [])
        assert.equal(await first.job('a'), null)
      }
    })
  })

  it('during the finish of its parent leaves no request without a job', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting, rows}) => {
      await scene.submit('a')
      await scene.submit('child', CHILD)
      await scene.run('a')
      const claimed = await scene.claimOne()
      const holder = await hold(`LOCK TABLE launches IN SHARE MODE`)
      const ending = endOn(first, claimed)
      await waiting(1)
      const deleting = second.deleteJob('child')
      await waiting(2)
      await holder.release()
      assert.equal((await ending).kind, 'finished')
      assert.equal((await deleting).kind, 'deleted')
      assert.deepEqual(await rows(ORPHANS), [])
    })
  })

  it('under concurrent load fails no caller and leaves no partial state', async () => {
    await withCluster(postgres, async ({scene, first, second, rows}) => {
      await scene.join('n2')
      const stores = [first, second]
      const play = async (store: Store, name: string) => {
        for (let round = 0; round < 4; round += 1) {
          await store.submit({
            spec: aSpec(name, name === 'a' ? {} : {schedule: '', parentJob: 'a'}),
            ifMatch: null,
            createOnly: false,
            runOnCreate: true,
            idempotency: null,
          })
          const {requests} = await store.loadRequests({afterGroup: 0, limit: 100})
          await Promise.all(
            requests.map(({launch}) => scene.launchRequest(launch.group, ['n1', 'n2'])),
          )
          const claims = await Promise.all(['n1', 'n2'].map((nodeId) => scene.claim(nodeId)))
          await Promise.all(claims.flat().map((claimed) => endOn(store, claimed)))
          await store.deleteJob(name)
          await store.toggle('a')
        }
      }
      await Promise.all(
        ['a', 'b', 'c', 'd'].flatMap((name) => stores.map((store) => play(store, name))),
      )
      assert.deepEqual(await rows(ORPHANS), [])
      const unwatched = `SELECT l.group_id FROM launches l WHERE l.open = 1 AND l.decision = 'launched'
        AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.group_id = l.group_id
          AND e.status IN ('pending', 'running'))`
      assert.deepEqual(await rows(unwatched), [])
    })
  })
})
