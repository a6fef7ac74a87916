/**
 * Two servers that claim, end, lose or move executions of one launch concurrently: the result is that of some
 * serial order.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import type {FinishOutcome} from '../../../src/core/end-requests.ts'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import type {Store} from '../../../src/ports/store.ts'
import {type Cluster, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {ALL_ROWS, anEnd, aSpec, type Scene} from '../exercise-store/scene.ts'
import {claimAs} from '../../support/single-calls.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const CHILD = {schedule: '', parentJob: 'a'}

/** Launches `a` on two nodes, which both claim it. */
async function onTwoNodes(scene: Scene): Promise<[number, ClaimedExecution, ClaimedExecution]> {
  const group = await scene.run('a', ['n1', 'n2'])
  return [group, await scene.claimOne('n1'), await scene.claimOne('n2')]
}

/** Claims wait for the advisory lock 1 when they have read their rows and locked none. */
const SLOW_CLAIMS = [
  `CREATE FUNCTION waited() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF current_query() LIKE '%SKIP LOCKED%' THEN PERFORM pg_advisory_xact_lock(1); END IF;
    RETURN true; END $$`,
  `ALTER TABLE definitions RENAME TO stored_definitions`,
  `CREATE VIEW definitions AS SELECT * FROM stored_definitions WHERE waited()`,
]

async function endOn(store: Store, claimed: ClaimedExecution): Promise<FinishOutcome> {
  const [outcome] = await store.finish([anEnd(claimed, 'succeeded')])
  return outcome!
}

function closings(outcomes: readonly FinishOutcome[]): unknown[] {
  return outcomes.flatMap((outcome) => {
    return outcome.kind === 'finished' && outcome.closed !== null ? [outcome.closed] : []
  })
}

