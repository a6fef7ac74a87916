/** Imports that fail: refused sources and targets, and commits whose outcome is unknown. */
import assert from 'node:assert/strict'
import {closeSync, copyFileSync, mkdtempSync, openSync, rmSync, writeSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, it, type TestContext} from 'node:test'
import {DatabaseSync} from 'node:sqlite'
import {Client} from 'pg'
import {SCHEMA_VERSION} from '../../../src/store/sql/migrations.ts'
import {openSource} from '../../../src/store/sqlite/export.ts'
import {storeFiles} from '../../../src/store/sqlite/files.ts'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {CutProxy} from '../../support/cut-proxy.ts'
import {aLargeStore} from '../../support/large-store.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {until} from '../../support/waiting.ts'
import {aSpec} from '../exercise-store/scene.ts'
import {folder, move, schemaOf, sceneIn, type Hearers} from './import-fixture.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function rowsIn(url: string, table: string): Promise<Record<string, unknown>[]> {
  return postgres.run(`SELECT * FROM ${schemaOf(url)}.${table}`)
}

describe('a source is refused', () => {
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

  it('if it is not a store of Belfry', (context) => {
    const dataDir = folder(context)
    change(dataDir, 'CREATE TABLE jobs (id INTEGER)')
    assert.equal(refusal(dataDir), 'is not a store of Belfry')
    const noise = folder(context)
    copyFileSync(import.meta.filename, storeFiles(noise).database)
    assert.match(refusal(noise), /^cannot be read: .*not a database/)
  })

  it('if it is of another release', async (context) => {
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

  it('if it is damaged', async (context) => {
    const dataDir = folder(context)
    await aLargeStore(dataDir, 2_000)
    const file = openSync(storeFiles(dataDir).database, 'r+')
    writeSync(file, Buffer.alloc(4096), 0, 4096, 4096 * 100)
    closeSync(file)
    assert.match(refusal(dataDir), /^is damaged: /)
  })
})

describe('a target', () => {
  let dataDir: string
  before(async () => {
    dataDir = mkdtempSync(join(tmpdir(), 'belfry-move-'))
    const scene = await sceneIn(dataDir)
    await scene.submit('a')
    await scene.store.putPolicy({name: 'p', rules: 'r'})
    await scene.store.close()
  })
  after(() => rmSync(dataDir, {recursive: true, force: true}))

  /** The reason of the refusal, without the name of the database. */
  async function refusal(url: string, hearers: Hearers = {}): Promise<string> {
    const moved = await move(dataDir, url, hearers)
    assert(!moved.ok)
    assert.equal(moved.isUnknown, false)
    return moved.problem.replace(/postgres:\/\/127\.0\.0\.1:\d+/, 'X')
  }

  it('that is not empty is refused and not changed', async () => {
    const url = freshSchema(postgres.url())
    const {store} = await openAt(url)
    const {clusterId} = await store.info()
    const member = {id: 'n1', name: 'node-1', incarnation: 'life', address: '', port: 1, tags: {}}
    const more = {server: true, runs: true, version: '1', slots: 8}
    await store.join({member: {...member, ...more}}, 1_000)
    const schema = schemaOf(url)
    const fix = `name another with schema=, or drop the schema ${schema} if it is not needed.`
    const holds = `The store X/postgres is not empty, it holds members, node_claims; ${fix}`
    assert.equal(await refusal(url), holds)
    const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
    await store.submit({spec: aSpec('b'), ...request})
    assert.match(await refusal(url), /it holds audit, definitions, jobs, members, node_claims;/)
    assert.equal((await store.info()).clusterId, clusterId)
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

  it('that cannot be reached or refuses the role is reported without the password', async () => {
    const urls = [
      'postgres://belfry:secret@127.0.0.1:1/postgres',
      `postgres://belfry:secret@127.0.0.1:${postgres.port}/nothing`,
      `postgres://belfry:secret@127.0.0.1:${postgres.port}/postgres?sslmode=require`,
    ]
    for (const url of urls) {
      const problem = await refusal(url)
      assert.match(problem, /^The store X\/\w+ is unchanged, because the import failed: .+\.$/)
      assert.doesNotMatch(problem, /:secret/)
    }
  })

  it('that another process fills meanwhile is refused', async () => {
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

  it('that does not store every row is left empty', async () => {
    const url = freshSchema(postgres.url())
    await (await openAt(url)).store.close()
    const schema = schemaOf(url)
    await postgres.run(`CREATE FUNCTION ${schema}.lose() RETURNS trigger LANGUAGE plpgsql
      AS 'BEGIN RETURN NULL; END';
      CREATE TRIGGER lose BEFORE INSERT ON ${schema}.policies FOR EACH ROW
      EXECUTE FUNCTION ${schema}.lose()`)
    const why =
      'is unchanged, because the copy differs: policies are 1 in the source and 0 in the target.'
    assert.equal(await refusal(url), `The store X/postgres ${why}`)
    assert.deepEqual(await rowsIn(url, 'jobs'), [])
    await postgres.run(`DROP TRIGGER lose ON ${schema}.policies`)
    assert((await move(dataDir, url)).ok)
    assert.match(await refusal(url), /^The store X\/postgres holds this store already\.$/)
  })

  it('that cannot store a value is refused with the name of the table', async (context) => {
    const odd = folder(context)
    await aLargeStore(odd, 100)
    const database = new DatabaseSync(storeFiles(odd).database)
    database.exec(`UPDATE jobs SET success_count = 0.5 WHERE id = 7`)
    database.close()
    const moved = await move(odd, freshSchema(postgres.url()))
    assert(!moved.ok)
    assert.match(
      moved.problem,
      /is unchanged, because the import failed: jobs: invalid input syntax for type bigint: "0.5"\.$/,
    )
  })

  it('stays empty if the import fails before the commit', async () => {
    const url = freshSchema(postgres.url())
    const beforeCommit = () => {
      throw new Error('no space left')
    }
    assert.match(
      await refusal(url, {beforeCommit}),
      /is unchanged, because the import failed: no space left\.$/,
    )
    const {store} = await openAt(url)
    assert.deepEqual(await store.policies(), [])
    assert.notEqual((await store.info()).clusterId, 'id-1', 'it is not taken for the source')
    await store.close()
  })

  for (const [part, then] of [
    ['request', 'moves'],
    ['answer', 'holds this store already'],
  ] as const)
    it(`whose commit loses its ${part} is reported by the next try`, async () => {
      const proxy = await CutProxy.open(postgres.port)
      const url = freshSchema(postgres.url().replace(`:${postgres.port}`, `:${proxy.port}`))
      const beforeCommit = () => proxy.loseOfCommits(part)
      const moved = await move(dataDir, url, {beforeCommit})
      assert(!moved.ok && moved.isUnknown)
      assert.match(
        moved.problem,
        /may or may not contain the import \(.+\)\. Repeat the command to find out\.$/,
      )
      const again = await move(dataDir, url)
      assert.match(again.ok ? 'moves' : again.problem, new RegExp(then))
      await proxy.close()
    })
})
