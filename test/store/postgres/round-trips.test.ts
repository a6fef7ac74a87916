/** Round trips to a distant database: each costs tens of milliseconds, so few may follow one another. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {openAt, type Opened} from '../../support/postgres-cluster.ts'
import {DistantProxy} from '../../support/distant-proxy.ts'
import {TestPostgres} from '../../support/postgres.ts'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import {
  ALL_EXECUTIONS,
  ALL_JOBS,
  aRow,
  aSpec,
  HOUR,
  MINUTE,
  Scene,
  targets,
} from '../exercise-store/scene.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
const DELAY_MS = 4
const PROBLEMS = {
  names: null,
  job: null,
  metadata: [],
  since: {agoMs: HOUR},
  until: null,
  firstUntil: null,
  keepLaunches: 9,
} as const
const NODE = {nodeId: 'n1', incarnation: 'n1-incarnation-1'}

let postgres: TestPostgres
let proxy: DistantProxy
before(async () => {
  postgres = await TestPostgres.start()
  proxy = await DistantProxy.open(postgres.port, DELAY_MS)
})
after(async () => {
  await proxy.close()
  await postgres.close()
})

interface World {
  readonly opened: Opened
  readonly scene: Scene
}

/** A store behind the proxy that has run every statement before: connections and statements are prepared. */
async function aWarmStore(): Promise<World> {
  let now = STARTED_AT
  const url = (await postgres.database()).replace(`:${postgres.port}`, `:${proxy.port}`)
  const opened = await openAt(url, () => now)
  const {store} = opened
  const scene = await Scene.open(async () => {
    const advance = (ms: number) => void (now += ms)
    return {store, startedAt: STARTED_AT, advance, close: () => store.close()}
  })
  return {opened, scene}
}

/** Calls, by name, that need more round trips than they may. A third call is counted. */
async function exceeding(
  calls: Readonly<
    Record<string, readonly [roundTripsMax: number, call: (round: number) => unknown]>
  >,
): Promise<Record<string, number>> {
  const found: Record<string, number> = {}
  for (const [name, [roundTripsMax, call]] of Object.entries(calls)) {
    await call(0)
    await call(1)
    const [roundTrips] = await proxy.roundTripsOf(async () => await call(2))
    if (roundTrips > roundTripsMax) found[name] = roundTrips
  }
  return found
}

describe('a distant database', () => {
  it('is asked few times in a row for a request of a client', async () => {
    const {opened, scene} = await aWarmStore()
    const {forClients: store} = opened
    await scene.submit('a')
    const key = (round: number) => ({scope: 's', key: `k${round}`, fingerprint: 'f'})
    const keyed = (round: number) =>
      scene.trySubmit(aSpec(`keyed-${round}`), {idempotency: key(round), runOnCreate: true})
    const page = {start: 0, end: 10} as const
    const found = await exceeding({
      'a new job': [3, (round) => scene.submit(`new-${round}`)],
      'a change': [3, (round) => scene.submit('a', {displayname: `${round}`})],
      'a job with a key': [3, keyed],
      'a dependent': [3, (round) => scene.submit(`d-${round}`, {parentJob: 'a', schedule: ''})],
      // Besides a change, it reads a number for the row of the span, and the row of the span that ends.
      toggle: [4, () => store.toggle('a')],
      run: [2, () => store.requestRun({name: 'a', forced: true, idempotency: null})],
      job: [1, () => store.job('a')],
      'a page of jobs': [2, () => store.jobs({...ALL_JOBS, ...page})],
      'a page of executions': [2, () => store.executions('a', {...ALL_EXECUTIONS, ...page})],
      problems: [6, () => store.problemFacts(PROBLEMS)],
      members: [1, () => store.members()],
      leader: [1, () => store.leader()],
      totals: [1, () => store.totals()],
    })
    assert.deepEqual(found, {})
    await store.close()
  })

  it('is asked few times in a row by the leader and the nodes', async () => {
    const {opened, scene} = await aWarmStore()
    const {store} = opened
    const groups: number[] = []
    for (const name of ['a', 'b', 'c']) {
      await scene.submit(name)
      const result = await store.requestRun({name, forced: true, idempotency: null})
      assert(result.kind === 'accepted')
      groups.push(result.group)
    }
    let job = await scene.job('a')
    const launch = async () => {
      scene.advance(MINUTE)
      const applied = await scene.decide(job, [aRow(job.nextAt!, 'launched')], job.nextAt! + MINUTE)
      assert.deepEqual(applied.dues, ['applied'])
      job = {...job, nextAt: job.nextAt! + MINUTE}
    }
    const launchRequest = async (round: number) => {
      const request = {group: groups[round]!, revision: 1, kind: 'launch', forbid: false} as const
      const requests = [{...request, targets: targets(['n1'])}]
      const applied = await store.applyLaunches({term: scene.term, dues: [], requests})
      assert.deepEqual(applied.requests, ['applied'])
    }
    const lease = {term: scene.term, holder: 'holder-1', ttlMs: 6_000}
    const claims: ClaimedExecution[] = []
    const found = await exceeding({
      'a renewal': [3, () => store.renewLease(lease)],
      'the lease of another node': [2, () => store.heldLease()],
      'a heartbeat': [3, () => store.beat([{...NODE, status: 'alive'}])],
      'due jobs': [2, () => store.loadDue({limit: 10})],
      requests: [2, () => store.loadRequests({afterGroup: 0, limit: 10})],
      candidates: [1, () => store.candidates()],
      'the launch of a request': [2, launchRequest],
      'a launch': [3, launch],
      'a claim': [5, async () => claims.push(...(await scene.claim('n1', 1)))],
      'a claim without work': [3, () => scene.claim('n2')],
      'the end of an execution': [6, (round) => scene.end(claims[round]!, 'succeeded')],
    })
    assert.deepEqual(found, {})
    await store.close()
  })
})
