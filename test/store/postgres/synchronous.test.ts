/**
 * Commits that wait for a missing synchronous standby: no write is acknowledged until a standby has it. That
 * includes a repeated reply about an earlier write, which a failover may lose.
 */
import assert from 'node:assert/strict'
import {after, before, it} from 'node:test'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {until} from '../../support/waiting.ts'
import {aSpec, Scene} from '../exercise-store/scene.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
const idempotency = {key: 'k', scope: 's', fingerprint: 'f'}
const SUBMIT = {ifMatch: null, createOnly: false, runOnCreate: false}

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

async function waitFor(names: string): Promise<void> {
  await postgres.run(`ALTER SYSTEM SET synchronous_standby_names = '${names}'`)
  await postgres.run('SELECT pg_reload_conf()')
}

async function waiting(): Promise<number> {
  const [row] = await postgres.run(
    `SELECT count(*)::int AS waiting FROM pg_stat_activity WHERE wait_event = 'SyncRep'`,
  )
  return Number(row!['waiting'])
}

it('a repeated reply waits for the standby too', async () => {
  const opened = await openAt(freshSchema(postgres.url()), () => STARTED_AT)
  const {store} = opened
  const scene = await Scene.open(async () => {
    return {store, startedAt: STARTED_AT, advance: () => {}, close: () => store.close()}
  })
  await scene.submit('a')
  await scene.run('a')
  const claimed = await scene.claimOne()
  await scene.end(claimed, 'succeeded')
  const writes = [
    () => scene.end(claimed, 'succeeded'),
    () => store.submit({spec: aSpec('b'), ...SUBMIT, idempotency}),
    () => store.requestRun({name: 'a', forced: true, idempotency: {...idempotency, key: 'r'}}),
  ]
  const first = await Promise.all(writes.map((write) => write()))
  await waitFor('gone')
  // A server applies changed settings after a delay. One probe at a time: those that wait keep a connection.
  const probes: Promise<void>[] = []
  let isProbing = false
  await until('a commit waits', async () => {
    if (!isProbing) probes.push(store.probe().finally(() => (isProbing = false)))
    isProbing = true
    return (await waiting()) > 0
  })
  const answered: number[] = []
  const again = writes.map(async (write, index) => {
    const answer = await write()
    answered.push(index)
    return answer
  })
  // The probe, the end, and the two requests together.
  await until('three commits wait', async () => (await waiting()) >= 3)
  assert.deepEqual(answered, [])
  await waitFor('')
  assert.deepEqual(await Promise.all(again), first)
  await Promise.all(probes)
  await store.close()
})
