/**
 * Two servers that change the same thing at the same moment: what comes out is what one after the other
 * gives.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {StoreUnavailable} from '../../../src/ports/store-failure.ts'
import type {ClaimedExecution, FinishOutcome} from '../../../src/ports/node-store.ts'
import type {Store} from '../../../src/ports/store.ts'
import {withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {ALL_ROWS, anEnd, aRow, aSpec, MINUTE, type Scene} from '../exercise-store/scene.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const CHILD = {schedule: '', parentJob: 'a'}

/** Launches `a` on two nodes, which both run it. */
async function onTwoNodes(scene: Scene): Promise<[number, ClaimedExecution, ClaimedExecution]> {
  const group = await scene.run('a', ['n1', 'n2'])
  return [group, await scene.claimOne('n1'), await scene.claimOne('n2')]
}

async function endOn(store: Store, claimed: ClaimedExecution): Promise<FinishOutcome> {
  const [outcome] = await store.finish([anEnd(claimed, 'succeeded')])
  return outcome!
}

function closings(outcomes: readonly FinishOutcome[]): unknown[] {
  return outcomes.flatMap((outcome) => {
    return outcome.kind === 'finished' && outcome.closed !== null ? [outcome.closed] : []
  })
}

/** Requests of jobs that are gone: nobody would ever decide them. */
const ORPHANS = `SELECT l.group_id FROM launches l JOIN jobs j ON j.id = l.job_id
  WHERE l.open = 1 AND l.decision = 'pending' AND j.deleted_at IS NOT NULL`

describe('two nodes that finish one launch', () => {
  it('hide the rest of it from a claim, which soon looks again', async () => {
    await withCluster(postgres, async ({scene, first, hold}) => {
      await scene.submit('a')
      await scene.join('n2')
      const group = await scene.run('a', ['n1', 'n2'])
      const holder = await hold(`SELECT FROM executions WHERE group_id = ${group} FOR UPDATE`)
      const request = {nodeId: 'n2', incarnation: 'n2-life-1', room: 5}
      const early = await first.claim({...request, token: 't1'})
      assert.deepEqual([early.claimed, early.waiting], [[], 0])
      assert.ok(early.nextDueInMs !== null && early.nextDueInMs < 100, `${early.nextDueInMs} ms`)
      await holder.release()
      const later = await first.claim({...request, token: 't2'})
      assert.deepEqual([later.claimed.length, later.nextDueInMs], [1, null])
    })
  })

  it('close it once, whichever comes last', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      const job = await scene.submit('a')
      await scene.submit('child', CHILD)
      await scene.join('n2')
      const [group, one, two] = await onTwoNodes(scene)
      const holder = await hold(`SELECT FROM jobs WHERE id = ${job.id} FOR UPDATE`)
      const ends = [endOn(first, one), endOn(second, two)]
      await waiting(2)
      await holder.release()
      const outcomes = await Promise.all(ends)
      assert.deepEqual(closings(outcomes), [{status: 'success', dependents: ['child']}])
      const {counters, status} = await scene.job('a')
      assert.deepEqual([counters.successCount, status], [2, 'success'])
      assert.equal((await first.launch('a', group))!.launch.open, false)
      const asked = await first.launches('child', {...ALL_ROWS, decision: 'pending'})
      assert.equal(asked!.total, 1)
      const [today] = await second.statistics(1)
      assert.equal(today!.successCount, 2)
    })
  })

  it('close every one of many once, whatever meets', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a')
      await scene.submit('child', CHILD)
      await scene.join('n2')
      const launches: [number, ClaimedExecution, ClaimedExecution][] = []
      for (let count = 0; count < 20; count += 1) launches.push(await onTwoNodes(scene))
      const outcomes = await Promise.all([
        ...launches.map(([, one]) => endOn(first, one)),
        ...launches.toReversed().map(([, , two]) => endOn(second, two)),
      ])
      assert.equal(closings(outcomes).length, launches.length)
      assert.equal((await scene.job('a')).counters.successCount, 2 * launches.length)
      const asked = await first.launches('child', {...ALL_ROWS, decision: 'pending'})
      assert.equal(asked!.total, launches.length)
    })
  })

  it('one execution finished at both servers counts once', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a')
      await scene.run('a')
      const claimed = await scene.claimOne()
      const outcomes = await Promise.all([endOn(first, claimed), endOn(second, claimed)])
      assert.deepEqual(outcomes.map(({kind}) => kind).toSorted(), ['already', 'finished'])
      assert.equal((await scene.job('a')).counters.successCount, 1)
    })
  })
})

