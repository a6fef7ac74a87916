/** Reads of clients that use up their sessions: leader and nodes read on, further lists are refused. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import type {JobQuery} from '../../../src/ports/job-store.ts'
import {type Cluster, openAt, type Opened, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {aRow, MINUTE} from '../exercise-store/scene.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

/** Blocks reads that filter by metadata, and no others. */
const BLOCK_METADATA = 'LOCK TABLE job_metadata IN ACCESS EXCLUSIVE MODE'
const BLOCKED_LIST: JobQuery = {
  start: 0,
  end: null,
  sort: 'name',
  order: 'asc',
  text: '',
  status: null,
  disabled: null,
  metadata: [{either: 'x'}],
}
/** Sessions of a server, and lists that wait for one. */
const REQUESTS = 4
const LISTS = 2
const LISTS_WAITING = 8

/** A pass of the leader on `store`, and what nodes ask beside it. */
async function assertPasses({scene}: Cluster, {store}: Opened) {
  const {jobs} = await store.loadDue({limit: 10})
  const [due] = jobs
  assert(due !== undefined)
  await store.loadRequests({afterGroup: 0, limit: 10})
  assert.equal((await store.candidates()).length, 1)
  assert.equal((await store.members()).length, 1)
  assert.deepEqual(await store.cancelled('n1'), [])
  const {id: jobId, revision, nextAt} = due.job
  const rows = [aRow(nextAt!, 'launched')]
  const changes = {expectedNextAt: nextAt!, nextAt: nextAt! + MINUTE, forbid: false}
  const dues = [{jobId, revision, rows, ...changes}]
  const applied = await store.applyLaunches({term: scene.term, dues, requests: []})
  assert.deepEqual(applied.dues, ['applied'])
}

describe('reads of clients', () => {
  it('that hold every session for lists delay no pass, and further lists are refused', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, url, hold, waiting} = cluster
      await scene.submit('a')
      scene.advance(MINUTE + 1)
      const opened = await openAt(url, () => scene.now)
      const {store, forClients} = opened
      const holder = await hold(BLOCK_METADATA)
      const lists = Array.from({length: LISTS + LISTS_WAITING}, () => forClients.jobs(BLOCKED_LIST))
      await waiting(LISTS)
      const refused = forClients.jobs(BLOCKED_LIST)
      await assert.rejects(refused, {code: 'store_unavailable', retryAfterSeconds: 1})
      await assertPasses(cluster, opened)
      assert.equal((await forClients.job('a'))?.spec.name, 'a')
      await waiting(LISTS)
      await holder.release()
      await Promise.all(lists)
      await store.close()
    })
  })

  it('that hold every session for requests delay no pass', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, url, hold, waiting} = cluster
      await scene.submit('a')
      scene.advance(MINUTE + 1)
      const opened = await openAt(url, () => scene.now)
      const {store, forClients} = opened
      const holder = await hold(BLOCK_METADATA)
      const pages = Array.from({length: 12}, () => forClients.jobs({...BLOCKED_LIST, end: 10}))
      await waiting(REQUESTS)
      await assertPasses(cluster, opened)
      await waiting(REQUESTS)
      await holder.release()
      await Promise.all(pages)
      await store.close()
    })
  })
})
