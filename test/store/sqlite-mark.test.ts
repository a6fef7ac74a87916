/** The mark of a store on a file: what is recognised as put back, and what is not. */
import assert from 'node:assert/strict'
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {describe, it, type TestContext} from 'node:test'
import {MARK, metaValue, putMeta} from '../../src/store/sql/cluster/settings.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {storeFiles} from '../../src/store/sqlite/files.ts'
import {StoreMark} from '../../src/store/sqlite/mark.ts'
import {openSqliteStore} from '../../src/store/sqlite/store.ts'
import type {Store} from '../../src/ports/store.ts'
import {countingIds, TurnedClock} from './adjustable-clock.ts'
import {MINUTE, Scene} from './exercise-store/scene.ts'

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-mark-'))
  context.after(() => rmSync(path, {recursive: true, force: true}))
  return path
}

async function open(dataDir: string, clock: TurnedClock) {
  const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
  assert(opened.ok, opened.ok ? '' : opened.problem)
  return opened
}

/** A closed store with work of the past. */
async function aStoreWithWork(context: TestContext) {
  const dataDir = folder(context)
  const clock = new TurnedClock()
  clock.advance(Date.now() - clock.now())
  const played = await Scene.open(async () => {
    const {store} = await open(dataDir, clock)
    const advance = (ms: number) => clock.advance(ms)
    return {store, startedAt: clock.now(), advance, close: () => store.close()}
  })
  await played.submit('a', {retries: 3})
  await played.run('a')
  await played.claim()
  await played.run('a')
  await played.store.close()
  return {dataDir, clock}
}

/** `active` and how much is open, or why firing is paused. */
async function started(dataDir: string, clock: TurnedClock): Promise<string> {
  const {store} = await open(dataDir, clock)
  try {
    const [paused, {running, pending}] = [await store.pausedSinceRestore(), await store.totals()]
    clock.advance(MINUTE)
    const due = await store.loadDue({limit: 10})
    return `${paused ?? 'active'}, ${running + pending} open, ${due.jobs.length} due`
  } finally {
    await store.close()
  }
}

/** Copies the files of SQLite, as they are now. */
function copyStore(from: string, to: string): void {
  for (const name of [STORE, `${STORE}-wal`])
    if (existsSync(join(from, name))) copyFileSync(join(from, name), join(to, name))
}

/** Gives the files beside the store a second name: it stays when the store replaces them. */
function keepMarks(from: string, to: string, names = ['belfry.mark', 'belfry.count']): void {
  for (const name of names) linkSync(join(from, name), join(to, name))
}

/** Two heartbeats: the second is answered after the files of the first were written. */
async function heartbeat(store: Store, clock: TurnedClock): Promise<void> {
  clock.advance(2_000)
  await store.probe()
  await store.probe()
}

const WORKS = 'active, 2 open, 1 due'
const RUNS_NOTHING = 'put_back, 0 open, 0 due'
const STORE = 'belfry.sqlite'

/** Puts the directory `backup` back. Returns where. */
const WAYS_BACK: Readonly<Record<string, (backup: string, dataDir: string) => string>> = {
  'its file copied over the file': (backup, dataDir) => {
    copyFileSync(join(backup, STORE), join(dataDir, STORE))
    return dataDir
  },
  'its file in place of the file': (backup, dataDir) => {
    renameSync(join(backup, STORE), join(dataDir, STORE))
    return dataDir
  },
  'its file in a new directory': (backup, dataDir) => {
    mkdirSync(join(dataDir, 'new'))
    renameSync(join(backup, STORE), join(dataDir, 'new', STORE))
    return join(dataDir, 'new')
  },
  'all files copied over the files': (backup, dataDir) => {
    cpSync(backup, dataDir, {recursive: true, preserveTimestamps: true})
    return dataDir
  },
  'the directory in place of the directory': (backup, dataDir) => {
    rmSync(dataDir, {recursive: true})
    renameSync(backup, dataDir)
    return dataDir
  },
  'the copy beside the original': (backup) => backup,
}

