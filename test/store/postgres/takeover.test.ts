/** Fencing of a deposed leader by its term, at each point of its write, and the races for the lease. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {systemClock} from '../../../src/platform/clock.ts'
import {TermOver} from '../../../src/ports/store-errors.ts'
import {beginTransaction, postgresDialect} from '../../../src/store/postgres/connection.ts'
import {Primary} from '../../../src/store/postgres/primary.ts'
import {Statements} from '../../../src/store/postgres/statements.ts'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {fence} from '../../../src/store/sql/cluster/lease.ts'
import {DEFAULT_LIMITS} from '../../../src/store/sql/query.ts'
import {type Cluster, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {aRow} from '../exercise-store/scene.ts'

const TTL_MS = 6_000
/** Blocks a leader that launches, after it has locked its jobs and before it writes rows. */
const BLOCK_LAUNCHES = 'LOCK TABLE launches IN SHARE MODE'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function takeOver({second}: Cluster, holder = 'successor') {
  return second.acquireLease({holder, nodeId: 'n2', ttlMs: TTL_MS})
}

function renew({scene, first}: Cluster) {
  return first.renewLease({term: scene.term, holder: 'holder-1', ttlMs: TTL_MS})
}

describe('taking over', () => {
  it('waits for an open write of the old leader, which is committed', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, second, hold, waiting} = cluster
      const job = await scene.submit('a')
      scene.advance(TTL_MS)
      const holder = await hold(BLOCK_LAUNCHES)
      const launching = scene.decide(job, [aRow(job.nextAt!, 'launched')], job.nextAt! + 60_000)
      await waiting(1)
      const taking = takeOver(cluster)
      await waiting(2)
      await holder.release()
      assert.deepEqual((await launching).dues, ['applied'])
      const lease = await taking
      assert(lease !== null && lease.term > scene.term)
      const due = await second.loadDue({limit: 10})
      assert.deepEqual(
        due.jobs.map(({job: {nextAt}}) => nextAt),
        [],
      )
      const again = {...job, nextAt: job.nextAt! + 60_000}
      await assert.rejects(scene.decide(again, [aRow(again.nextAt, 'launched')], null), TermOver)
    })
  })

  it('a write that starts during a takeover throws TermOver', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, hold, waiting, first, rows} = cluster
      const job = await scene.submit('a')
      const holder = await hold(`UPDATE leader SET term = term + 1, holder = 'successor'`)
      const launching = scene.decide(job, [aRow(job.nextAt!, 'launched')], null)
      await waiting(1)
      const marking = first.markLost({
        term: scene.term,
        nodeId: 'n1',
        exceptIncarnation: null,
        observed: null,
        reason: 'node_lost',
        limit: 9,
        jitter: 0,
      })
      await waiting(2)
      const refused = Promise.all([
        assert.rejects(launching, TermOver),
        assert.rejects(marking, TermOver),
      ])
      await holder.release()
      await refused
      assert.deepEqual(await rows('SELECT group_id FROM launches'), [])
    })
  })

  it('a leader frozen inside a transaction delays it by about a second', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, url} = cluster
      const parsed = parseAddress(url)
      assert(parsed.ok)
      const primary = new Primary({
        address: parsed.address,
        clock: systemClock(),
        applicationName: 'frozen',
      })
      const frozen = await primary.connect({
        purpose: 'writes',
        limits: 'short',
        indexScansOnly: true,
      })
      const now = await beginTransaction(frozen, 'READ COMMITTED', () => scene.now)
      const tx = {now, dialect: postgresDialect, limits: DEFAULT_LIMITS}
      await new Statements().run(frozen, fence(tx, scene.term))
      scene.advance(TTL_MS)
      const startedAt = performance.now()
      const lease = await takeOver(cluster)
      const delayedMs = performance.now() - startedAt
      assert(lease !== null && lease.term > scene.term)
      assert(delayedMs > 500 && delayedMs < 5_000, `delayed by ${delayedMs} ms`)
      await assert.rejects(frozen.run('COMMIT'))
    })
  })

  it('a renewal does not wait for writes of the leader', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, hold, waiting} = cluster
      const job = await scene.submit('a')
      const holder = await hold(BLOCK_LAUNCHES)
      const launching = scene.decide(job, [aRow(job.nextAt!, 'launched')], null)
      await waiting(1)
      assert.equal(await renew(cluster), true)
      await waiting(1)
      await holder.release()
      assert.deepEqual((await launching).dues, ['applied'])
    })
  })

  it('a renewal after a takeover returns false', async () => {
    await withCluster(postgres, async (cluster) => {
      const {hold, waiting} = cluster
      const holder = await hold(`UPDATE leader SET term = term + 1, holder = 'successor'`)
      const renewing = renew(cluster)
      await waiting(1)
      await holder.release()
      assert.equal(await renewing, false)
    })
  })

  it('a renewal just before a takeover keeps the lease', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, hold, waiting} = cluster
      scene.advance(TTL_MS)
      const holder = await hold(`UPDATE leader SET expires_at = ${scene.now + TTL_MS}`)
      const taking = takeOver(cluster)
      await waiting(1)
      await holder.release()
      assert.equal(await taking, null)
      assert.equal(await renew(cluster), true)
    })
  })

  it('of a takeover of an unchanged lease and its renewal at once, the second is refused', async () => {
    for (const isRenewedFirst of [true, false])
      await withCluster(postgres, async (cluster) => {
        const {scene, second, hold, waiting} = cluster
        const unchanged = await second.heldLease()
        // Otherwise the renewal would not change the lease.
        scene.advance(1)
        const request = {holder: 'successor', nodeId: 'n2', ttlMs: TTL_MS, unchanged}
        const take = () => second.acquireLease(request)
        const holder = await hold(`SELECT FROM leader FOR UPDATE`)
        const early = isRenewedFirst ? renew(cluster) : take()
        await waiting(1)
        const late = isRenewedFirst ? take() : renew(cluster)
        await waiting(2)
        await holder.release()
        const {term} = scene
        const lease = {term: term + 1, expiresAt: scene.now + TTL_MS}
        assert.deepEqual([await early, await late], isRenewedFirst ? [true, null] : [lease, false])
      })
  })

  it('the connection of the leader is seen open, then closed, and open again after a renewal', async () => {
    await withCluster(postgres, async (cluster) => {
      const {second, rows} = cluster
      const isConnected = async () => (await second.heldLease())?.isConnected
      assert.equal(await isConnected(), true)
      // Candidates that ask at once do not take each other for the leader.
      assert.deepEqual(await Promise.all([isConnected(), isConnected()]), [true, true])
      for (let round = 0; round < 2; round += 1) {
        await rows(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
          WHERE application_name = 'belfry lease' AND datname = current_database()`)
        assert.deepEqual(await Promise.all([isConnected(), isConnected()]), [false, false])
        assert.equal(await renew(cluster), true)
        assert.equal(await isConnected(), true)
      }
    })
  })

  it('the connection of a deposed leader does not stand for its successor', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, first, second, rows} = cluster
      scene.advance(TTL_MS)
      assert.notEqual(await takeOver(cluster), null)
      const [{pid}] = (await rows(`SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND a.application_name = 'belfry lease' ORDER BY a.backend_start
        DESC LIMIT 1`)) as [{pid: number}]
      await rows(`SELECT pg_terminate_backend(${pid}, 5000)`)
      assert.equal((await first.heldLease())?.isConnected, false)
      const unchanged = await second.heldLease()
      const lease = await first.acquireLease({
        holder: 'third',
        nodeId: 'n3',
        ttlMs: TTL_MS,
        unchanged,
      })
      assert.equal(lease?.term, scene.term + 2)
      assert.equal((await second.heldLease())?.isConnected, true)
    })
  })

  it('of many candidates one acquires the lease', async () => {
    await withCluster(postgres, async (cluster) => {
      const {scene, first, second} = cluster
      scene.advance(TTL_MS)
      const candidates = Array.from({length: 10}, (_, index) => {
        const store = index % 2 === 0 ? first : second
        return store.acquireLease({holder: `h${index}`, nodeId: `n${index}`, ttlMs: TTL_MS})
      })
      const leases = (await Promise.all(candidates)).filter((lease) => lease !== null)
      assert.equal(leases.length, 1)
      assert.equal(leases[0]!.term, scene.term + 1)
    })
  })
})
