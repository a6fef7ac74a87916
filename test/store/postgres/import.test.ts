/** Importing a store from SQLite into PostgreSQL: the rows, and the work that continues. */
import assert from 'node:assert/strict'
import {createHash} from 'node:crypto'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, describe, it} from 'node:test'
import {DatabaseSync} from 'node:sqlite'
import {type TableProgress} from '../../../src/store/postgres/import.ts'
import {restoreStore} from '../../../src/store/sqlite/backup.ts'
import {storeFiles} from '../../../src/store/sqlite/files.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {aLargeStore} from '../../support/large-store.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {ALL_AUDIT} from '../exercise-store/audit.ts'
import {addRule, evaluate} from '../exercise-store/notices.ts'
import {ALL_EXECUTIONS, aRow, aSpec, MINUTE, textOf} from '../exercise-store/scene.ts'
import {TurnedClock} from '../adjustable-clock.ts'
import {folder, move, schemaOf, sceneIn} from './import-fixture.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function rowsIn(url: string, table: string): Promise<Record<string, unknown>[]> {
  return postgres.run(`SELECT * FROM ${schemaOf(url)}.${table}`)
}

/** Rows as sorted texts: engines return rows in any order, and numbers in different types. */
function comparable(rows: readonly Record<string, unknown>[]): string[] {
  const text = (value: unknown) =>
    value instanceof Uint8Array ? Buffer.from(value).toString('hex') : String(value)
  const line = (row: Record<string, unknown>) =>
    Object.keys(row)
      .toSorted()
      .map((name) => `${name}=${text(row[name])}`)
      .join(' ')
  return rows.map(line).toSorted()
}

/** A store with rows in every table. The caller closes it; n1 runs two executions, one is pending. */
async function aFullScene(dataDir: string, clock: TurnedClock) {
  const scene = await sceneIn(dataDir, clock)
  await scene.join('n2')
  // The rule has an incident and a message of the deleted job, and a fact of the skipped time.
  await addRule(scene, {when: {deleted: {}, skipped: {}}})
  await scene.store.muteNotices({rule: '', jobs: 'x', reason: '', until: {afterMs: MINUTE}})
  await scene.submit('a', {metadata: {k: 'v', zero: 'x'}, retries: 1})
  await scene.submit('child', {schedule: '', parentJob: 'a'})
  await scene.complete('a', 'succeeded', {output: 'kept ä'})
  await scene.complete('a', 'failed', {output: '\0\xff', exitCode: 3, head: 'h', foot: 'f'})
  await scene.submit('gone')
  await scene.complete('gone', 'succeeded', {output: 'gone'})
  await scene.store.deleteJob('gone')
  const job = await scene.job('a')
  await evaluate(scene)
  scene.advance(MINUTE)
  await evaluate(scene)
  await scene.decide(job, [aRow(job.nextAt!, 'skipped')], job.nextAt! + MINUTE)
  await scene.submit('runs')
  const running = await scene.run('runs', ['n2'])
  const [claimed] = await scene.claim('n2')
  await scene.store.appendOutput([
    {key: claimed!.execution, token: claimed!.token, offset: 0, bytes: Buffer.from('so far ')},
  ])
  await scene.store.putPolicy({name: 'p', rules: 'r'})
  const token = {digest: 'd', name: 'ci', kind: 'client', policies: ['p'], expiresAt: null} as const
  await scene.store.createToken({accessor: 'a', isFirst: false, ...token})
  const secret = {name: 's', ciphertext: 'sealed', keyId: 'k'}
  await scene.store.putSecret({...secret, may: {create: true, update: true}})
  await scene.setStatus('n1', 'n1-incarnation-1', 'failed')
  const idempotency = {scope: 's', key: 'key', fingerprint: 'f'}
  const request = {name: 'child', forced: true, idempotency}
  const asked = await scene.store.requestRun(request)
  await scene.store.setPaused(true)
  await scene.store.pauseFiring({jobs: 'other-*', reason: '', until: null})
  await scene.lead('holder-1')
  return {scene, running, claimed: claimed!, request, asked}
}

