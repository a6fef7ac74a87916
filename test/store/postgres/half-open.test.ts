/** A server that loses its connection silently during a transaction: its locks are released soon. */
import assert from 'node:assert/strict'
import {after, before, test} from 'node:test'
import {StoreUnavailable} from '../../../src/ports/store-errors.ts'
import {CutProxy} from '../../support/cut-proxy.ts'
import {openAt, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {aSpec} from '../exercise-store/scene.ts'

/** A transaction may idle for a second; the rest is for a busy machine. */
const FREE_WITHIN_MS = 8_000

let postgres: TestPostgres
let proxy: CutProxy

before(async () => {
  postgres = await TestPostgres.start()
  proxy = await CutProxy.open(postgres.port)
})
after(async () => {
  await proxy.close()
  await postgres.close()
})

test('a server that is cut off during a deletion blocks neither launches nor other servers', async () => {
  await withCluster(postgres, async ({scene, second, url, hold, waiting}) => {
    const {id} = await scene.submit('a')
    const group = await scene.run('a')
    const far = await openAt(url.replace(`:${postgres.port}`, `:${proxy.port}`))
    const holder = await hold(`SELECT FROM jobs WHERE id = ${id} FOR UPDATE`)
    const deleting = assert.rejects(far.store.deleteJob('a', null), StoreUnavailable)
    // The delete has locked all definitions and the launch, and waits for the lock of the job.
    await waiting(1)
    proxy.isSilent = true
    await holder.release()
    const cutAt = performance.now()
    for (;;) {
      const outcome = await second
        .submit({
          spec: aSpec('b'),
          ifMatch: null,
          createOnly: false,
          runOnCreate: false,
          idempotency: null,
        })
        .catch((error: unknown) => {
          assert(error instanceof StoreUnavailable)
          return null
        })
      if (outcome !== null) break
      assert(performance.now() - cutAt < FREE_WITHIN_MS, 'definitions are locked')
    }
    assert((await second.launch('a', group)) !== null)
    assert(performance.now() - cutAt < FREE_WITHIN_MS)
    // The delete fails by itself after the deadline for a reply.
    await proxy.close()
    await deleting
    await far.store.close()
    proxy = await CutProxy.open(postgres.port)
  })
})
