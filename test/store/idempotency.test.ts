/** The replies kept under idempotency keys: their size is limited, and repetitions get them all the same. */
import assert from 'node:assert/strict'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import {openSqliteStore} from '../../src/store/sqlite/store.ts'
import {countingIds, TurnedClock} from './adjustable-clock.ts'
import {aSpec, Scene} from './exercise-store/scene.ts'

const KEPT_BYTES_MAX = 16 * 1024
const LARGE = {executorConfig: {command: 'x'.repeat(60_000)}, tags: {disk: 'ssd'}}

const key = (name: string) => ({key: name, scope: 's', fingerprint: name})

test('a kept reply takes at most 16 KiB; a repetition gets the job, while it exists', async (t) => {
  const dataDir = mkdtempSync(join(tmpdir(), 'belfry-keys-'))
  t.after(() => rmSync(dataDir, {recursive: true, force: true}))
  const scene = await Scene.open(async () => {
    const clock = new TurnedClock()
    const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
    assert(opened.ok)
    const {store} = opened
    const advance = (ms: number) => clock.advance(ms)
    return {store, startedAt: clock.now(), advance, close: () => store.close()}
  })
  const submit = () => scene.trySubmit(aSpec('large', LARGE), {idempotency: key('submit')})
  const run = () => scene.store.requestRun({name: 'large', forced: false, idempotency: key('run')})
  try {
    const submitted = await submit()
    const accepted = await run()
    const small = await scene.trySubmit(aSpec('small'), {idempotency: key('small')})
    assert.deepEqual(await submit(), submitted)
    assert.deepEqual(await scene.store.earlierSubmit(key('submit')), submitted)
    assert.deepEqual(await run(), accepted)
    assert.deepEqual(await scene.store.earlierRun(key('run')), accepted)
    await scene.store.deleteJob('large')
    await scene.store.deleteJob('small')
    assert.deepEqual(await scene.store.earlierSubmit(key('small')), small)
    const repeated = await scene.store.earlierRun(key('run'))
    assert(repeated?.kind === 'accepted' && accepted.kind === 'accepted')
    assert.deepEqual(repeated.job.spec, {...accepted.job.spec, executorConfig: {}, tags: {}})
    assert.equal(repeated.group, accepted.group)
  } finally {
    await scene.store.close()
  }
  const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'), {readOnly: true})
  const sizes = database.prepare('SELECT length(answer) AS bytes FROM idempotency').all()
  database.close()
  assert.equal(sizes.length, 3)
  for (const {bytes} of sizes) assert.ok(Number(bytes) <= KEPT_BYTES_MAX, String(bytes))
})
