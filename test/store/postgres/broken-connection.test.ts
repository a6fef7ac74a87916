/**
 * Connections that break around a commit, during a restart of the database, or silently. No write happens
 * twice, no acknowledged write is lost, and the store recovers by itself.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {OutcomeUnknown, StoreUnavailable} from '../../../src/ports/store-errors.ts'
import type {Store} from '../../../src/ports/store.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {localWakeup} from '../../../src/platform/wakeup.ts'
import {openPostgresStore} from '../../../src/store/postgres/store.ts'
import {CutProxy} from '../../support/cut-proxy.ts'
import {freshSchema, openAt, type Opened, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {ALL_AUDIT} from '../exercise-store/audit.ts'
import {aSecret} from '../exercise-store/secrets.ts'
import {ALL_ROWS, aRow, aSpec, Scene} from '../exercise-store/scene.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)
/** Longest wait of a caller of the API. */
const PATIENCE_MS = 5_000

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

/** A scene whose store reaches the database over the proxy. */
async function overProxy(
  play: (scene: Scene, opened: Opened) => Promise<void>,
  time = () => STARTED_AT,
): Promise<void> {
  const url = freshSchema(postgres.url()).replace(`:${postgres.port}`, `:${proxy.port}`)
  const opened = await openAt(url, time)
  const {store} = opened
  const scene = await Scene.open(async () => {
    return {store, startedAt: STARTED_AT, advance: () => {}, close: () => store.close()}
  })
  try {
    await play(scene, opened)
    assert.equal(proxy.commitsToLose, 0, 'what was to be hit was hit')
  } finally {
    proxy.isSilent = false
    await store.close()
  }
}

const SUBMIT = {ifMatch: null, createOnly: false, runOnCreate: true, idempotency: null}

async function untilItWorks(store: Store): Promise<void> {
  for (;;) {
    const worked = await store.probe().then(
      () => true,
      (error: unknown) => {
        assert(error instanceof StoreUnavailable || error instanceof OutcomeUnknown)
        return false
      },
    )
    if (worked) return
  }
}

describe('a commit whose reply is lost', () => {
  it('of a finish counts once', async () => {
    await overProxy(async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      const claimed = await scene.claimOne()
      proxy.loseOfCommits('answer')
      assert.equal((await scene.end(claimed, 'succeeded', {output: 'x'})).kind, 'already')
      assert.equal((await scene.job('a')).counters.successCount, 1)
    })
  })

  it('of a claim is found by its token', async () => {
    await overProxy(async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      proxy.loseOfCommits('answer')
      const claimed = await scene.claimOne()
      assert.deepEqual(
        await scene.store.verifyClaims([{key: claimed.execution, token: claimed.token}]),
        ['active'],
      )
    })
  })

  it('of a launch is a conflict, and the launch is stored once', async () => {
    await overProxy(async (scene) => {
      const job = await scene.submit('a')
      proxy.loseOfCommits('answer')
      const row = aRow(job.nextAt!, 'launched')
      const {dues} = await scene.decide(job, [row], job.nextAt! + 60_000)
      assert.deepEqual(dues, ['conflict'])
      const history = await scene.store.launches('a', {...ALL_ROWS, decision: null})
      assert.equal(history!.total, 1)
      assert.equal((await scene.claim()).length, 1)
    })
  })

  it('of a request is an unknown outcome without a key and a reply with one', async () => {
    await overProxy(async (scene) => {
      proxy.loseOfCommits('answer')
      await assert.rejects(scene.store.submit({spec: aSpec('a'), ...SUBMIT}), OutcomeUnknown)
      assert.equal((await scene.job('a')).revision, 1)
      proxy.loseOfCommits('answer')
      const idempotency = {key: 'k', scope: 's', fingerprint: 'f'}
      const kept = await scene.store.submit({spec: aSpec('b'), ...SUBMIT, idempotency})
      assert(kept.kind === 'stored' && kept.created)
      const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 9})
      assert.deepEqual(
        requests.map(({job}) => job.spec.name),
        ['a', 'b'],
      )
    })
  })
})

