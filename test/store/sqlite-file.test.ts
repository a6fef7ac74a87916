/** Store on a file: who may open it, what it checks, images, and how it fails. */
import assert from 'node:assert/strict'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {afterEach, describe, it, type TestContext} from 'node:test'
import {bootId} from '../../src/platform/boot-id.ts'
import {SCHEMA_VERSION} from '../../src/store/sql/migrations.ts'
import {restoreStore} from '../../src/store/sqlite/backup.ts'
import {openMemoryStore, openSqliteStore} from '../../src/store/sqlite/store.ts'
import type {Store} from '../../src/ports/store.ts'
import {StoreDamaged} from '../../src/ports/store-errors.ts'
import {overwriteRoot} from '../support/damage.ts'
import {
  ALL_EXECUTIONS,
  ALL_ROWS,
  aRow,
  aSpec,
  MINUTE,
  Scene,
  textOf,
} from './exercise-store/scene.ts'
import {ALL_AUDIT} from './exercise-store/audit.ts'
import {addRule} from './exercise-store/notices.ts'
import {countingIds, TurnedClock} from './adjustable-clock.ts'

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-file-'))
  context.after(() => rmSync(path, {recursive: true, force: true}))
  return path
}

const openStores: Store[] = []
// A failed test leaves its stores open, and a store keeps the process alive.
afterEach(() => Promise.allSettled(openStores.splice(0).map((store) => store.close())))

async function open(dataDir: string, clock = new TurnedClock()) {
  const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
  assert(opened.ok, opened.ok ? '' : opened.problem)
  openStores.push(opened.store)
  return opened
}

it('long lists work again after opens failed more often than there are connections', async (t) => {
  const dataDir = folder(t)
  const {store} = await open(dataDir)
  const file = join(dataDir, 'belfry.sqlite')
  const list = () => store.busy({start: 0, end: null, outputBytes: 0})
  await store.submit({...PLAIN_SUBMIT, spec: aSpec('a')})
  renameSync(file, `${file}.away`)
  for (let failure = 0; failure < 6; failure += 1) await assert.rejects(list)
  renameSync(`${file}.away`, file)
  const lists = await Promise.all(Array.from({length: 8}, list))
  assert.deepEqual(
    lists.map(({total}) => total),
    Array(8).fill(0),
  )
  await store.close()
})

const PLAIN_SUBMIT = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}

async function refusal(dataDir: string): Promise<string> {
  const opened = await openSqliteStore({dataDir, clock: new TurnedClock(), random: countingIds()})
  if (opened.ok) await opened.store.close()
  return opened.ok ? 'it opened' : opened.problem
}

/** A scene on a store in `dataDir`; the caller closes it. */
function scene(dataDir: string, clock = new TurnedClock()): Promise<Scene> {
  return Scene.open(async () => {
    const {store} = await open(dataDir, clock)
    const advance = (ms: number) => clock.advance(ms)
    return {store, startedAt: clock.now(), advance, close: () => store.close()}
  })
}