describe('two nodes that finish one launch', () => {
  it('lock its other executions, which a claim skips and soon looks for again', async () => {
    await withCluster(postgres, async ({scene, first, hold}) => {
      await scene.submit('a')
      await scene.join('n2')
      const group = await scene.run('a', ['n1', 'n2'])
      const holder = await hold(`SELECT FROM executions WHERE group_id = ${group} FOR UPDATE`)
      const request = {nodeId: 'n2', incarnation: 'n2-incarnation-1', room: 5}
      const early = await claimAs(first, {...request, token: 't1'})
      assert.deepEqual([early.claimed, early.waiting], [[], 0])
      assert.ok(early.nextDueInMs !== null && early.nextDueInMs < 100, `${early.nextDueInMs} ms`)
      await holder.release()
      const later = await claimAs(first, {...request, token: 't2'})
      assert.deepEqual([later.claimed.length, later.nextDueInMs], [1, null])
    })
  })

  it('close it once, in any order', async () => {
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
      assert.deepEqual(closings(outcomes), [
        {status: 'success', dependents: ['child'], wakesLauncher: true},
      ])
      const {counters, status} = await scene.job('a')
      assert.deepEqual([counters.successCount, status], [2, 'success'])
      assert.equal((await first.launch('a', group))!.open, false)
      const asked = await first.launches('child', {...ALL_ROWS, decision: 'pending'})
      assert.equal(asked!.total, 1)
      const [today] = await second.statistics(1)
      assert.equal(today!.successCount, 2)
    })
  })

  it('close each of many launches once, in any order', async () => {
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
  const claimUnder = (store: Store, token: string) => {
    return claimAs(store, {nodeId: 'n1', incarnation: 'n1-incarnation-1', token, room: 9})
  }

  it('of an old incarnation is either seen by the new one or takes nothing', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      const group = await scene.run('a')
      const holder = await hold(`SELECT FROM node_claims FOR UPDATE`)
      const claiming = claimUnder(first, 'late')
      await waiting(1)
      const member = (await second.members())[0]!
      const joining = second.join({member: {...member, incarnation: 'n1-incarnation-2'}}, 10_000)
      await waiting(2)
      await holder.release()
      assert.equal((await claiming).claimed.length, 1)
      assert.deepEqual(await joining, {kind: 'joined'})
      const marked = await second.markLost({
        term: null,
        nodeId: 'n1',
        exceptIncarnation: 'n1-incarnation-2',
        observed: null,
        reason: 'node_restarted',
        limit: 9,
        jitter: 0,
      })
      assert.deepEqual(
        marked.finished.map(({kind}) => kind),
        ['finished'],
      )
      assert.equal((await first.launch('a', group))!.executions[0]!.status, 'lost')
      await scene.run('a')
      assert.deepEqual((await claimUnder(first, 'later')).claimed, [])
    })
  })

  it('repeated during the commit of its first try returns the same executions', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      await scene.run('a')
      const holder = await hold(`SELECT FROM node_claims FOR UPDATE`)
      const claims = [claimUnder(first, 'same'), claimUnder(second, 'same')]
      await waiting(2)
      await holder.release()
      const [one, two] = await Promise.all(claims)
      assert.equal(one!.claimed.length, 1)
      assert.deepEqual(two!.claimed, one!.claimed)
    })
  })

  it('concurrent with the failure of its node leaves no running execution behind', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      const group = await scene.run('a')
      const member = (await second.members())[0]!
      const {incarnation, heartbeatAt} = member
      const holder = await hold(`SELECT FROM node_claims FOR UPDATE`)
      const claiming = claimUnder(first, 'late')
      await waiting(1)
      const marking = second.markLost({
        term: scene.term,
        nodeId: 'n1',
        exceptIncarnation: null,
        observed: {incarnation, heartbeatAt},
        reason: 'node_lost',
        limit: 9,
        jitter: 0,
      })
      await waiting(2)
      await holder.release()
      const [claimed] = (await claiming).claimed
      assert.equal((await marking).finished.length, 1)
      assert.equal((await first.launch('a', group))!.executions[0]!.status, 'lost')
      const outcome = await endOn(first, claimed!)
      assert.deepEqual([outcome.kind, (await scene.job('a')).counters.errorCount], ['already', 1])
    })
  })

  it('is released by its node or ended by the leader, never both', async () => {
    await withCluster(postgres, async ({scene, first, second, hold, waiting}) => {
      await scene.submit('a')
      for (const isFirst of ['releaseClaims', 'markLost'] as const) {
        const group = await scene.run('a')
        const [{token}] = (await scene.claim()) as [ClaimedExecution]
        const giveBack = () =>
          first.releaseClaims([{key: {group, node: 'node-1', attempt: 1}, token}])
        const markLost = () =>
          second.markLost({
            term: scene.term,
            nodeId: 'n1',
            exceptIncarnation: null,
            observed: null,
            reason: 'node_lost',
            limit: 9,
            jitter: 0,
          })
        const holder = await hold(`SELECT FROM launches WHERE group_id = ${group} FOR UPDATE`)
        const begin = async (which: 'releaseClaims' | 'markLost') =>
          which === 'markLost' ? (await markLost()).finished : await giveBack()
        const one = begin(isFirst)
        await waiting(1)
        const two = begin(isFirst === 'markLost' ? 'releaseClaims' : 'markLost')
        await waiting(2)
        await holder.release()
        await Promise.all([one, two])
        const [execution] = (await first.launch('a', group))!.executions
        const {errorCount} = (await scene.job('a')).counters
        const expected = isFirst === 'markLost' ? ['lost', 1] : ['pending', 0]
        assert.deepEqual([execution!.status, errorCount], expected)
        const again = isFirst === 'markLost' ? [] : await scene.claim()
        assert.equal(again.length, isFirst === 'markLost' ? 0 : 1)
        for (const each of again) await scene.end(each, 'succeeded')
      }
    })
  })

  it('concurrent with a move of the execution gives it to one node', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a')
      await scene.join('n2')
      for (let round = 0; round < 10; round += 1) {
        const group = await scene.run('a')
        const key = {group, node: 'node-1', attempt: 1}
        const to = {nodeId: 'n2', nodeName: 'node-2'}
        const [{claimed}, [moved]] = await Promise.all([
          claimUnder(first, `round ${round}`),
          second.applyReassignments({term: scene.term, moves: [{key, to}]}),
        ])
        const elsewhere = await scene.claim('n2')
        const taken = [claimed.length, moved === 'applied' ? 1 : 0, elsewhere.length]
        const isOnce = claimed.length + elsewhere.length === 1
        assert(isOnce && (moved === 'applied') === (elsewhere.length === 1), String(taken))
      }
    })
  })

  it('takes nothing that changed while it ran, and no definition of another revision', async () => {
    const key = (group: number) => ({group, node: 'node-1', attempt: 1})
    const job = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
    const changes: Record<string, (cluster: Cluster, group: number) => Promise<unknown>> = {
      cancel: ({second}, group) => second.cancelExecution('a', key(group)),
      move: ({second, scene: {term}}, group) => {
        const to = {nodeId: 'n2', nodeName: 'node-2'}
        return second.applyReassignments({term, moves: [{key: key(group), to}]})
      },
      delete: ({second}) => second.deleteJob('a'),
      edit: ({second}) => second.submit({spec: aSpec('a', {owner: 'new'}), ...job}),
    }
    const taken: Record<string, unknown> = {}
    for (const [name, change] of Object.entries(changes))
      await withCluster(postgres, async (cluster) => {
        const {scene, first, hold, waiting, rows} = cluster
        await scene.submit('a', {owner: 'old'})
        await scene.join('n2')
        const group = await scene.run('a')
        for (const statement of SLOW_CLAIMS) await rows(statement)
        const holder = await hold('SELECT pg_advisory_xact_lock(1)')
        const claiming = claimUnder(first, 't1')
        await waiting(1)
        await change(cluster, group)
        await holder.release()
        const {claimed} = await claiming
        taken[name] = claimed.map(({execution, spec}) => [execution.revision, spec.owner])
      })
    assert.deepEqual(taken, {cancel: [], move: [], delete: [], edit: [[1, 'old']]})
  })
})