describe('a change whose commit reply is lost', () => {
  const changes: Record<string, (scene: Scene, group: number) => Promise<unknown>> = {
    'a pause of firing': ({store}) =>
      store.pauseFiring({jobs: 'a', reason: 'why', until: {afterMs: 60_000}}),
    'the end of a pause': ({store}) => store.endFiringPause('first'),
    'a drain': ({store}) =>
      store.setScheduling({nodeId: 'n1', change: {kind: 'drain', deadlineMs: 60_000}}),
    'a cancel of pending work': ({store}, group) =>
      store.cancelExecution('a', {group, node: 'node-1', attempt: 1}),
    'a new secret': ({store}) => store.putSecret(aSecret('new')),
    'the deletion of a secret': ({store}) => store.deleteSecret('first'),
    'the deletion of a policy': ({store}) => store.deletePolicy('first'),
    'the removal of a node': ({store}) => store.removeMember({nodeId: 'n2', limit: 9, jitter: 0.5}),
    'a change of the default time zone': ({store}) => store.setTimezone('Europe/Berlin'),
  }

  /** Replies by title, and the audit log. */
  async function made(losesReplies: boolean) {
    let isArmed = false
    // A repetition happens later than its first try.
    const time = () => STARTED_AT + (isArmed && proxy.commitsToLose === 0 ? 5_000 : 0)
    const results: Record<string, unknown> = {}
    await overProxy(async (scene) => {
      const {store} = scene
      await scene.submit('a')
      const group = await scene.run('a')
      await scene.join('n2')
      await scene.fail('n2', 'n2-incarnation-1')
      await store.pauseFiring({jobs: 'first', reason: '', until: null})
      await store.putPolicy({name: 'first', rules: '{}'})
      await store.putSecret(aSecret('first'))
      for (const [title, change] of Object.entries(changes)) {
        if (losesReplies) proxy.loseOfCommits('answer')
        isArmed = losesReplies
        results[title] = await change(scene, group)
        isArmed = false
      }
      results.audit = (await store.audit(ALL_AUDIT)).rows
    }, time)
    return results
  }

  it('happens once, and its reply is that of the first try', async () => {
    assert.deepEqual(await made(true), await made(false))
  })

  it('happens once if the first try still commits while it is repeated', async () => {
    await withCluster(postgres, async ({first, url, hold, waiting}) => {
      // Both servers use the key of one receipt, as a try and its repetition do.
      const random = {...systemRandom(), id: () => 'key'}
      const open = async () => {
        const opened = await openPostgresStore({url, clock: systemClock(), random})
        assert(opened.ok)
        return opened.store
      }
      const stores = [await open(), await open()] as const
      try {
        const locked = await hold(`SELECT id FROM members FOR UPDATE`)
        const change = {kind: 'drain', deadlineMs: 60_000} as const
        const tries = [stores[0].setScheduling({nodeId: 'n1', change})]
        await waiting(1)
        tries.push(stores[1].setScheduling({nodeId: 'n1', change}))
        await waiting(2)
        await locked.release()
        const [one, other] = await Promise.all(tries)
        assert.deepEqual(other, one)
        assert.equal((await first.audit({...ALL_AUDIT, action: 'member.drain'})).total, 1)
      } finally {
        await Promise.all(stores.map((store) => store.close()))
      }
    })
  })
})

describe('a commit that never reaches the server', () => {
  it('of a finish is repeated', async () => {
    await overProxy(async (scene) => {
      await scene.submit('a')
      await scene.run('a')
      const claimed = await scene.claimOne()
      proxy.loseOfCommits('request', 'request')
      assert.equal((await scene.end(claimed, 'succeeded')).kind, 'finished')
      assert.equal((await scene.job('a')).counters.successCount, 1)
    })
  })

  it('of a request without a key is an unknown outcome', async () => {
    await overProxy(async (scene) => {
      proxy.loseOfCommits('request')
      await assert.rejects(scene.store.submit({spec: aSpec('a'), ...SUBMIT}), OutcomeUnknown)
      assert.equal(await scene.store.job('a'), null)
    })
  })
})