describe('ownership', () => {
  it('a second opener is refused by name until the first has closed', async (context) => {
    const dataDir = folder(context)
    const {store} = await open(dataDir)
    const problem = await refusal(dataDir)
    assert.match(problem, /is held by another Belfry process/)
    assert(problem.includes(dataDir))
    await store.probe()
    await store.close()
    assert.equal(await refusal(dataDir), 'it opened')
  })

  it('a directory that is not there is refused', async (context) => {
    const problem = await refusal(join(folder(context), 'missing'))
    assert.match(problem, /cannot be used/)
  })

  it('after a clean stop nothing is checked, after any other the store is', async (context) => {
    const dataDir = folder(context)
    const first = await open(dataDir)
    assert.equal(first.recovered.uncleanStop, false)
    assert(existsSync(join(dataDir, 'belfry.open')))
    await first.store.close()
    assert(!existsSync(join(dataDir, 'belfry.open')))
    assert(!existsSync(join(dataDir, 'belfry.sqlite-wal')), 'the log is folded into the file')
    writeFileSync(join(dataDir, 'belfry.open'), '')
    const second = await open(dataDir)
    assert.equal(second.recovered.uncleanStop, true)
    await second.store.close()
    const third = await open(dataDir)
    assert.equal(third.recovered.uncleanStop, false)
    await third.store.close()
  })

  it('the death of a process needs no check, that of the machine does', async (context) => {
    const dataDir = folder(context)
    const marker = join(dataDir, 'belfry.open')
    const first = await open(dataDir)
    const left = readFileSync(marker)
    await first.store.close()
    // State that a killed process leaves.
    writeFileSync(marker, left)
    const second = await open(dataDir)
    assert.deepEqual(second.recovered, {uncleanStop: true, checked: bootId() === ''})
    await second.store.close()
    writeFileSync(marker, '00000000-0000-4000-8000-000000000000')
    const third = await open(dataDir)
    assert.deepEqual(third.recovered, {uncleanStop: true, checked: true})
    await third.store.close()
  })

  it('a check that has not passed is repeated after the death of the process', async (context) => {
    const dataDir = folder(context)
    const marker = join(dataDir, 'belfry.open')
    const {store} = await open(dataDir)
    await store.close()
    breakStore(dataDir)
    writeFileSync(marker, 'an earlier boot')
    assert.match(await refusal(dataDir), /is damaged|malformed/)
    assert.equal(readFileSync(marker, 'utf8'), '', 'the next start checks the store again')
    assert.match(await refusal(dataDir), /is damaged|malformed/)
  })
})

/** Damages an index. */
function breakStore(dataDir: string): void {
  const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'), {defensive: false})
  database.exec(`PRAGMA writable_schema = ON;
    UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'jobs')
    WHERE name = 'jobs_due'`)
  database.close()
}