describe('an imported store', () => {
  it('has every row of the source, whose file is unchanged', async (context) => {
    const dataDir = folder(context)
    const {scene} = await aFullScene(dataDir, new TurnedClock())
    await scene.store.close()
    const file = storeFiles(dataDir).database
    const digest = () => createHash('sha256').update(readFileSync(file)).digest('hex')
    const before = digest()
    const url = freshSchema(postgres.url())
    const reports: TableProgress[] = []
    const moved = await move(dataDir, url, {progress: (progress) => reports.push(progress)})
    assert(moved.ok, moved.ok ? '' : moved.problem)
    assert.equal(digest(), before)
    const source = new DatabaseSync(file, {readOnly: true})
    const tables = source.prepare(`SELECT name FROM sqlite_schema WHERE type = 'table'`).all()
    const names = tables.map(({name}) => String(name)).filter((name) => !name.endsWith('_numbers'))
    assert(names.length >= 14)
    const filled = new Set<string>()
    for (const name of names) {
      const rows = source.prepare(`SELECT * FROM ${name}`).all()
      if (rows.length > 0) filled.add(name)
      // An imported store has no leader.
      if (name === 'leader') continue
      assert.deepEqual(comparable(await rowsIn(url, name)), comparable(rows), name)
      assert.deepEqual(reports.findLast(({table}) => table === name)?.done, rows.length, name)
    }
    source.close()
    assert.deepEqual(
      names.filter((name) => !filled.has(name)),
      [],
      'the source had rows in every table',
    )
    const {store} = await openAt(url)
    const known = (await store.audit(ALL_AUDIT)).total
    await store.setPaused(false)
    const {total, rows} = await store.audit(ALL_AUDIT)
    assert.deepEqual([total, rows[0]!.action], [known + 1, 'submissions.resume'], 'it continues')
    await store.close()
    assert(moved.compared.every(({source: from, target}) => from === target))
    assert.deepEqual(
      moved.compared.filter(({what}) => what === 'successes of jobs'),
      [{what: 'successes of jobs', source: 2, target: 2}],
    )
  })

  it('is the same store: planned, requested and running work continues', async (context) => {
    const dataDir = folder(context)
    const clock = new TurnedClock()
    const {scene, running, claimed, request, asked} = await aFullScene(dataDir, clock)
    const {clusterId, incarnation} = await scene.store.info()
    const jobs = [await scene.job('a'), await scene.job('child')]
    const history = await scene.store.executions('a', ALL_EXECUTIONS)
    const members = await scene.store.members()
    await scene.store.close()
    const url = freshSchema(postgres.url())
    assert((await move(dataDir, url)).ok)

    const {store} = await openAt(url, () => clock.now())
    context.after(() => store.close())
    const facts = await store.info()
    assert.deepEqual([facts.clusterId, facts.incarnation], [clusterId, incarnation])
    assert.deepEqual([await store.job('a'), await store.job('child')], jobs)
    assert.deepEqual(await store.executions('a', ALL_EXECUTIONS), history)
    assert.deepEqual(await store.members(), members)
    assert.equal(await store.submissionsPaused(), true)
    await store.setPaused(false)
    assert.equal(await store.agreeTimezone('Europe/Berlin'), 'UTC')
    assert.deepEqual(await store.requestRun(request), asked)
    const lease = await store.acquireLease({holder: 'holder-2', nodeId: 'n1', ttlMs: 6_000})
    assert(lease !== null && lease.term > scene.term, 'an old lease delays no leader')
    const next = await store.requestRun({name: 'a', forced: true, idempotency: null})
    assert(asked.kind === 'accepted' && next.kind === 'accepted')
    assert(next.group > asked.group)

    // The agent that runs it returns in the same incarnation and continues.
    const {execution, token} = claimed
    assert.deepEqual(await store.verifyClaims([{key: execution, token}]), ['active'])
    const bytes = Buffer.from('and on')
    await store.appendOutput([{key: execution, token, offset: 7, bytes}])
    const page = await store.executions('runs', ALL_EXECUTIONS)
    assert.equal(textOf(page!.rows[0]!.output), 'so far and on')
    // A node that returns in another incarnation does not know it.
    const member = members.find(({id}) => id === 'n2')!
    await store.join({member: {...member, incarnation: 'n2-incarnation-2'}}, 10_000)
    const marked = await store.markLost({
      term: null,
      nodeId: 'n2',
      exceptIncarnation: 'n2-incarnation-2',
      observed: null,
      reason: 'node_restarted',
      limit: 10,
      jitter: 0.5,
    })
    assert.equal(marked.finished.length, 1)
    const ended = await store.executions('runs', ALL_EXECUTIONS)
    assert.deepEqual(
      ended!.rows.map(({group, status, reason}) => [group, status, reason]),
      [[running, 'lost', 'node_restarted']],
    )
  })

  it('can return to SQLite through a backup, and reuses no number', async (context) => {
    const dataDir = folder(context)
    const scene = await sceneIn(dataDir)
    await scene.submit('a')
    const last = await scene.run('a')
    await scene.store.close()
    const url = freshSchema(postgres.url())
    assert((await move(dataDir, url)).ok)
    const {store} = await openAt(url)
    const backup = join(folder(context), 'backup.sqlite')
    await store.backup(backup)
    await store.close()
    const back = folder(context)
    const world = {clock: systemClock(), random: systemRandom()}
    assert.deepEqual(restoreStore(backup, back, world), {ok: true})
    const restored = await sceneIn(back)
    const job = await restored.submit('b')
    assert.equal(job.id, 2)
    const asked = await restored.store.requestRun({name: 'b', forced: true, idempotency: null})
    assert(asked.kind === 'accepted' && asked.group > last)
    await restored.store.close()
  })

  it('without jobs starts with the first numbers', async (context) => {
    const dataDir = folder(context)
    await (await sceneIn(dataDir)).store.close()
    const url = freshSchema(postgres.url())
    assert((await move(dataDir, url)).ok)
    const {store} = await openAt(url)
    const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
    const stored = await store.submit({spec: aSpec('a'), ...request})
    assert(stored.kind === 'stored')
    assert.equal(stored.job.id, 1)
    await store.close()
  })

  it('in many batches is complete', async (context) => {
    const dataDir = folder(context)
    await aLargeStore(dataDir, 5_000, 4_000)
    const url = freshSchema(postgres.url())
    const reports: TableProgress[] = []
    const moved = await move(dataDir, url, {progress: (progress) => reports.push(progress)})
    assert(moved.ok, moved.ok ? '' : moved.problem)
    const done = reports
      .filter(({table}) => table === 'executions')
      .map((progress) => progress.done)
    assert.deepEqual(done, [0, 2_000, 4_000, 5_000])
    const output = reports.filter(({table}) => table === 'output')
    assert(output.length > 4, 'pieces of output are limited by their bytes')
    assert.deepEqual(output.at(-1), {table: 'output', done: 5_000, total: 5_000})
    const count = moved.compared.find(({what}) => what === 'bytes of output')
    assert.deepEqual(count, {what: 'bytes of output', source: 20_000_000, target: 20_000_000})
  })
})
