/**
 * A primary with a standby, both in the store's address. Only the primary is used. After it dies and the
 * standby is promoted, the store continues there by itself, with every acknowledged write.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {OutcomeUnknown, StoreUnavailable} from '../../../src/ports/store-errors.ts'
import {localWakeup} from '../../../src/platform/wakeup.ts'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {aSpec, Scene} from '../exercise-store/scene.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
const SUBMIT = {ifMatch: null, createOnly: true, runOnCreate: false, idempotency: null}

let primary: TestPostgres
let standby: TestPostgres

before(async () => {
  primary = await TestPostgres.start()
  standby = await primary.standby('standby')
})
after(async () => {
  await standby.close()
  await primary.close()
})

/** Both servers, the standby first. */
function bothHosts(): string {
  const url = freshSchema(primary.url())
  const host = `127.0.0.1:${primary.port}`
  return url.replace(host, `127.0.0.1:${standby.port},${host}`)
}

describe('an address of several hosts', () => {
  it('uses only the primary, and warns of writes that a failover could lose', async () => {
    const {store} = await openAt(bothHosts())
    await store.agreeTimezone('UTC')
    await store.probe()
    const {durability, warnings} = await store.info()
    assert.equal(durability['standbys'], '1 async')
    assert.match(warnings.join(' '), /asynchronous: a failover may lose acknowledged launches/)
    await primary.run(`ALTER SYSTEM SET synchronous_standby_names = 'standby'`)
    await primary.run('SELECT pg_reload_conf()')
    for (;;) {
      const facts = await store.info()
      if (facts.durability['standbys'] !== '1 sync') continue
      assert.equal(facts.durability['synchronous_commit'], 'on')
      assert.doesNotMatch(facts.warnings.join(' '), /standby/)
      break
    }
    await store.close()
  })

  it('with only a standby is refused in one sentence', async () => {
    await assert.rejects(openAt(freshSchema(standby.url())), {
      message:
        /^The store postgres:\/\/127\.0\.0\.1:\d+\/postgres cannot be opened: .*takes no writes .+\.$/,
    })
  })

  it('continues on the promoted standby with every acknowledged write', async () => {
    const opened = await openAt(bothHosts(), () => STARTED_AT)
    const {store} = opened
    const scene = await Scene.open(async () => {
      return {store, startedAt: STARTED_AT, advance: () => {}, close: () => store.close()}
    })
    await scene.submit('a')
    await scene.run('a')
    const claimed = await scene.claimOne()
    const local = localWakeup()
    const wakeup = opened.wakeupOver(local)
    const acknowledged: string[] = []
    const perhaps: string[] = []
    const work = {isOver: false}
    const submitting = Promise.all(
      Array.from({length: 4}, async (_, worker) => {
        for (let count = 0; !work.isOver; count += 1) {
          const name = `job-${worker}-${count}`
          try {
            const result = await store.submit({spec: aSpec(name), ...SUBMIT})
            assert.equal(result.kind, 'stored')
            acknowledged.push(name)
          } catch (error) {
            assert(error instanceof StoreUnavailable || error instanceof OutcomeUnknown)
            if (error instanceof OutcomeUnknown) perhaps.push(name)
          }
        }
      }),
    )
    while (acknowledged.length < 20) await store.probe()
    await primary.kill()
    await assert.rejects(store.job('a'), StoreUnavailable)
    const notified = new Promise<void>((resolve) => wakeup.subscribe('launch', resolve))
    await standby.run('SELECT pg_promote()')
    const before = acknowledged.length
    while (acknowledged.length < before + 20) await store.totals().catch(isUnavailable)
    work.isOver = true
    await submitting
    await notified
    const all = {start: 0, end: null, metadata: [], text: '', status: null, disabled: null} as const
    const {rows} = await store.jobs({...all, sort: 'name', order: 'asc'})
    const names = new Set(rows.map(({spec}) => spec.name))
    assert.deepEqual(
      acknowledged.filter((name) => !names.has(name)),
      [],
    )
    assert.equal((await scene.end(claimed, 'succeeded')).kind, 'finished')
    assert.equal(await store.renewLease({term: scene.term, holder: 'holder-1', ttlMs: 6_000}), true)
    await wakeup.close()
    await store.close()
  })
})

function isUnavailable(error: unknown): void {
  assert(error instanceof StoreUnavailable)
}
