/** Settings of the whole store: its info, policies, the time zone, readiness, closing. */
import assert from 'node:assert/strict'
import {NO_BACKUP} from '../../../src/core/backup.ts'
import {TermOver} from '../../../src/ports/store-errors.ts'
import type {Case} from './case.ts'
import {aRow, HOUR} from './scene.ts'

export function settingsCases(when: Case): void {
  when('the info has engine, schema, identity and durability', async (scene) => {
    const info = await scene.store.info()
    assert.notEqual(info.engineVersion, '')
    assert(info.schemaVersion >= 1)
    assert.notEqual(info.clusterId, '')
    assert.notEqual(info.incarnation, info.clusterId)
    assert.deepEqual(info.warnings, [])
    assert(Object.keys(info.durability).length > 0)
  })

  when('the state of scheduled backups changes only in the term of the leader', async (scene) => {
    const {store, term, now} = scene
    assert.deepEqual(await store.backupState(), {now, state: null})
    const made = {...NO_BACKUP, lastAt: now, file: '/b', bytes: 7, node: 'a', dueAt: now + HOUR}
    await store.recordBackup({term, state: made})
    assert.deepEqual(await store.backupState(), {now, state: made})
    await assert.rejects(store.recordBackup({term: term - 1, state: NO_BACKUP}), TermOver)
    assert.deepEqual((await store.backupState()).state, made)
  })

  when('the first time zone stays', async (scene) => {
    assert.equal(await scene.store.agreeTimezone('Europe/Berlin'), 'UTC')
  })

  when('the first key of sign-ins stays', async (scene) => {
    assert.equal(await scene.store.agreeSignInKey('first'), 'first')
    assert.equal(await scene.store.agreeSignInKey('second'), 'first')
  })

  when(
    'a change of the time zone plans jobs without one of their own, page by page',
    async (scene) => {
      const {store, term} = scene
      const daily = {schedule: '0 0 15 * * *'}
      await scene.submit('own', {...daily, timezone: 'UTC'})
      await scene.submit('every', {schedule: '@every 1h'})
      const first = await scene.submit('first', daily)
      await scene.submit('last', daily)
      await scene.submit('off', {...daily, disabled: true})
      const {settings} = await store.loadDue({limit: 1})
      assert.deepEqual([settings.defaultZone, settings.isPlanned], ['UTC', true])
      scene.advance(first.nextAt! - scene.now)
      assert.equal(await store.setTimezone('Asia/Tokyo'), 'UTC')
      assert.equal(await store.defaultTimezone(), 'Asia/Tokyo')
      const changed = (await store.loadDue({limit: 1})).settings
      assert.deepEqual([changed.defaultZone, changed.isPlanned], ['Asia/Tokyo', false])
      assert.notEqual(changed.revision, settings.revision)
      let pages = 1
      while (!(await store.planZone({term, limit: 2})).isDone) pages += 1
      assert.equal(pages, 3)
      assert.equal((await store.loadDue({limit: 1})).settings.isPlanned, true)
      const next = async (name: string) => new Date((await scene.job(name)).nextAt!).toISOString()
      assert.equal(await next('own'), '2026-01-15T15:00:00.000Z')
      assert.equal(await next('every'), '2026-01-15T13:00:00.000Z')
      for (const name of ['first', 'last']) {
        assert.equal(await next(name), '2026-01-16T06:00:00.000Z')
        const {rows} = (await store.launches(name, {start: 0, end: 9, decision: null}))!
        assert.deepEqual(
          rows.map(({decision, reason, scheduledAt}) => [decision, reason, scheduledAt]),
          [['missed', 'edited', first.nextAt]],
        )
      }
      assert.equal((await scene.job('off')).nextAt, null)
      assert.deepEqual(await store.planZone({term, limit: 2}), {isDone: true, skipped: null})
      assert.equal(await store.setTimezone('Asia/Tokyo'), 'Asia/Tokyo')
      assert.equal((await store.loadDue({limit: 1})).settings.isPlanned, true)
    },
  )

  when(
    'an edit before a job is planned with the new time zone leaves no planned time out',
    async (scene) => {
      const {store, term} = scene
      const spec = {schedule: '0 30 12,15 * * *'}
      const kept = await scene.submit('kept', spec)
      await scene.submit('changed', spec)
      await store.setTimezone('Europe/Berlin') // 11:30Z, 14:30Z
      scene.advance(3 * HOUR)
      await scene.submit('kept', {...spec, owner: 'somebody'})
      await scene.submit('changed', {schedule: '0 45 * * * *'})
      assert.deepEqual(await store.planZone({term, limit: 9}), {isDone: true, skipped: null})
      assert.equal(kept.nextAt, scene.now - 2.5 * HOUR)
      assert.equal((await scene.job('kept')).nextAt, scene.now - HOUR / 2)
      assert.equal((await scene.job('changed')).nextAt, scene.now + 0.75 * HOUR)
      const {rows} = (await store.launches('changed', {start: 0, end: 9, decision: null}))!
      assert.deepEqual(
        rows.map(({decision, scheduledAt, count}) => [decision, scheduledAt, count]),
        [['missed', scene.now - HOUR / 2, 1]],
      )
    },
  )

  when(
    'two changes of the time zone before jobs are planned leave no planned time out',
    async (scene) => {
      const {store, term} = scene
      const {nextAt} = await scene.submit('a', {schedule: '0 30 13 * * *'})
      await store.setTimezone('Europe/Berlin')
      scene.advance(HOUR)
      await store.setTimezone('Asia/Tokyo')
      assert.equal((await store.planZone({term, limit: 9})).isDone, true)
      const {rows} = (await store.launches('a', {start: 0, end: 9, decision: null}))!
      assert.deepEqual(
        rows.map(({reason, scheduledAt}) => [reason, scheduledAt]),
        [['edited', nextAt! - HOUR]],
      )
      assert.equal((await scene.job('a')).nextAt, nextAt! + 15 * HOUR)
    },
  )

  when('a change of the time zone leaves what is due and the same in both zones', async (scene) => {
    const {store, term} = scene
    const own = await scene.submit('own', {schedule: 'CRON_TZ=UTC 0 0 15 * * *'})
    const hourly = await scene.submit('hourly', {schedule: '0 0 * * * *'})
    scene.advance(3 * HOUR)
    await store.setTimezone('Asia/Tokyo')
    assert.equal((await store.planZone({term, limit: 9})).isDone, true)
    for (const {nextAt, spec} of [own, hourly]) {
      assert.equal((await scene.job(spec.name)).nextAt, nextAt)
      const page = await store.launches(spec.name, {start: 0, end: 9, decision: null})
      assert.equal(page!.total, 0)
    }
  })

  when('a job that cannot be planned with a new time zone can be skipped', async (scene) => {
    const {store, term} = scene
    const daily = {schedule: '0 0 15 * * *'}
    const {nextAt} = await scene.submit('first', daily)
    const bad = await scene.submit('bad', daily)
    await scene.submit('last', daily)
    // The row for the time that is due exists already.
    await scene.decide(bad, [aRow(nextAt!, 'launched')], nextAt)
    scene.advance(3 * HOUR)
    await store.setTimezone('Asia/Tokyo')
    await assert.rejects(store.planZone({term, limit: 9}))
    assert.deepEqual(await store.planZone({term, limit: 1}), {isDone: false, skipped: null})
    await assert.rejects(store.planZone({term, limit: 1}))
    const skipped = {jobId: bad.id, job: 'bad', revision: 1}
    assert.deepEqual(await store.planZone({term, limit: 1, isFaulty: true}), {
      isDone: false,
      skipped,
    })
    assert.equal((await store.planZone({term, limit: 9})).isDone, true)
    const nexts = ['first', 'bad', 'last'].map(async (name) => (await scene.job(name)).nextAt)
    assert.deepEqual(await Promise.all(nexts), [nextAt! + 15 * HOUR, nextAt, nextAt! + 15 * HOUR])
  })

  when('the readiness probe writes and reads', async (scene) => {
    await scene.store.probe()
  })

  when('policies are stored by name', async (scene) => {
    const {store} = scene
    assert.deepEqual(await store.policies(), [])
    await store.putPolicy({name: 'b', rules: '{"x": 1}'})
    await store.putPolicy({name: 'a', rules: ''})
    await store.putPolicy({name: 'b', rules: 'new €'})
    assert.deepEqual(await store.policies(), [
      {name: 'a', rules: ''},
      {name: 'b', rules: 'new €'},
    ])
    assert.deepEqual(await store.policy('b'), {name: 'b', rules: 'new €'})
    assert.equal(await store.policy('c'), null)
    assert.deepEqual(await store.deletePolicy('b'), {name: 'b', rules: 'new €'})
    assert.equal(await store.deletePolicy('b'), null)
  })

  when('an acknowledged write is visible to the next read', async (scene) => {
    for (let index = 0; index < 50; index += 1) {
      await scene.store.putPolicy({name: 'p', rules: String(index)})
      assert.equal((await scene.store.policy('p'))!.rules, String(index))
    }
  })

  when('launch numbers grow and are never reused', async (scene) => {
    await scene.submit('a')
    const first = await scene.complete('a', 'succeeded')
    await scene.store.deleteJob('a')
    const keep = {
      keepLaunches: 0,
      keepExecutions: 1_000,
      keepUnlaunched: 0,
      keepMs: 0,
      keepOutputBytes: 0,
    }
    const piece = {round: 'all' as const, after: 0, jobLimit: 10, rowLimit: 10}
    await scene.store.prune({term: scene.term, ...keep, ...piece})
    await scene.submit('a')
    assert((await scene.run('a')) > first)
  })

  when('a closed store refuses requests, and can be closed twice', async (scene) => {
    const {store} = scene
    await Promise.all([store.putPolicy({name: 'last', rules: ''}), store.close()])
    await store.close()
    await assert.rejects(store.putPolicy({name: 'x', rules: ''}), {name: 'StoreUnavailable'})
    await assert.rejects(store.policies(), {name: 'StoreUnavailable'})
  })
}
