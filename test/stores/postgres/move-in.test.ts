/** Moving a store from SQLite into PostgreSQL: what arrives, what goes on, and what is refused. */
import assert from 'node:assert/strict'
import {createHash} from 'node:crypto'
import {
  closeSync,
  copyFileSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, it, type TestContext} from 'node:test'
import {DatabaseSync} from 'node:sqlite'
import {Client} from 'pg'
import {parseAddress} from '../../../src/stores/postgres/address.ts'
import {moveIn, type MovedIn, type TableProgress} from '../../../src/stores/postgres/move-in.ts'
import {SCHEMA_VERSION} from '../../../src/stores/sql/migrations.ts'
import {restoreStore} from '../../../src/stores/sqlite/image.ts'
import {openSource, type MoveSource} from '../../../src/stores/sqlite/move-out.ts'
import {storeFiles} from '../../../src/stores/sqlite/ownership.ts'
import {openSqliteStore} from '../../../src/stores/sqlite/store.ts'
import {systemClock} from '../../../src/system/system-clock.ts'
import {systemRandom} from '../../../src/system/system-random.ts'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {CutProxy} from '../../support/cut-proxy.ts'
import {aLargeStore} from '../../support/large-store.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {until} from '../../support/waiting.ts'
import {ALL_EXECUTIONS, aRow, aSpec, MINUTE, Scene, textOf} from '../exercise-store/scene.ts'
import {countingIds, TurnedClock} from '../turned-clock.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-move-'))
  context.after(() => rmSync(path, {recursive: true, force: true}))
  return path
}

/** A scene on a store in `dataDir`; closing it leaves the store stopped. */
function sceneIn(dataDir: string, clock = new TurnedClock()): Promise<Scene> {
  return Scene.open(async () => {
    const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
    assert(opened.ok)
    const {store} = opened
    const advance = (ms: number) => clock.advance(ms)
    return {store, startedAt: clock.now(), advance, close: () => store.close()}
  })
}

interface Hearers {
  readonly progress?: (progress: TableProgress) => void
  readonly beforeCommit?: () => void
}

async function move(dataDir: string, url: string, hearers: Hearers = {}): Promise<MovedIn> {
  const opened = openSource(dataDir)
  assert(opened.ok, opened.ok ? '' : opened.problem)
  try {
    return await moveSource(opened.source, url, hearers)
  } finally {
    opened.source.close()
  }
}

function moveSource(
  source: MoveSource,
  url: string,
  {progress = () => {}, beforeCommit = () => {}}: Hearers = {},
): Promise<MovedIn> {
  const parsed = parseAddress(url)
  assert(parsed.ok)
  const world = {clock: systemClock(), random: systemRandom()}
  return moveIn({address: parsed.address, source, ...world, progress, beforeCommit})
}

const schemaOf = (url: string) => url.split('schema=')[1]!

function rowsIn(url: string, table: string): Promise<Record<string, unknown>[]> {
  return postgres.run(`SELECT * FROM ${schemaOf(url)}.${table}`)
}

/** Rows as texts, in an order of their own: engines answer in any order and give numbers differently. */
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

/** Something of everything a store holds. The caller closes it; n1 runs two executions, one waits. */
async function aFullScene(dataDir: string, clock: TurnedClock) {
  const scene = await sceneIn(dataDir, clock)
  await scene.join('n2')
  await scene.submit('a', {metadata: {k: 'v', zero: 'x'}, retries: 1})
  await scene.submit('child', {schedule: '', parentJob: 'a'})
  await scene.complete('a', 'succeeded', {output: 'kept ä'})
  await scene.complete('a', 'failed', {output: '\0\xff', exitCode: 3, head: 'h', foot: 'f'})
  await scene.submit('gone')
  await scene.complete('gone', 'succeeded', {output: 'gone'})
  await scene.store.deleteJob('gone')
  const job = await scene.job('a')
  scene.advance(MINUTE)
  await scene.decide(job, [aRow(job.nextAt!, 'skipped')], job.nextAt! + MINUTE)
  await scene.submit('runs')
  const running = await scene.run('runs', ['n2'])
  const [claimed] = await scene.claim('n2')
  await scene.store.appendOutput([
    {key: claimed!.execution, token: claimed!.token, offset: 0, bytes: Buffer.from('so far ')},
  ])
  await scene.store.putPolicy({name: 'p', rules: 'r'})
  await scene.setStatus('n1', 'n1-life-1', 'failed')
  const idempotency = {scope: 's', key: 'key', fingerprint: 'f'}
  const request = {name: 'child', forced: true, idempotency}
  const asked = await scene.store.requestRun(request)
  await scene.store.setPaused(true)
  await scene.lead('holder-1')
  return {scene, running, claimed: claimed!, request, asked}
}