describe('a store that was put back runs nothing of its past', () => {
  for (const [way, putBack] of Object.entries(WAYS_BACK))
    it(way, async (context) => {
      const {dataDir, clock} = await aStoreWithWork(context)
      const backup = join(folder(context), 'backup')
      cpSync(dataDir, backup, {recursive: true, preserveTimestamps: true})
      // Two starts, because the file system may give the second mark the inode of the one before the first.
      assert.equal(await started(dataDir, clock), WORKS)
      assert.equal(await started(dataDir, clock), WORKS)
      const place = putBack(backup, dataDir)
      assert.equal(await started(place, clock), RUNS_NOTHING)
      assert.equal(await started(place, clock), RUNS_NOTHING, 'until firing is resumed')
      const {store} = await open(place, clock)
      const asked = await store.requestRun({name: 'a', forced: true, idempotency: null})
      await store.close()
      assert(asked.kind === 'accepted' && asked.group > 1_000_000_000, 'no number is used twice')
    })

  it('a copy from while it ran, put back after a stop', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const {store} = await open(dataDir, clock)
    const copy = join(folder(context), 'copy')
    cpSync(dataDir, copy, {recursive: true})
    await store.close()
    for (const name of [STORE, `${STORE}-wal`]) copyFileSync(join(copy, name), join(dataDir, name))
    assert.equal(await started(dataDir, clock), RUNS_NOTHING)
  })

  it('the mark changes while it runs, so a copy put back after a crash has an older one', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const {store} = await open(dataDir, clock)
    const mark = () => readFileSync(join(dataDir, 'belfry.mark'), 'utf8')
    const before = mark()
    await store.probe()
    await store.probe()
    assert.equal(mark(), before)
    clock.advance(2 * MINUTE)
    // The mark changes after the reply to the first probe, and before that to the second.
    await store.probe()
    await store.probe()
    const changed = mark()
    await store.close()
    assert.notEqual(changed, before)
  })

  it('a copy from seconds before a crash', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const {store} = await open(dataDir, clock)
    const [crashed, whole] = [folder(context), folder(context)]
    await heartbeat(store, clock)
    copyStore(dataDir, crashed)
    copyStore(dataDir, whole)
    copyFileSync(join(dataDir, 'belfry.count'), join(whole, 'belfry.count'))
    await heartbeat(store, clock)
    keepMarks(dataDir, crashed)
    // A copy of the directory over its own files: the mark is as it was, the file of the counter a copy.
    keepMarks(dataDir, whole, ['belfry.mark'])
    await store.close()
    assert.equal(await started(crashed, clock), RUNS_NOTHING)
    assert.equal(await started(whole, clock), RUNS_NOTHING)
  })

  it('a copy from before the mark was last changed, put back after a crash', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const {store} = await open(dataDir, clock)
    const crashed = folder(context)
    copyStore(dataDir, crashed)
    clock.advance(2 * MINUTE)
    await heartbeat(store, clock)
    keepMarks(dataDir, crashed)
    await store.close()
    assert.equal(await started(crashed, clock), RUNS_NOTHING)
  })

  it('a backup in place of the file', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const {store} = await open(dataDir, clock)
    const image = join(folder(context), 'image')
    await store.backup(image)
    await store.close()
    copyFileSync(image, join(dataDir, STORE))
    assert.equal(await started(dataDir, clock), RUNS_NOTHING)
    const place = folder(context)
    copyFileSync(image, join(place, STORE))
    assert.equal(await started(place, clock), RUNS_NOTHING)
  })

  it('a crash during the first start after it', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const old = readFileSync(join(dataDir, STORE))
    assert.equal(await started(dataDir, clock), WORKS)
    writeFileSync(join(dataDir, STORE), old)
    const connection = new Connection(join(dataDir, STORE), {readOnly: false})
    // The first statement of the start that changes the store.
    connection.execute(`CREATE TRIGGER dies BEFORE UPDATE ON meta WHEN new.key = 'incarnation'
      BEGIN SELECT RAISE(ABORT, 'power cut'); END`)
    connection.close()
    const refused = await openSqliteStore({dataDir, clock, random: countingIds()})
    assert.match(refused.ok ? '' : refused.problem, /power cut/)
    const again = new Connection(join(dataDir, STORE), {readOnly: false})
    again.execute('DROP TRIGGER dies')
    again.close()
    assert.equal(await started(dataDir, clock), RUNS_NOTHING)
  })
})

