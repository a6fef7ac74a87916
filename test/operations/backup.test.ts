/** Backup files: one at a time, and none is left over. */
import assert from 'node:assert/strict'
import {mkdtemp, readdir, rm, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {checkedLimits} from '../../src/config/limits.ts'
import type {DomainError} from '../../src/core/errors.ts'
import {createBackup} from '../../src/operations/backup.ts'
import type {Store} from '../../src/ports/store.ts'
import {StoreUnavailable} from '../../src/ports/store-errors.ts'
import {clientStoreOf} from '../support/client-store.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

async function inFolder(t: TestContext, write: (file: string) => Promise<void>) {
  const dataDirectory = await mkdtemp(join(tmpdir(), 'belfry-backup-'))
  t.after(() => rm(dataDirectory, {recursive: true, force: true}))
  const settings = {
    defaultTimezone: () => 'UTC',
    dataDirectory,
    runsPerMinute: 1,
    sessionIdleMs: 1,
    sessionMaxMs: 1,
    limits: checkedLimits(),
    tokenConfigured: false,
    runsAsRoot: false,
    targets: {defaultTarget: 'one', targetWaitMs: 600_000} as const,
    keepLaunches: 1_000,
    makesBackups: false,
  }
  const store = clientStoreOf({backup: write} as Store, new VirtualClock())
  const {backup} = createBackup({random: new SeededRandom(), settings, store})
  return {backup, dataDirectory}
}

test('a backup file exists until its release; a second backup is rejected until then', async (t) => {
  const {backup, dataDirectory} = await inFolder(t, (file) => writeFile(file, 'image'))
  await writeFile(join(dataDirectory, 'backup-of-a-dead-process.partial'), 'old')
  await writeFile(join(dataDirectory, 'belfry.db'), 'the store')
  const first = await backup()
  assert.equal((await readdir(dataDirectory)).length, 2)
  await assert.rejects(backup(), (error) => (error as DomainError).code === 'backup_running')
  await first.release()
  assert.deepEqual(await readdir(dataDirectory), ['belfry.db'])
  await (await backup()).release()
})

test('a failed backup leaves no file, and the next one can start', async (t) => {
  let fails = true
  const {backup, dataDirectory} = await inFolder(t, async (file) => {
    await writeFile(file, 'half')
    if (fails) throw new StoreUnavailable('disk full')
  })
  await assert.rejects(backup(), (error) => (error as DomainError).code === 'store_unavailable')
  assert.deepEqual(await readdir(dataDirectory), [])
  fails = false
  await (await backup()).release()
})
