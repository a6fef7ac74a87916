/** Two servers, and members that join and leave concurrently: none is lost, and no name is held twice. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import type {BeatReply} from '../../../src/ports/node-store.ts'
import type {Store} from '../../../src/ports/store.ts'
import {withCluster, type Cluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {ALL_ROWS, anEnd, HOUR} from '../exercise-store/scene.ts'
import {beatAs, claimAs} from '../../support/single-calls.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

const LIFE = {nodeId: 'n2', incarnation: 'n2-incarnation-1'}
const OF_N2 = `SELECT FROM members WHERE id = 'n2' FOR UPDATE`

const beat = (store: Store): Promise<BeatReply> => beatAs(store, {...LIFE, status: 'alive'})
const remove = (store: Store) => store.removeMember({nodeId: 'n2', limit: 9, jitter: 0.5})
const claim = (store: Store, token: string) => claimAs(store, {...LIFE, token, room: 9})

const prune = (store: Store, term: number) =>
  store.pruneMembers({term, leftAfterMs: HOUR, failedAfterMs: HOUR, limit: 9})

/** `n2` has one pending execution and failed long ago. */
async function withFailed(play: (cluster: Cluster, group: number) => Promise<void>): Promise<void> {
  await withCluster(postgres, async (cluster) => {
    const {scene} = cluster
    await scene.submit('a')
    await scene.join('n2')
    const group = await scene.run('a', ['n2'])
    scene.advance(2 * HOUR)
    await scene.lead('holder-1')
    await play(cluster, group)
  })
}

async function statusesOf({first}: Cluster): Promise<Record<string, string>> {
  return Object.fromEntries((await first.members()).map(({id, status}) => [id, status]))
}

/** No execution runs for a node that is no member, which would never end it. */
async function nothingIsOrphaned({first}: Cluster): Promise<void> {
  const known = new Set((await first.members()).map(({name}) => name))
  const {rows} = await first.busy({...ALL_ROWS, outputBytes: 0})
  for (const {node} of rows) assert(known.has(node), `${node} runs something and is no member`)
}

describe('removing a member', () => {
  it('during its heartbeat keeps it, or its node joins again', async () => {
    for (const isBeatFirst of [true, false])
      await withFailed(async (cluster) => {
        const {scene, first, second, hold, waiting} = cluster
        await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
        const holder = await hold(OF_N2)
        const early = isBeatFirst ? beat(first) : remove(first)
        await waiting(1)
        const late = isBeatFirst ? remove(second) : beat(second)
        await waiting(2)
        await holder.release()
        const answers = [await early, await late]
        const [beaten, removal] = isBeatFirst ? answers : answers.toReversed()
        const kind = (removal as Awaited<ReturnType<typeof remove>>).kind
        assert.deepEqual([beaten, kind], isBeatFirst ? ['ok', 'present'] : ['unknown', 'removed'])
        assert.equal((await statusesOf(cluster))['n2'], isBeatFirst ? 'alive' : undefined)
      })
  })

  it('during its join leaves it a member, in either order', async () => {
    for (const isJoinFirst of [true, false])
      await withFailed(async (cluster) => {
        const {scene, first, second, hold, waiting} = cluster
        await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
        const member = (await first.members()).find(({id}) => id === 'n2')!
        const join = (store: Store) =>
          store.join({member: {...member, incarnation: 'n2-incarnation-2'}}, 10_000)
        const holder = await hold(OF_N2)
        const early = isJoinFirst ? join(first) : remove(first)
        await waiting(1)
        const late = isJoinFirst ? remove(second) : join(second)
        await waiting(2)
        await holder.release()
        const kinds = [(await early).kind, (await late).kind]
        assert.deepEqual(kinds, isJoinFirst ? ['joined', 'present'] : ['removed', 'joined'])
        assert.equal((await statusesOf(cluster))['n2'], 'alive')
        const {claimed} = await claimAs(second, {
          ...LIFE,
          incarnation: 'n2-incarnation-2',
          token: 't',
          room: 9,
        })
        assert.equal(claimed.length, 1)
      })
  })

  it('that has just claimed ends its executions', async () => {
    await withFailed(async (cluster, group) => {
      const {scene, first, second, hold, waiting} = cluster
      const holder = await hold(`SELECT FROM node_claims WHERE node_id = 'n2' FOR UPDATE`)
      const claiming = claim(first, 'just now')
      await waiting(1)
      // The status is not part of the key: it can change during the claim.
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      const removing = remove(second)
      await waiting(2)
      await holder.release()
      assert.equal((await claiming).claimed.length, 1)
      const removal = await removing
      assert(removal.kind === 'removed')
      assert.equal(removal.finished.length, 1)
      assert.equal((await first.launch('a', group))!.executions[0]!.status, 'lost')
      await nothingIsOrphaned(cluster)
    })
  })

  it('that claims meanwhile makes its claim take nothing', async () => {
    await withFailed(async (cluster, group) => {
      const {scene, first, second, hold, waiting} = cluster
      await claim(first, 'before')
      await scene.run('a', ['n2'])
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      const holder = await hold(`SELECT FROM launches WHERE group_id = ${group} FOR UPDATE`)
      const removing = remove(first)
      await waiting(1)
      const claiming = claim(second, 'meanwhile')
      await waiting(2)
      await holder.release()
      assert.equal((await removing).kind, 'removed')
      assert.deepEqual((await claiming).claimed, [])
      await nothingIsOrphaned(cluster)
    })
  })
})