describe('a store that was not put back continues', () => {
  const marks = (dataDir: string) => new StoreMark(storeFiles(dataDir), () => 'new')

  it('after a crash before the store has the new mark', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const connection = new Connection(join(dataDir, STORE), {readOnly: false})
    const mark = connection.run(metaValue(MARK))!
    connection.close()
    const crash = () => assert.fail('crash')
    assert.throws(() => marks(dataDir).change([mark], clock.now(), crash), /crash/)
    assert.equal(await started(dataDir, clock), WORKS)
  })

  it('after a crash when the store has the new mark', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const connection = new Connection(join(dataDir, STORE), {readOnly: false})
    const mark = connection.run(metaValue(MARK))!
    const crash = (next: string) => {
      connection.run(putMeta(MARK, next))
      connection.close()
      assert.fail('crash')
    }
    assert.throws(() => marks(dataDir).change([mark], clock.now(), crash), /crash/)
    assert.equal(await started(dataDir, clock), WORKS)
  })

  it('after an upgrade from a release without a mark, also if its first start crashes', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const forget = () => {
      const connection = new Connection(join(dataDir, STORE), {readOnly: false})
      connection.execute(`DELETE FROM meta WHERE key = '${MARK}'`)
      connection.close()
      rmSync(join(dataDir, 'belfry.mark'), {force: true})
    }
    forget()
    assert.equal(await started(dataDir, clock), WORKS)
    forget()
    assert.throws(() => marks(dataDir).change([''], clock.now(), () => assert.fail('crash')))
    assert.equal(await started(dataDir, clock), WORKS)
  })

  it('if its directory was moved, or other users have access now', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    const moved = join(folder(context), 'moved')
    renameSync(dataDir, moved)
    chmodSync(join(moved, 'belfry.mark'), 0o640)
    assert.equal(await started(moved, clock), WORKS)
  })

  /** Directory that a crash leaves, after `change` of the directory while the store runs. */
  async function crashedAfter(context: TestContext, change: (dataDir: string) => void) {
    const {dataDir, clock} = await aStoreWithWork(context)
    const {store} = await open(dataDir, clock)
    await heartbeat(store, clock)
    change(dataDir)
    await heartbeat(store, clock)
    const crashed = folder(context)
    copyStore(dataDir, crashed)
    keepMarks(dataDir, crashed, ['belfry.mark'])
    if (existsSync(storeFiles(dataDir).count)) keepMarks(dataDir, crashed, ['belfry.count'])
    await store.close()
    return {crashed, clock}
  }
  const countOf = (dataDir: string): number =>
    JSON.parse(readFileSync(storeFiles(dataDir).count, 'utf8')).count

  it('after kill -9, again and again', async (context) => {
    let {crashed, clock} = await crashedAfter(context, () => {})
    const before = countOf(crashed)
    assert(before > 0, 'each heartbeat counts')
    for (let round = 0; round < 3; round += 1) {
      const {store} = await open(crashed, clock)
      await heartbeat(store, clock)
      const next = folder(context)
      copyStore(crashed, next)
      keepMarks(crashed, next)
      await store.close()
      crashed = next
    }
    assert(countOf(crashed) > before)
    assert.equal(await started(crashed, clock), WORKS)
  })

  it('after a power cut, which leaves an older, a torn or no file of the counter', async (context) => {
    const older = folder(context)
    const first = await crashedAfter(context, (dataDir) => keepMarks(dataDir, older))
    assert(countOf(older) < countOf(first.crashed))
    renameSync(storeFiles(older).count, storeFiles(first.crashed).count)
    assert.equal(await started(first.crashed, first.clock), WORKS)
    for (const left of ['', '{"mark":"', '{}', 'null', '\0'.repeat(64)]) {
      const {crashed, clock} = await crashedAfter(context, () => {})
      writeFileSync(storeFiles(crashed).count, left)
      assert.equal(await started(crashed, clock), WORKS, left)
    }
    const {crashed, clock} = await crashedAfter(context, () => {})
    rmSync(storeFiles(crashed).count)
    assert.equal(await started(crashed, clock), WORKS)
  })

  it('if the file of the counter cannot be written or read', async (context) => {
    const unwritable = await crashedAfter(context, (dataDir) =>
      // No draft of it can be made, as on a full disk.
      mkdirSync(`${storeFiles(dataDir).count}.new`),
    )
    assert.equal(await started(unwritable.crashed, unwritable.clock), WORKS)
    const readOnly = await crashedAfter(context, (dataDir) =>
      chmodSync(storeFiles(dataDir).count, 0o400),
    )
    assert.equal(await started(readOnly.crashed, readOnly.clock), WORKS)
    const unreadable = await crashedAfter(context, () => {})
    rmSync(storeFiles(unreadable.crashed).count)
    mkdirSync(storeFiles(unreadable.crashed).count)
    assert.equal(await started(unreadable.crashed, unreadable.clock), WORKS)
  })

  it('after a release without the counter has written the store', async (context) => {
    const {crashed, clock} = await crashedAfter(context, () => {})
    const connection = new Connection(join(crashed, STORE), {readOnly: false})
    connection.execute(`UPDATE meta SET value = 'true' WHERE key = 'paused'`)
    connection.close()
    assert.equal(await started(crashed, clock), WORKS)
    const again = new Connection(join(crashed, STORE), {readOnly: false})
    again.execute(`DELETE FROM meta WHERE key = 'mark_count'`)
    again.close()
    rmSync(storeFiles(crashed).count)
    assert.equal(await started(crashed, clock), WORKS)
  })

  it('as a new store where an earlier one was deleted', async (context) => {
    const {dataDir, clock} = await aStoreWithWork(context)
    rmSync(join(dataDir, STORE))
    assert.equal(await started(dataDir, clock), 'active, 0 open, 0 due')
  })
})
