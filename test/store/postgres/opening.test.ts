/** Opening the store: by two servers at once, with few privileges, with a wrong password; then its values. */
import assert from 'node:assert/strict'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, it, type TestContext} from 'node:test'
import {openPostgresStore} from '../../../src/store/postgres/store.ts'
import {restoreStore} from '../../../src/store/sqlite/backup.ts'
import {openSqliteStore} from '../../../src/store/sqlite/store.ts'
import {localWakeup} from '../../../src/platform/wakeup.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {freshSchema, openAt, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {ALL_EXECUTIONS, ALL_JOBS, anEnd, aSpec, Scene, textOf} from '../exercise-store/scene.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function tryOpen(url: string) {
  return openPostgresStore({url, clock: systemClock(), random: systemRandom()})
}

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-backup-'))
  context.after(() => rmSync(path, {recursive: true}))
  return path
}

describe('opening', () => {
  it('by several servers at once creates one store', async () => {
    const url = freshSchema(postgres.url())
    const opened = await Promise.all(Array.from({length: 4}, () => openAt(url)))
    const facts = await Promise.all(opened.map(({store}) => store.info()))
    assert.equal(new Set(facts.map(({clusterId}) => clusterId)).size, 1)
    assert.equal(new Set(facts.map(({incarnation}) => incarnation)).size, 1)
    await opened[0]!.store.putPolicy({name: 'p', rules: 'r'})
    assert.equal((await opened[3]!.store.policies()).length, 1)
    await Promise.all(opened.map(({store}) => store.close()))
  })

  it('again finds the same store', async () => {
    const url = freshSchema(postgres.url())
    const first = await openAt(url)
    const {clusterId} = await first.store.info()
    await first.store.putPolicy({name: 'p', rules: 'r'})
    await first.store.close()
    const second = await openAt(url)
    assert.equal((await second.store.info()).clusterId, clusterId)
    assert.deepEqual(await second.store.policy('p'), {name: 'p', rules: 'r'})
    await second.store.close()
  })

  it('of tables that were loaded from a dump runs nothing of their past', async () => {
    const url = freshSchema(postgres.url())
    const {store} = await openAt(url)
    const {incarnation} = await store.info()
    const scene = await Scene.open(async () => {
      return {store, startedAt: Date.now(), advance: () => {}, close: () => store.close()}
    })
    await scene.submit('a', {retries: 3})
    await scene.run('a')
    await scene.claim()
    await scene.run('a')
    await store.close()
    // A dump gives the tables other numbers.
    const schema = new URL(url).searchParams.get('schema')!
    await postgres.run(`UPDATE "${schema}".meta SET value = '1' WHERE key = 'place_postgres'`)
    for (let start = 1; start <= 2; start += 1) {
      const again = (await openAt(url)).store
      const {running, pending, undecided} = await again.totals()
      const found = [running, pending, undecided, await again.pausedSinceRestore()]
      // The second start finds what was asked after the first.
      assert.deepEqual(found, [0, 0, start - 1, 'put_back'])
      assert.notEqual((await again.info()).incarnation, incarnation)
      const asked = await again.requestRun({name: 'a', forced: true, idempotency: null})
      assert(asked.kind === 'accepted' && asked.group > 1_000_000_000)
      await again.close()
    }
  })

  it('needs no privilege to create schemas if its schema exists', async () => {
    await postgres.run(`CREATE ROLE modest LOGIN; CREATE SCHEMA made AUTHORIZATION modest`)
    const url = `${postgres.url('postgres', 'modest')}?schema=made`
    const {store} = await openAt(url)
    await store.probe()
    const facts = await store.info()
    assert.equal(facts.durability['standbys'], 'none')
    assert.match(facts.warnings.join(' '), /fsync off: a power cut may lose acknowledged writes/)
    await store.close()
    const other = await tryOpen(`${postgres.url('postgres', 'modest')}?schema=unmade`)
    assert(!other.ok)
    assert.match(other.problem, /has no schema "unmade", and role modest may not create it/)
  })

  it('in a database of another encoding is refused', async () => {
    await postgres.run(`CREATE DATABASE old ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`)
    const opened = await tryOpen(postgres.url('old'))
    assert(!opened.ok)
    assert.match(opened.problem, /encoding LATIN1; UTF8 is needed/)
  })

  it('an unreachable server or a wrong database is refused without showing a password', async () => {
    const urls = [
      `postgres://belfry:secret@127.0.0.1:1/postgres`,
      `postgres://belfry:secret@127.0.0.1:${postgres.port}/nothing`,
      `postgres://nobody-secret:secret@127.0.0.1:${postgres.port}/postgres`,
      `postgres://belfry:secret@127.0.0.1:${postgres.port}/postgres?sslmode=require`,
    ]
    for (const url of urls) {
      const opened = await tryOpen(url)
      assert(!opened.ok)
      assert.match(
        opened.problem,
        /^The store postgres:\/\/127\.0\.0\.1:\d+\/\w+ cannot be opened: .+\.$/,
      )
      assert.doesNotMatch(opened.problem, /:secret/)
      if (url.includes('sslmode')) assert.match(opened.problem, /has no TLS, .* sslmode=disable/)
    }
  })
})