describe('retention of members', () => {
  it('skips a member with a concurrent heartbeat or claim', async () => {
    await withFailed(async (cluster) => {
      const {scene, first, second, hold, waiting} = cluster
      await claim(first, 'first')
      await scene.store.markLost({
        term: scene.term,
        nodeId: 'n2',
        exceptIncarnation: null,
        observed: null,
        reason: 'node_lost',
        limit: 9,
        jitter: 0,
      })
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      const holder = await hold(OF_N2)
      const beaten = beat(first)
      await waiting(1)
      assert.deepEqual(await prune(second, scene.term), [], 'it is not waited for either')
      await holder.release()
      assert.equal(await beaten, 'ok')
      assert.deepEqual(await prune(second, scene.term), [])
      assert.equal((await statusesOf(cluster))['n2'], 'alive')
    })
  })

  it('sees the executions of a claim that committed just before', async () => {
    await withFailed(async (cluster) => {
      const {scene, first, second, hold, waiting} = cluster
      const holder = await hold(`SELECT FROM node_claims WHERE node_id = 'n2' FOR UPDATE`)
      const claiming = claim(first, 'just now')
      await waiting(1)
      await scene.setStatus('n2', 'n2-incarnation-1', 'failed')
      assert.deepEqual(await prune(second, scene.term), [])
      await holder.release()
      assert.equal((await claiming).claimed.length, 1)
      assert.deepEqual(await prune(second, scene.term), [])
      await nothingIsOrphaned(cluster)
    })
  })
})

describe('a name', () => {
  it('that two identities return to at once belongs to one of them', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, first, second} = cluster
      for (let round = 0; round < 10; round += 1) {
        const name = `name-${round}`
        const holders = [`x${round}`, `y${round}`]
        for (const id of holders) {
          assert.deepEqual(await scene.join(id, 'life', name), {kind: 'joined'})
          await scene.setStatus(id, 'life', 'failed')
        }
        const [x, y] = holders as [string, string]
        const answers = await Promise.all([
          beatAs(first, {nodeId: x, incarnation: 'life', status: 'alive'}),
          beatAs(second, {nodeId: y, incarnation: 'life', status: 'alive'}),
        ])
        assert.deepEqual(answers.toSorted(), ['ok', 'taken'])
      }
    })
  })

  it('that is being taken over belongs to its old holder or the new one, never both', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, first, second, hold, waiting} = cluster
      for (const isBeatFirst of [true, false]) {
        const old = isBeatFirst ? 'n3' : 'n4'
        const name = `of-${old}`
        await scene.join(old, 'life', name)
        scene.advance(20_000)
        const member = (await first.members()).find(({id}) => id === old)!
        const life = {nodeId: old, incarnation: 'life', status: 'alive'} as const
        const join = (store: Store) => store.join({member: {...member, id: `new-${old}`}}, 10_000)
        const holder = await hold(`SELECT FROM members WHERE id = '${old}' FOR UPDATE`)
        const early = isBeatFirst ? beatAs(first, life) : join(first)
        await waiting(1)
        const late = isBeatFirst ? join(second) : beatAs(second, life)
        await waiting(2)
        await holder.release()
        const answers = [await early, await late]
        const [beaten, joined] = isBeatFirst ? answers : answers.toReversed()
        const expected = isBeatFirst
          ? ['ok', {kind: 'taken', by: old}]
          : ['taken', {kind: 'joined'}]
        assert.deepEqual([beaten, joined], expected)
        const present = (await first.members()).filter(
          (each) => each.name === name && each.status === 'alive',
        )
        assert.equal(present.length, 1)
      }
    })
  })
})

describe('joins that wait', () => {
  it('hold up no heartbeat, claim or result of another node', async () => {
    await withCluster(postgres, async ({scene, first, hold, waiting}) => {
      await scene.submit('a')
      await scene.join('n2')
      await scene.run('a', ['n1', 'n2'])
      const holder = await hold(`SELECT FROM members WHERE id = 'n1' FOR UPDATE`)
      const [member] = (await first.members()).filter(({id}) => id === 'n1')
      const joining = Array.from({length: 20}, () => first.join({member: member!}, HOUR))
      let joined = 0
      for (const each of joining) void each.then(() => (joined += 1))
      await waiting(1)
      assert.equal(await beat(first), 'ok')
      const {claimed} = await claim(first, 't1')
      assert.equal(claimed.length, 1)
      const [outcome] = await first.finish([anEnd(claimed[0]!, 'succeeded')])
      assert.equal(outcome!.kind, 'finished')
      assert.equal(joined, 0)
      await holder.release()
      for (const {kind} of await Promise.all(joining)) assert.equal(kind, 'joined')
    })
  })
})