describe('a claim', () => {
  const claimAs = (store: Store, token: string) => {
    return store.claim({nodeId: 'n1', incarnation: 'n1-life-1', token, room: 9})
  }

  it('of a life that is over is either seen by the next life, or takes nothing', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      const group = await scene.run('a')
      const holder = await hold(`SELECT FROM node_claims FOR UPDATE`)
      const claiming = claimAs(first, 'late')
      await waiting(1)
      const member = (await second.members())[0]!
      const joining = second.join({member: {...member, incarnation: 'n1-life-2'}}, 10_000)
      await waiting(2)
      await holder.release()
      assert.equal((await claiming).claimed.length, 1)
      assert.deepEqual(await joining, {kind: 'joined'})
      const rescued = await second.rescue({
        term: null,
        nodeId: 'n1',
        exceptIncarnation: 'n1-life-2',
        judged: null,
        reason: 'node_restarted',
        limit: 9,
        dice: 0,
      })
      assert.deepEqual(
        rescued.finished.map(({kind}) => kind),
        ['finished'],
      )
      assert.equal((await first.launch('a', group))!.executions[0]!.status, 'lost')
      await scene.run('a')
      assert.deepEqual((await claimAs(first, 'later')).claimed, [])
    })
  })

  it('repeated while its first try is being committed answers the same', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      await scene.run('a')
      const holder = await hold(`SELECT FROM node_claims FOR UPDATE`)
      const claims = [claimAs(first, 'same'), claimAs(second, 'same')]
      await waiting(2)
      await holder.release()
      const [one, two] = await Promise.all(claims)
      assert.equal(one!.claimed.length, 1)
      assert.deepEqual(two!.claimed, one!.claimed)
    })
  })

  it('and a rescue of its node leave nothing running that nobody watches', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      const group = await scene.run('a')
      const member = (await second.members())[0]!
      const {incarnation, heartbeatAt} = member
      const holder = await hold(`SELECT FROM node_claims FOR UPDATE`)
      const claiming = claimAs(first, 'late')
      await waiting(1)
      const rescuing = second.rescue({
        term: scene.term,
        nodeId: 'n1',
        exceptIncarnation: null,
        judged: {incarnation, heartbeatAt},
        reason: 'node_lost',
        limit: 9,
        dice: 0,
      })
      await waiting(2)
      await holder.release()
      const [claimed] = (await claiming).claimed
      assert.equal((await rescuing).finished.length, 1)
      assert.equal((await first.launch('a', group))!.executions[0]!.status, 'lost')
      const outcome = await endOn(first, claimed!)
      assert.deepEqual([outcome.kind, (await scene.job('a')).counters.errorCount], ['already', 1])
    })
  })

  it('and a move of the same execution give it to one node', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a')
      await scene.join('n2')
      for (let round = 0; round < 10; round += 1) {
        const group = await scene.run('a')
        const key = {group, node: 'node-1', attempt: 1}
        const to = {nodeId: 'n2', nodeName: 'node-2'}
        const [{claimed}, [moved]] = await Promise.all([
          claimAs(first, `round ${round}`),
          second.applyMoves({term: scene.term, moves: [{key, to}]}),
        ])
        const elsewhere = await scene.claim('n2')
        const taken = [claimed.length, moved === 'applied' ? 1 : 0, elsewhere.length]
        const isOnce = claimed.length + elsewhere.length === 1
        assert(isOnce && (moved === 'applied') === (elsewhere.length === 1), String(taken))
      }
    })
  })
})

describe('changing a definition', () => {
  it('while the leader decides about the old one makes that a conflict', async () => {
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
        const launching = scene.decide(job, [aRow(job.nextAt!, 'launched')], job.nextAt! + MINUTE)
        await waiting(2)
        await holder.release()
        assert.equal((await submitting).kind, 'stored')
        assert.deepEqual((await launching).dues, ['conflict'])
        assert.deepEqual(await rows('SELECT decision, reason FROM launches'), left)
      })
  })

  it('of one name at two servers: one creates, the other is told', async () => {
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

  it('under a condition that held when it was asked and not when its turn came changes nothing', async () => {
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

  it('of two jobs that each name the other as parent: never both', async () => {
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

  it('a parent is not deleted under a child that is being stored', async () => {
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

  it('a key sent to two servers is one request', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a')
      const idempotency = {key: 'k', scope: 'caller', fingerprint: 'f'}
      const ask = (store: Store) => store.requestRun({name: 'a', forced: false, idempotency})
      const [one, two] = await Promise.all([ask(first), ask(second)])
      assert.equal(one.kind, 'accepted')
      assert.deepEqual(two, one)
    })
  })

  it('once submissions are paused none is stored any more', async () => {
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

describe('a lock that somebody keeps', () => {
  it('fails who needs it within the patience of a caller, and holds up nobody else', async () => {
    await withCluster(postgres, async ({scene, first, hold, waiting}) => {
      const {id} = await scene.submit('a')
      await scene.submit('b')
      await scene.run('b')
      const holder = await hold(`SELECT FROM jobs WHERE id = ${id} FOR UPDATE`)
      const beganAt = performance.now()
      const refused = assert.rejects(first.toggle('a'), StoreUnavailable)
      await waiting(1)
      const incarnation = 'n1-life-1'
      assert.equal(await first.beat({nodeId: 'n1', incarnation, status: 'alive'}), 'ok')
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
  it('that is finishing: the end counts first, or finds it gone', async () => {
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

  it('whose parent is finishing leaves no request that nobody answers for', async () => {
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

  it('amid everything else never fails anybody, and leaves nothing half done', async () => {
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
