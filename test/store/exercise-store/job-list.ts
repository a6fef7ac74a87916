/** The list of jobs: filters, sorting, slices, one snapshot. */
import assert from 'node:assert/strict'
import type {JobQuery} from '../../../src/ports/job-store.ts'
import type {Case} from './case.ts'
import {ALL_JOBS, type Scene} from './scene.ts'

async function names(scene: Scene, query: Partial<JobQuery>): Promise<string[]> {
  const page = await scene.store.jobs({...ALL_JOBS, ...query})
  if (query.start === undefined) assert.equal(page.total, page.rows.length)
  return page.rows.map(({spec}) => spec.name)
}

export function jobListCases(when: Case): void {
  when(
    'the text filter finds substrings of name and displayname without regard to case',
    async (scene) => {
      await scene.submit('backup_db', {displayname: 'Nightly 100% Straße'})
      await scene.submit('backupxdb')
      await scene.submit('other')
      assert.deepEqual(await names(scene, {text: 'BACKUP'}), ['backup_db', 'backupxdb'])
      assert.deepEqual(await names(scene, {text: 'backup_'}), ['backup_db'])
      assert.deepEqual(await names(scene, {text: '100%'}), ['backup_db'])
      assert.deepEqual(await names(scene, {text: '0% s'}), ['backup_db'])
      assert.deepEqual(await names(scene, {text: '%'}), ['backup_db'])
      assert.deepEqual(await names(scene, {text: '\\'}), [])
    },
  )

  when(
    'a job must match all metadata filters: pairs, or a text that is a key or a value',
    async (scene) => {
      await scene.submit('a', {metadata: {team: 'ops', tier: 'gold'}})
      await scene.submit('b', {metadata: {team: 'dev', ops: 'yes'}})
      await scene.submit('c')
      const pair = (key: string, value: string) => ({key, value})
      assert.deepEqual(await names(scene, {metadata: [pair('team', 'ops')]}), ['a'])
      assert.deepEqual(await names(scene, {metadata: [{either: 'ops'}]}), ['a', 'b'])
      const both = [{either: 'ops'}, pair('team', 'dev')]
      assert.deepEqual(await names(scene, {metadata: both}), ['b'])
      assert.deepEqual(await names(scene, {metadata: [pair('team', 'OPS')]}), [])
      await scene.submit('a', {metadata: {team: 'dev'}})
      assert.deepEqual(await names(scene, {metadata: [pair('team', 'ops')]}), [])
      assert.deepEqual(await names(scene, {metadata: [pair('team', 'dev')]}), ['a', 'b'])
    },
  )

  when('the list filters by status and disabled', async (scene) => {
    for (const name of ['fine', 'broken', 'fresh', 'off'])
      await scene.submit(name, {disabled: name === 'off'})
    await scene.complete('fine', 'succeeded')
    await scene.complete('broken', 'failed')
    assert.deepEqual(await names(scene, {status: 'success'}), ['fine'])
    assert.deepEqual(await names(scene, {status: 'failed'}), ['broken'])
    assert.deepEqual(await names(scene, {status: 'partially_failed'}), [])
    assert.deepEqual(await names(scene, {status: 'untriggered'}), ['fresh', 'off'])
    assert.deepEqual(await names(scene, {disabled: true}), ['off'])
    assert.deepEqual(await names(scene, {disabled: false, status: 'untriggered'}), ['fresh'])
  })

  when(
    'every sort works in both directions, with ties by name and missing times first',
    async (scene) => {
      await scene.submit('b', {displayname: 'X', schedule: '@every 3m'})
      await scene.submit('a', {displayname: 'X', schedule: '@every 2m'})
      await scene.submit('c', {displayname: 'É', schedule: '@manually'})
      await scene.complete('b', 'succeeded')
      scene.advance(10)
      await scene.complete('a', 'succeeded')
      await scene.complete('a', 'failed')
      const sorted = (sort: JobQuery['sort'], order: JobQuery['order']) =>
        names(scene, {sort, order})
      const rows: [JobQuery['sort'], string, string][] = [
        ['name', 'abc', 'cba'],
        ['displayname', 'abc', 'cab'],
        ['schedule', 'abc', 'cba'],
        ['success_count', 'cab', 'abc'],
        ['error_count', 'bca', 'abc'],
        ['last_success', 'cba', 'abc'],
        ['last_error', 'bca', 'abc'],
        ['next', 'cab', 'bac'],
        ['status', 'cab', 'bac'],
      ]
      for (const [sort, ascending, descending] of rows) {
        assert.equal((await sorted(sort, 'asc')).join(''), ascending, `${sort} ascending`)
        assert.equal((await sorted(sort, 'desc')).join(''), descending, `${sort} descending`)
      }
    },
  )

  when('slices are clamped, and the total is the number before slicing', async (scene) => {
    for (const name of ['a', 'b', 'c', 'd']) await scene.submit(name)
    const page = await scene.store.jobs({...ALL_JOBS, start: 1, end: 3})
    assert.deepEqual([page.total, page.rows.map(({spec}) => spec.name)], [4, ['b', 'c']])
    assert.deepEqual(await names(scene, {start: 3, end: 99}), ['d'])
    assert.deepEqual(await names(scene, {start: 9, end: 99}), [])
    assert.deepEqual(await names(scene, {start: 2, end: 1}), [])
    const job = await scene.job('b')
    assert.deepEqual(page.rows[0], job)
  })

  when.withManyRows('a long list is complete and from one snapshot', async (scene) => {
    const many = Array.from({length: 1_200}, (_, index) => `job-${String(index).padStart(4, '0')}`)
    await Promise.all(many.map((name) => scene.submit(name, {schedule: '@manually'})))
    const list = scene.store.jobs(ALL_JOBS)
    const deletions = Promise.all(many.slice(600).map((name) => scene.store.deleteJob(name)))
    const page = await list
    await deletions
    const found = page.rows.map(({spec}) => spec.name)
    assert.equal(page.total, found.length)
    // Jobs are deleted one by one, so a snapshot misses only the first few.
    const gone = many.length - found.length
    assert.deepEqual(found, [...many.slice(0, 600), ...many.slice(600 + gone)])
  })
}