describe('values', () => {
  it('of any text and length are kept and found', async () => {
    await withCluster(postgres, async ({scene, first, second}) => {
      const long = 'k'.repeat(100_000)
      await scene.submit('a', {metadata: {[long]: 'v', zero: 'a\0b'}, displayname: 'Ä\0"\\'})
      const query = {...ALL_JOBS, metadata: [{key: long, value: 'v'}]}
      assert.equal((await second.jobs(query)).total, 1)
      const zero = {...ALL_JOBS, metadata: [{key: 'zero', value: 'a\0b'}]}
      const found = await second.jobs(zero)
      assert.deepEqual(found.rows[0]!.spec, (await scene.job('a')).spec)
      assert.equal(found.rows[0]!.spec.displayname, 'Ä\0"\\')
      const idempotency = {key: long, scope: 's', fingerprint: 'f'}
      const asked = await first.requestRun({name: 'a', forced: false, idempotency})
      assert.deepEqual(await second.requestRun({name: 'a', forced: false, idempotency}), asked)
    })
  })

  it('that cannot be stored fail only their own write', async () => {
    await withCluster(postgres, async ({scene, first}) => {
      const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
      const submits = ['a', 'b', 'c'].map((name) => {
        const spec = aSpec(name, name === 'b' ? {retries: 0.5} : {})
        return first.submit({spec, ...request})
      })
      const stored = await Promise.allSettled(submits)
      assert.deepEqual(
        stored.map(({status}) => status),
        ['fulfilled', 'rejected', 'fulfilled'],
      )
      const ends = []
      for (const exitCode of [0, 0.5, 1]) {
        await scene.run('a')
        ends.push(anEnd(await scene.claimOne(), 'succeeded', {exitCode}))
      }
      const finished = await Promise.allSettled(ends.map((item) => first.finish([item])))
      assert.deepEqual(
        finished.map(({status}) => status),
        ['fulfilled', 'rejected', 'fulfilled'],
      )
      assert.equal((await scene.job('a')).counters.successCount, 2)
    })
  })
})