describe('opening a directory again', () => {
  it('keeps all rows and drops the lease', async (context) => {
    const dataDir = folder(context)
    const before = await scene(dataDir)
    await before.submit('a')
    const group = await before.complete('a', 'succeeded', {output: 'kept'})
    const job = await before.job('a')
    const {clusterId, incarnation} = await before.store.info()
    await before.store.close()

    const {store} = await open(dataDir)
    assert.deepEqual(await store.job('a'), job)
    const key = {group, node: 'node-1', attempt: 1}
    assert.equal(textOf((await store.execution('a', key, 100))!.output), 'kept')
    const facts = await store.info()
    assert.deepEqual([facts.clusterId, facts.incarnation], [clusterId, incarnation])
    assert.deepEqual(facts.durability, {journal_mode: 'wal', synchronous: 'full'})
    assert.equal(await store.leader(), null)
    const lease = await store.acquireLease({holder: 'new', nodeId: 'n1', ttlMs: 6_000})
    assert(lease !== null && lease.term > before.term)
    await store.close()
  })

  it('a store of a newer version is refused and left as it is', async (context) => {
    const dataDir = folder(context)
    await (await open(dataDir)).store.close()
    const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
    database.exec('PRAGMA user_version = 99')
    assert.match(await refusal(dataDir), /was written by a newer Belfry \(schema 99/)
    database.exec(`PRAGMA user_version = ${SCHEMA_VERSION}`)
    database.close()
    await (await open(dataDir)).store.close()
  })

  it('another program’s file is refused', async (context) => {
    const dataDir = folder(context)
    const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
    database.exec('CREATE TABLE theirs (x)')
    database.close()
    assert.match(await refusal(dataDir), /is not a store of Belfry/)
    rmSync(join(dataDir, 'belfry.sqlite'))
    writeFileSync(join(dataDir, 'belfry.sqlite'), 'no database at all, but long enough to look')
    assert.match(await refusal(dataDir), /cannot be opened/)
  })

  it('damage is found after an unclean stop', async (context) => {
    const dataDir = folder(context)
    const {store} = await open(dataDir)
    await store.close()
    breakStore(dataDir)
    writeFileSync(join(dataDir, 'belfry.open'), '')
    assert.match(await refusal(dataDir), /is damaged|malformed/)
  })
})

/** A closed store with two policies, and garbage in place of the table of policies. */
async function aDamagedStore(context: TestContext): Promise<string> {
  const dataDir = folder(context)
  const {store} = await open(dataDir)
  await store.putPolicy({name: 'a', rules: '1'})
  await store.submit({spec: aSpec('kept'), ...PLAIN_SUBMIT})
  await store.close()
  overwriteRoot(join(dataDir, 'belfry.sqlite'), 'policies')
  return dataDir
}

/** Contents of the database and its log. */
function bytesOf(dataDir: string): string[] {
  return ['belfry.sqlite', 'belfry.sqlite-wal'].map((name) => {
    const path = join(dataDir, name)
    return existsSync(path) ? readFileSync(path, 'base64') : 'none'
  })
}

describe('damage that appears while the store is open', () => {
  for (const [what, call] of [
    ['a read', (store: Store) => store.policies()],
    ['a write', (store: Store) => store.putPolicy({name: 'b', rules: '2'})],
  ] as const) {
    it(`${what} that meets it ends all writing, and is reported once`, async (context) => {
      const dataDir = await aDamagedStore(context)
      const reports: string[] = []
      const onDamage = (sentence: string) => void reports.push(sentence)
      const ports = {clock: new TurnedClock(), random: countingIds()}
      const opened = await openSqliteStore({dataDir, ...ports, onDamage})
      assert(opened.ok)
      const {store} = opened
      openStores.push(store)
      await store.setPaused(true)
      await assert.rejects(call(store), StoreDamaged)
      const before = bytesOf(dataDir)
      await assert.rejects(store.setPaused(false), StoreDamaged)
      await assert.rejects(store.job('kept'), StoreDamaged)
      await assert.rejects(call(store), StoreDamaged)
      await store.close()
      assert.deepEqual(bytesOf(dataDir), before)
      assert.equal(reports.length, 1)
      assert.match(reports[0]!, /^The store is damaged: .*malformed\. Nothing more is written to /)
      assert.match(reports[0]!, /Check it with: sqlite3 .* Restore the newest backup .*--data/)
    })
  }

  it('the next starts are refused until a complete check finds none, and change nothing', async (context) => {
    const dataDir = await aDamagedStore(context)
    const {store} = await open(dataDir)
    await assert.rejects(store.policies(), StoreDamaged)
    await store.close()
    const before = bytesOf(dataDir)
    // Marks the last stop as a clean one.
    rmSync(join(dataDir, 'belfry.open'), {force: true})
    for (let start = 1; start <= 2; start += 1) {
      const problem = await refusal(dataDir)
      assert.match(problem, /is damaged: .*\. Check it with: sqlite3 .* belfry restore-store/)
      assert.deepEqual(bytesOf(dataDir), before)
    }
    for (const name of ['belfry.sqlite', 'belfry.sqlite-wal', 'belfry.sqlite-shm'])
      rmSync(join(dataDir, name), {force: true})
    assert.equal(await refusal(dataDir), 'it opened')
    assert(!existsSync(join(dataDir, 'belfry.damaged')))
  })
})

describe('writes together', () => {
  it('a failing write is rejected without affecting the others of its batch', async (context) => {
    const {store} = await open(folder(context))
    const bad = {name: 'bad', rules: {} as unknown as string}
    const results = await Promise.allSettled([
      store.putPolicy({name: 'a', rules: '1'}),
      store.putPolicy(bad),
      store.putPolicy({name: 'b', rules: '2'}),
    ])
    assert.deepEqual(
      results.map(({status}) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    )
    const policies = await store.policies()
    assert.deepEqual(
      policies.map(({name}) => name),
      ['a', 'b'],
    )
    await store.close()
  })

  it('writes accepted before close are stored', async (context) => {
    const dataDir = folder(context)
    const {store} = await open(dataDir)
    const writes = Array.from({length: 1_000}, (_, index) =>
      store.putPolicy({name: `p${index}`, rules: ''}),
    )
    await Promise.all([...writes, store.close()])
    const again = await open(dataDir)
    assert.equal((await again.store.policies()).length, 1_000)
    await again.store.close()
  })
})

describe('images', () => {
  it('a store restored from an image of a busy one runs no past times', async (context) => {
    const clock = new TurnedClock()
    const source = await scene(folder(context), clock)
    await source.submit('a', {retries: 3})
    await source.submit('manual', {schedule: '@manually'})
    const done = await source.complete('a', 'succeeded', {output: 'kept'})
    const running = await source.run('a')
    await source.claim()
    const waiting = await source.run('a')
    const asked = await source.store.requestRun({name: 'a', forced: true, idempotency: null})
    assert(asked.kind === 'accepted')
    await addRule(source, {when: {missed: {}}})
    const before = await source.job('a')
    const image = join(folder(context), 'image.sqlite')
    await Promise.all([source.store.backup(image), source.store.putPolicy({name: 'p', rules: ''})])
    await assert.rejects(source.store.backup(image), /exists already/)
    const {incarnation, clusterId} = await source.store.info()
    await source.store.close()

    clock.advance(10 * MINUTE + 1)
    const dataDir = folder(context)
    const random = {id: () => 'a new incarnation'}
    assert.deepEqual(restoreStore(image, dataDir, {clock, random}), {ok: true})
    const {store, recovered} = await open(dataDir, clock)
    assert.equal(recovered.uncleanStop, false)
    const facts = await store.info()
    assert.notEqual(facts.incarnation, incarnation)
    assert.deepEqual([facts.clusterId, facts.incarnation], [clusterId, 'a new incarnation'])

    const page = await store.executions('a', {...ALL_EXECUTIONS, order: 'asc'})
    assert.deepEqual(
      page!.rows.map(({group, status, reason}) => [group, status, reason]),
      [
        [done, 'succeeded', ''],
        [running, 'lost', 'restored'],
        [waiting, 'lost', 'restored'],
      ],
    )
    assert.equal(textOf(page!.rows[0]!.output), 'kept')
    const job = await store.job('a')
    assert(job!.nextAt! > clock.now())
    assert.deepEqual([job!.counters.successCount, job!.counters.errorCount], [1, 2])
    assert.equal((await store.job('manual'))!.nextAt, null)
    const history = await store.launches('a', {...ALL_ROWS, decision: null})
    const rows = history!.rows.map(({decision, reason, open, count}) => [
      decision,
      reason,
      open,
      count,
    ])
    assert.deepEqual(rows, [
      ['missed', 'restored', false, 10],
      ['skipped', 'restored', false, 1],
      ['launched', '', false, 1],
      ['launched', '', false, 1],
      ['launched', '', false, 1],
    ])
    assert.equal(history!.rows[0]!.scheduledAt, before.nextAt)
    const {opened} = await store.evaluateNotices({olderThanMs: 0, sweep: null, seed: 's'})
    assert.deepEqual(opened, [{key: 'rule/a/missed', rule: 'rule'}])
    assert.deepEqual((await store.loadDue({limit: 10})).jobs, [])
    assert.deepEqual(await store.members(), [])
    assert.equal(await store.pausedSinceRestore(), 'restored')
    clock.advance(10 * MINUTE)
    assert.deepEqual((await store.loadDue({limit: 10})).jobs, [], 'whenever it is started')
    for (let after: number | null = 0; after !== null;)
      after = await store.resumeFiring({after, limit: 1})
    assert.equal(await store.pausedSinceRestore(), null)
    const {rows: recorded} = await store.audit({...ALL_AUDIT, action: 'firing.resume'})
    assert.equal(recorded.length, 1)
    assert.ok((await store.job('a'))!.nextAt! > clock.now())
    const later = await store.launches('a', {...ALL_ROWS, decision: 'missed'})
    assert.deepEqual(
      later!.rows.map(({reason, count}) => [reason, count]),
      [['restored', 20]],
    )
    clock.advance(MINUTE)
    assert.equal((await store.loadDue({limit: 10})).jobs.length, 1)
    const next = await store.requestRun({name: 'a', forced: true, idempotency: null})
    assert(next.kind === 'accepted' && next.group > asked.group + 1_000_000)
    await store.close()
  })

  it('a copy of an open store pauses firing, and the store itself does not', async (context) => {
    const dataDir = folder(context)
    const clock = new TurnedClock()
    clock.advance(Date.now() - clock.now())
    const played = await scene(dataDir, clock)
    await played.submit('a')
    const copied = folder(context)
    cpSync(dataDir, copied, {recursive: true})
    const copy = await open(copied, clock)
    const [ofCopy, ofOriginal] = [copy.store, played.store].map((each) => each.pausedSinceRestore())
    await Promise.allSettled([ofCopy, ofOriginal])
    await copy.store.close()
    await played.store.close()
    assert.deepEqual([await ofCopy, await ofOriginal], ['put_back', null])
  })

  it('a store in memory gives images too', async (context) => {
    const clock = new TurnedClock()
    const memory = openMemoryStore({clock, random: countingIds()})
    await memory.putPolicy({name: 'p', rules: 'r'})
    const image = join(folder(context), 'image.sqlite')
    await memory.backup(image)
    assert.equal(statSync(image).mode & 0o777, 0o600)
    await memory.close()
    const dataDir = folder(context)
    assert.deepEqual(restoreStore(image, dataDir, {clock, random: countingIds()}), {ok: true})
    const {store} = await open(dataDir, clock)
    assert.deepEqual(await store.policy('p'), {name: 'p', rules: 'r'})
    await store.close()
  })

  it('restore rejects a file that is not a backup, a newer backup, and a directory in use', async (t) => {
    const options = {clock: new TurnedClock(), random: countingIds()}
    const restore = (image: string, dataDir: string) => {
      const result = restoreStore(image, dataDir, options)
      return result.ok ? 'restored' : result.problem
    }
    const source = folder(t)
    await (await open(source)).store.close()
    const image = join(source, 'belfry.sqlite')
    assert.match(restore(join(source, 'nothing'), folder(t)), /There is no backup/)
    assert.match(restore(image, source), /is not empty/)
    const text = join(folder(t), 'text')
    writeFileSync(text, 'this is not a database, whatever its name may say about it')
    const target = folder(t)
    assert.match(restore(text, target), /cannot be restored/)
    const foreign = new DatabaseSync(join(folder(t), 'foreign'))
    foreign.exec('CREATE TABLE theirs (x)')
    assert.match(restore(foreign.location()!, folder(t)), /is not a store of Belfry/)
    foreign.close()
    const newer = new DatabaseSync(image)
    newer.exec('PRAGMA user_version = 99')
    newer.close()
    assert.match(restore(image, folder(t)), /newer Belfry/)
    mkdirSync(join(target, 'again'))
    assert(!existsSync(join(target, 'belfry.sqlite')))
  })
})

describe('a long read', () => {
  it('lets other work go first and still sees one moment', async (context) => {
    const clock = new TurnedClock()
    const played = await scene(folder(context), clock)
    await Promise.all(Array.from({length: 1_100}, (_, index) => played.submit(`job-${index}`)))
    let breaths = 0
    const {after} = clock
    clock.after = (delayMs, callback) => {
      breaths += 1
      return after.call(clock, delayMs, callback)
    }
    const query = {...ALL_ROWS, metadata: [], text: '', status: null, disabled: null} as const
    const list = played.store.jobs({...query, sort: 'name', order: 'asc'})
    await played.store.deleteJob('job-1099')
    const page = await list
    assert.deepEqual([page.total, page.rows.length, breaths], [1_100, 1_100, 2])
    assert.equal((await played.store.totals()).jobs, 1_099)
    await played.store.close()
  })
})

it('rows of a decision that cannot be written leave nothing', async (context) => {
  const played = await scene(folder(context))
  const job = await played.submit('a')
  played.advance(MINUTE)
  const twice = [aRow(job.nextAt!, 'launched'), aRow(job.nextAt!, 'launched')]
  await assert.rejects(played.decide(job, twice, job.nextAt! + MINUTE), /the store failed/)
  assert.equal((await played.job('a')).nextAt, job.nextAt)
  assert.equal((await played.store.launches('a', {...ALL_ROWS, decision: null}))!.total, 0)
  assert.deepEqual(await played.claim(), [])
  await played.store.close()
})