describe('a database server', () => {
  it('that stops responding is detected before the deadline of a caller', async () => {
    await overProxy(async (scene) => {
      await scene.submit('a')
      await scene.job('a')
      proxy.isSilent = true
      const beganAt = performance.now()
      await Promise.all([
        assert.rejects(scene.store.job('a'), StoreUnavailable),
        assert.rejects(scene.trySubmit(aSpec('b')), StoreUnavailable),
      ])
      const tookMs = performance.now() - beganAt
      assert(tookMs < PATIENCE_MS, `${tookMs} ms`)
      // All connections are closed, and no new one is accepted.
      const againAt = performance.now()
      await assert.rejects(scene.store.job('a'), StoreUnavailable)
      const againMs = performance.now() - againAt
      assert(againMs < PATIENCE_MS, `${againMs} ms`)
      proxy.isSilent = false
      await untilItWorks(scene.store)
      assert.equal((await scene.job('a')).revision, 1)
    })
  })

  it('that is killed and restarts is used again, for notifications too', async () => {
    await overProxy(async (scene, opened) => {
      await scene.submit('a')
      await scene.run('a')
      const claimed = await scene.claimOne()
      const other = await openAt(freshSchema(postgres.url()))
      const local = localWakeup()
      const wakeup = opened.wakeupOver(local)
      await postgres.kill()
      const beganAt = performance.now()
      await assert.rejects(scene.store.job('a'), StoreUnavailable)
      await assert.rejects(scene.store.probe(), StoreUnavailable)
      await assert.rejects(other.store.totals(), StoreUnavailable)
      assert(performance.now() - beganAt < PATIENCE_MS)
      const notified = new Promise<void>((resolve) => wakeup.subscribe('run', resolve))
      await postgres.resume()
      await untilItWorks(scene.store)
      assert.equal((await scene.end(claimed, 'succeeded')).kind, 'finished')
      const {term} = scene
      const renewed = scene.store.renewLease({term, holder: 'holder-1', ttlMs: 6_000})
      assert.equal(await renewed, true)
      await other.store.totals()
      // A reconnect notifies every topic, for the notifications that were missed.
      await notified
      await wakeup.close()
      await other.store.close()
    })
  })

  it('that is killed under load and restarts loses and repeats no write', async () => {
    await overProxy(async (scene) => {
      const stored: string[] = []
      const unknown: string[] = []
      const work = {isOver: false}
      const submitting = Promise.all(
        Array.from({length: 8}, async (_, worker) => {
          for (let count = 0; !work.isOver; count += 1) {
            const name = `job-${worker}-${count}`
            try {
              await scene.store.submit({spec: aSpec(name), ...SUBMIT})
              stored.push(name)
            } catch (error) {
              if (error instanceof OutcomeUnknown) unknown.push(name)
              else assert(error instanceof StoreUnavailable, String(error))
            }
          }
        }),
      )
      await untilItWorks(scene.store)
      for (let round = 0; round < 3; round += 1) {
        await postgres.kill()
        await postgres.resume()
        await untilItWorks(scene.store)
      }
      work.isOver = true
      await submitting
      assert(stored.length > 0)
      const {requests} = await scene.store.loadRequests({afterGroup: 0, limit: 1_000_000})
      const asked = requests.map(({job}) => job.spec.name)
      assert.equal(new Set(asked).size, asked.length)
      const missing = stored.filter((name) => !asked.includes(name))
      const surprising = asked.filter((name) => !stored.includes(name) && !unknown.includes(name))
      assert.deepEqual([missing, surprising], [[], []])
    })
  })
})