describe('notifications', () => {
  it('of one server reach the others, and itself once', async () => {
    const url = freshSchema(postgres.url())
    const opened = await Promise.all([openAt(url), openAt(url)])
    const [here, there] = opened.map(({wakeupOver}) => wakeupOver(localWakeup()))
    let receivedHere = 0
    const listening = new Promise<void>((resolve) => there!.subscribe('cancel', resolve))
    // A new connection notifies every topic once, for notifications it missed.
    await Promise.all([
      listening,
      new Promise<void>((resolve) => here!.subscribe('cancel', resolve)),
    ])
    here!.subscribe('run', () => (receivedHere += 1))
    const notified = new Promise<void>((resolve) => there!.subscribe('run', resolve))
    here!.notify('run')
    await notified
    there!.notify('launch')
    await new Promise<void>((resolve) => here!.subscribe('launch', resolve))
    assert.equal(receivedHere, 1)
    await Promise.all([here!.close(), there!.close()])
    await Promise.all(opened.map(({store}) => store.close()))
  })

  it('in quick succession are sent as few', async () => {
    const url = freshSchema(postgres.url())
    const opened = await openAt(url)
    const other = await openAt(url)
    const here = opened.wakeupOver(localWakeup())
    const local = localWakeup()
    const received = {count: 0}
    const counting = {...local, notify: () => void (received.count += 1)}
    const there = other.wakeupOver(counting)
    await new Promise<void>((resolve) => here.subscribe('cancel', resolve))
    // Every topic but `burst` once, for notifications missed before the connection.
    const announced = 6
    while (received.count < announced) await other.store.submissionsPaused()
    for (let sent = 0; sent < 1_000; sent += 1) here.notify(sent % 2 === 0 ? 'run' : 'launch')
    while (received.count < announced + 2) await other.store.submissionsPaused()
    for (let look = 0; look < 50; look += 1) await other.store.submissionsPaused()
    assert.equal(received.count, announced + 2)
    await Promise.all([here.close(), there.close()])
    await Promise.all([opened.store.close(), other.store.close()])
  })
})

describe('a backup', () => {
  it('of a busy store becomes a store on SQLite that runs no past times', async (context) => {
    await withCluster(postgres, async ({scene, first, second}) => {
      await scene.submit('a', {metadata: {k: 'v'}})
      await scene.submit('child', {schedule: '', parentJob: 'a'})
      const done = await scene.complete('a', 'succeeded', {output: 'kept'})
      const running = await scene.run('a')
      await scene.claimOne()
      for (let count = 0; count < 600; count += 1)
        await first.putPolicy({name: `p${count}`, rules: ''})
      const image = join(folder(context), 'image.sqlite')
      await Promise.all([first.backup(image), second.putPolicy({name: 'later', rules: ''})])
      await assert.rejects(first.backup(image), {
        name: 'StoreUnavailable',
        message: /exists already/,
      })

      const dataDir = folder(context)
      const clock = systemClock()
      assert.deepEqual(restoreStore(image, dataDir, {clock, random: systemRandom()}), {ok: true})
      const opened = await openSqliteStore({dataDir, clock, random: systemRandom()})
      assert(opened.ok)
      const {store} = opened
      assert.deepEqual((await store.job('a'))!.spec, (await scene.job('a')).spec)
      assert.deepEqual((await store.job('a'))!.dependentJobs, ['child'])
      const page = await store.executions('a', {...ALL_EXECUTIONS, order: 'asc'})
      assert.deepEqual(
        page!.rows.map(({group, status, output}) => [group, status, textOf(output)]),
        [
          [done, 'succeeded', 'kept'],
          [running, 'lost', ''],
        ],
      )
      assert((await store.policies()).length >= 600)
      const asked = await store.requestRun({name: 'a', forced: true, idempotency: null})
      assert(asked.kind === 'accepted' && asked.group > running)
      const {clusterId} = await first.info()
      assert.equal((await store.info()).clusterId, clusterId)
      await store.close()
    })
  })

  it('leaves the event loop free for the lease and heartbeats', async (context) => {
    await withCluster(postgres, async ({scene, first, rows}) => {
      await scene.submit('a')
      await rows(`INSERT INTO launches SELECT group_id + number, job_id, job_name, cause, 'missed',
        repeat('x', 500), scheduled_at + number, scheduled_until, planned_count, stored_at, decided_at,
        term, forced, parent_group, 0, retries_ended, node_deaths
        FROM launches, generate_series(1, 30000) AS number WHERE group_id = ${await scene.run('a')}`)
      const before = performance.eventLoopUtilization()
      await first.backup(join(folder(context), 'image.sqlite'))
      const {utilization} = performance.eventLoopUtilization(before)
      assert(utilization < 0.5, `the event loop was busy for ${utilization} of the time`)
    })
  })
})