describe('a store that moves', () => {
  it('arrives row by row, and its file is not changed', async (context) => {
    const dataDir = folder(context)
    const {scene} = await aFullScene(dataDir, new TurnedClock())
    await scene.store.close()
    const file = storeFiles(dataDir).database
    const digest = () => createHash('sha256').update(readFileSync(file)).digest('hex')
    const before = digest()
    const url = freshSchema(postgres.url())
    const heard: TableProgress[] = []
    const moved = await move(dataDir, url, {progress: (progress) => heard.push(progress)})
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
      // Nobody leads what has moved.
      if (name === 'leader') continue
      assert.deepEqual(comparable(await rowsIn(url, name)), comparable(rows), name)
      assert.deepEqual(heard.findLast(({table}) => table === name)?.done, rows.length, name)
    }
    source.close()
    assert.deepEqual(
      names.filter((name) => !filled.has(name)),
      [],
      'the source had something of everything',
    )
    assert(moved.compared.every(({source: from, target}) => from === target))
    assert.deepEqual(
      moved.compared.filter(({what}) => what === 'successes of jobs'),
      [{what: 'successes of jobs', source: 2, target: 2}],
    )
  })

  it('is the same store: what was planned, asked, running and numbered goes on', async (context) => {
    const dataDir = folder(context)
    const clock = new TurnedClock()
    const {scene, running, claimed, request, asked} = await aFullScene(dataDir, clock)
    const {clusterId, incarnation} = await scene.store.facts()
    const jobs = [await scene.job('a'), await scene.job('child')]
    const history = await scene.store.executions('a', ALL_EXECUTIONS)
    const members = await scene.store.members()
    await scene.store.close()
    const url = freshSchema(postgres.url())
    assert((await move(dataDir, url)).ok)

    const {store} = await openAt(url, () => clock.now())
    context.after(() => store.close())
    const facts = await store.facts()
    assert.deepEqual([facts.clusterId, facts.incarnation], [clusterId, incarnation])
    assert.deepEqual([await store.job('a'), await store.job('child')], jobs)
    assert.deepEqual(await store.executions('a', ALL_EXECUTIONS), history)
    assert.deepEqual(await store.members(), members)
    assert.equal(await store.paused(), true)
    await store.setPaused(false)
    assert.equal(await store.agreeTimezone('Europe/Berlin'), 'UTC')
    assert.deepEqual(await store.requestRun(request), asked)
    const lease = await store.acquireLease({holder: 'holder-2', nodeId: 'n1', ttlMs: 6_000})
    assert(lease !== null && lease.term > scene.term, 'nobody has to wait for a lease of the past')
    const next = await store.requestRun({name: 'a', forced: true, idempotency: null})
    assert(asked.kind === 'accepted' && next.kind === 'accepted')
    assert.equal(next.group, asked.group + 1)

    // The agent that runs it comes back in the same life, and goes on where it was.
    const {execution, token} = claimed
    assert.deepEqual(await store.verifyClaims([{key: execution, token}]), [true])
    const bytes = Buffer.from('and on')
    await store.appendOutput([{key: execution, token, offset: 7, bytes}])
    const page = await store.executions('runs', ALL_EXECUTIONS)
    assert.equal(textOf(page!.rows[0]!.output), 'so far and on')
    // A node that comes back in another one knows nothing of it.
    const rescued = await store.rescue({
      term: null,
      nodeId: 'n2',
      exceptIncarnation: 'n2-life-2',
      judged: null,
      reason: 'node_restarted',
      limit: 10,
      dice: 0.5,
    })
    assert.equal(rescued.finished.length, 1)
    const ended = await store.executions('runs', ALL_EXECUTIONS)
    assert.deepEqual(
      ended!.rows.map(({group, status, reason}) => [group, status, reason]),
      [[running, 'lost', 'node_restarted']],
    )
  })

  it('can go back through an image at once, and no number is given twice', async (context) => {
    const dataDir = folder(context)
    const scene = await sceneIn(dataDir)
    await scene.submit('a')
    const last = await scene.run('a')
    await scene.store.close()
    const url = freshSchema(postgres.url())
    assert((await move(dataDir, url)).ok)
    const {store} = await openAt(url)
    const image = join(folder(context), 'image.sqlite')
    await store.backup(image)
    await store.close()
    const back = folder(context)
    const world = {clock: systemClock(), random: systemRandom()}
    assert.deepEqual(restoreStore(image, back, world), {ok: true})
    const restored = await sceneIn(back)
    const job = await restored.submit('b')
    assert.equal(job.id, 2)
    const asked = await restored.store.requestRun({name: 'b', forced: true, idempotency: null})
    assert(asked.kind === 'accepted' && asked.group > last)
    await restored.store.close()
  })

  it('new and without a job gives the first numbers', async (context) => {
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

  it('in many pieces arrives whole', async (context) => {
    const dataDir = folder(context)
    await aLargeStore(dataDir, 5_000, 4_000)
    const url = freshSchema(postgres.url())
    const heard: TableProgress[] = []
    const moved = await move(dataDir, url, {progress: (progress) => heard.push(progress)})
    assert(moved.ok, moved.ok ? '' : moved.problem)
    const done = heard.filter(({table}) => table === 'executions').map((progress) => progress.done)
    assert.deepEqual(done, [0, 2_000, 4_000, 5_000])
    const output = heard.filter(({table}) => table === 'output')
    assert(output.length > 4, 'pieces of output are limited by their bytes')
    assert.deepEqual(output.at(-1), {table: 'output', done: 5_000, total: 5_000})
    const count = moved.compared.find(({what}) => what === 'bytes of output')
    assert.deepEqual(count, {what: 'bytes of output', source: 20_000_000, target: 20_000_000})
  })
})

describe('the source is refused', () => {
  async function stopped(context: TestContext): Promise<string> {
    const dataDir = folder(context)
    await (await sceneIn(dataDir)).store.close()
    return dataDir
  }

  function refusal(dataDir: string): string {
    const opened = openSource(dataDir)
    if (opened.ok) opened.source.close()
    return opened.ok ? 'it opened' : opened.problem
  }

  function change(dataDir: string, sql: string): void {
    const database = new DatabaseSync(storeFiles(dataDir).database)
    database.exec(sql)
    database.close()
  }

  it('when it is something else', (context) => {
    const dataDir = folder(context)
    change(dataDir, 'CREATE TABLE jobs (id INTEGER)')
    assert.equal(refusal(dataDir), 'is not a store of Belfry')
    const noise = folder(context)
    copyFileSync(import.meta.filename, storeFiles(noise).database)
    assert.match(refusal(noise), /^cannot be read: .*not a database/)
  })

  it('when it is of another release', async (context) => {
    const dataDir = await stopped(context)
    assert.equal(refusal(dataDir), 'it opened')
    change(dataDir, `PRAGMA user_version = ${SCHEMA_VERSION + 1}`)
    assert.match(refusal(dataDir), /^was written by a newer Belfry .*; move it with that version$/)
    change(dataDir, `PRAGMA user_version = ${SCHEMA_VERSION + 9}`)
    assert.match(refusal(dataDir), /^was written by a newer Belfry/)
    change(dataDir, `PRAGMA user_version = ${SCHEMA_VERSION - 1}`)
    assert.match(
      refusal(dataDir),
      /^was written by an older Belfry .*; start and stop this version/,
    )
  })

  it('when it is damaged', async (context) => {
    const dataDir = folder(context)
    await aLargeStore(dataDir, 2_000)
    const file = openSync(storeFiles(dataDir).database, 'r+')
    writeSync(file, Buffer.alloc(4096), 0, 4096, 4096 * 100)
    closeSync(file)
    assert.match(refusal(dataDir), /^is damaged: /)
  })
})

describe('the target', () => {
  let dataDir: string
  before(async () => {
    dataDir = mkdtempSync(join(tmpdir(), 'belfry-move-'))
    const scene = await sceneIn(dataDir)
    await scene.submit('a')
    await scene.store.putPolicy({name: 'p', rules: 'r'})
    await scene.store.close()
  })
  after(() => rmSync(dataDir, {recursive: true, force: true}))

  /** Why it is refused, without the name of the database. */
  async function refusal(url: string, hearers: Hearers = {}): Promise<string> {
    const moved = await move(dataDir, url, hearers)
    assert(!moved.ok)
    assert.equal(moved.isUnknown, false)
    return moved.problem.replace(/postgres:\/\/127\.0\.0\.1:\d+/, 'X')
  }

  it('with anything in it is refused and not touched', async () => {
    const url = freshSchema(postgres.url())
    const {store} = await openAt(url)
    const {clusterId} = await store.facts()
    const member = {id: 'n1', name: 'node-1', incarnation: 'life', address: '', port: 1, tags: {}}
    const more = {server: true, runs: true, version: '1', slots: 8}
    await store.join({member: {...member, ...more}}, 1_000)
    const schema = schemaOf(url)
    const fix = `name another with schema=, or drop the schema ${schema} if nobody needs it.`
    const holds = `The store X/postgres is not empty, it holds members, node_claims; ${fix}`
    assert.equal(await refusal(url), holds)
    const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
    await store.submit({spec: aSpec('b'), ...request})
    assert.match(await refusal(url), /it holds definitions, jobs, members, node_claims;/)
    assert.equal((await store.facts()).clusterId, clusterId)
    await store.close()
  })

  it('of a newer release is refused', async () => {
    const url = freshSchema(postgres.url())
    await (await openAt(url)).store.close()
    const version = SCHEMA_VERSION + 1
    await postgres.run(`INSERT INTO ${schemaOf(url)}.schema_version (version) VALUES (${version})`)
    assert.match(
      await refusal(url),
      /^The store X\/postgres was written by a newer Belfry \(schema /,
    )
  })

  it('that cannot be reached, or entered, is told without the password', async () => {
    const urls = [
      'postgres://belfry:secret@127.0.0.1:1/postgres',
      `postgres://belfry:secret@127.0.0.1:${postgres.port}/nothing`,
      `postgres://belfry:secret@127.0.0.1:${postgres.port}/postgres?sslmode=require`,
    ]
    for (const url of urls) {
      const problem = await refusal(url)
      assert.match(problem, /^The store X\/\w+ was not moved into: .+\.$/)
      assert.doesNotMatch(problem, /:secret/)
    }
  })

  it('that somebody else fills meanwhile is left to them', async () => {
    const url = freshSchema(postgres.url())
    await (await openAt(url)).store.close()
    const schema = schemaOf(url)
    const others = new Client({connectionString: postgres.url()})
    await others.connect()
    await others.query('BEGIN')
    await others.query(`INSERT INTO ${schema}.policies VALUES ('theirs', '')`)
    const waiting = refusal(url)
    await until('the move waits for them', async () => {
      const sql = `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'`
      return (await postgres.run(sql)).length > 0
    })
    await others.query('COMMIT')
    await others.end()
    assert.match(await waiting, /is not empty, it holds policies;/)
  })

  it('that does not keep all of it is left empty', async () => {
    const url = freshSchema(postgres.url())
    await (await openAt(url)).store.close()
    const schema = schemaOf(url)
    await postgres.run(`CREATE FUNCTION ${schema}.lose() RETURNS trigger LANGUAGE plpgsql
      AS 'BEGIN RETURN NULL; END';
      CREATE TRIGGER lose BEFORE INSERT ON ${schema}.policies FOR EACH ROW
      EXECUTE FUNCTION ${schema}.lose()`)
    const why = 'was left empty: policies are 1 in the source and 0 in the target.'
    assert.equal(await refusal(url), `The store X/postgres ${why}`)
    assert.deepEqual(await rowsIn(url, 'jobs'), [])
    await postgres.run(`DROP TRIGGER lose ON ${schema}.policies`)
    assert((await move(dataDir, url)).ok)
    assert.match(await refusal(url), /^The store X\/postgres holds this store already\.$/)
  })

  it('that cannot hold a value is told which table has it', async (context) => {
    const odd = folder(context)
    await aLargeStore(odd, 100)
    const database = new DatabaseSync(storeFiles(odd).database)
    database.exec(`UPDATE jobs SET success_count = 0.5 WHERE id = 7`)
    database.close()
    const moved = await move(odd, freshSchema(postgres.url()))
    assert(!moved.ok)
    assert.match(
      moved.problem,
      /was not moved into: jobs: invalid input syntax for type bigint: "0.5"\.$/,
    )
  })

  it('stays empty when the move is given up before the commit', async () => {
    const url = freshSchema(postgres.url())
    const beforeCommit = () => {
      throw new Error('no space left')
    }
    assert.match(await refusal(url, {beforeCommit}), /was not moved into: no space left\.$/)
    const {store} = await openAt(url)
    assert.deepEqual(await store.policies(), [])
    assert.notEqual((await store.facts()).clusterId, 'id-1', 'it is not taken for the source')
    await store.close()
  })

  for (const [part, then] of [
    ['request', 'moves'],
    ['answer', 'holds this store already'],
  ] as const)
    it(`whose commit loses its ${part} is told by the next try`, async () => {
      const proxy = await CutProxy.open(postgres.port)
      const url = freshSchema(postgres.url().replace(`:${postgres.port}`, `:${proxy.port}`))
      const beforeCommit = () => proxy.loseOfCommits(part)
      const moved = await move(dataDir, url, {beforeCommit})
      assert(!moved.ok && moved.isUnknown)
      assert.match(
        moved.problem,
        /may or may not have been moved into \(.+\); try again, which tells/,
      )
      const again = await move(dataDir, url)
      assert.match(again.ok ? 'moves' : again.problem, new RegExp(then))
      await proxy.close()
    })
})
