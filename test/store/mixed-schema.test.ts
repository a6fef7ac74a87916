/**
 * A store on a file that the next release has migrated: this release may open it, an older one may not, and a
 * migration is atomic.
 */
import assert from 'node:assert/strict'
import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {describe, it, type TestContext} from 'node:test'
import {RULE_DEFAULTS} from '../../src/core/notice-rule.ts'
import type {Events} from '../../src/ports/events.ts'
import {MIGRATIONS, SCHEMA_VERSION} from '../../src/store/sql/migrations.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'
import {restoreStore} from '../../src/store/sqlite/backup.ts'
import {openSqliteStore} from '../../src/store/sqlite/store.ts'
import {beatAs} from '../support/single-calls.ts'
import {runProgram} from '../support/server-process.ts'
import {Scene} from './exercise-store/scene.ts'
import {
  endsDuring,
  LATER_MIGRATIONS,
  migrateFile,
  migrateFileToNextRelease,
  NEXT_MIGRATIONS,
} from './next-release.ts'
import {countingIds, TurnedClock} from './adjustable-clock.ts'
import {
  closesLeftSpans,
  PREVIOUS_MIGRATIONS,
  previousRows,
  readsPreviousRows,
} from './previous-release.ts'

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-mixed-'))
  context.after(() => rmSync(path, {recursive: true, force: true}))
  return path
}

/** Closed after the test at the latest. */
function sceneOn(context: TestContext, dataDir: string, emitted: string[] = []): Promise<Scene> {
  return Scene.open(async () => {
    const clock = new TurnedClock()
    const events: Pick<Events, 'emit'> = {emit: (name) => void emitted.push(name)}
    const opened = await openSqliteStore({dataDir, clock, random: countingIds(), events})
    assert(opened.ok, opened.ok ? '' : opened.problem)
    const {store} = opened
    context.after(() => store.close())
    const advance = (ms: number) => clock.advance(ms)
    return {store, startedAt: clock.now(), advance, close: () => store.close()}
  })
}

/** The version of the schema, and whether it has anything of the next release. */
function found(dataDir: string): [version: unknown, hasNext: boolean] {
  const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
  const version = database.prepare('PRAGMA user_version').get()?.['user_version']
  const columns = `SELECT name FROM pragma_table_info('launches') WHERE name LIKE 'next_%'`
  const hasNext = database.prepare(columns).all().length > 0
  database.close()
  return [version, hasNext]
}

describe('a store on a file', () => {
  it('refuses rules of notices while a server of the previous release is a member', async (context) => {
    const dataDir = folder(context)
    const author = {name: 'ops', kind: 'management', policies: []} as const
    const definition = {...RULE_DEFAULTS, name: 'rule', to: ['mail'], when: {failed: {}}}
    const first = await sceneOn(context, dataDir)
    await first.join('n2')
    const config = {url: 'https://example.org'}
    const channel = {name: 'mail', kind: 'webhook', config, enabled: true}
    await first.store.putChannel({channel, author, secret: null})
    assert.equal((await first.store.putRule({definition, author})).kind, 'stored')
    await first.store.close()
    // The previous release joins with another incarnation, and does not know the column.
    const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
    database.exec(`UPDATE members SET incarnation = 'previous' WHERE name = 'node-2'`)
    database.close()
    const scene = await sceneOn(context, dataDir)
    const refused = await scene.store.putRule({definition, author})
    assert.deepEqual(refused, {kind: 'not_ready', server: 'node-2'})
    assert.equal(
      await beatAs(scene.store, {nodeId: 'n2', incarnation: 'previous', status: 'left'}),
      'ok',
    )
    assert.equal((await scene.store.putRule({definition, author})).kind, 'stored')
    await scene.join('n2', 'n2-incarnation-2')
    assert.equal((await scene.store.putRule({definition, author})).kind, 'stored')
  })

  it('that the next release migrated can be used by this one, and so can its backups', async (context) => {
    const dataDir = folder(context)
    const before = await sceneOn(context, dataDir)
    await before.submit('a')
    await before.complete('a', 'succeeded')
    await before.store.close()
    migrateFileToNextRelease(dataDir)

    const scene = await sceneOn(context, dataDir)
    await scene.join('n2')
    await scene.run('a', ['n2'])
    await scene.end(await scene.claimOne('n2'), 'succeeded')
    assert.equal((await scene.job('a')).counters.successCount, 2)
    assert.equal((await scene.store.info()).schemaVersion, SCHEMA_VERSION + 1)
    const image = join(folder(context), 'image.sqlite')
    await scene.store.backup(image)
    await scene.store.close()

    const restoredDir = folder(context)
    const parts = {clock: new TurnedClock(), random: countingIds()}
    assert.deepEqual(restoreStore(image, restoredDir, parts), {ok: true})
    assert.deepEqual(found(restoredDir), [SCHEMA_VERSION + 1, true])
    const restored = await sceneOn(context, restoredDir)
    assert.equal((await restored.job('a')).counters.successCount, 2)
    await restored.store.close()
    // The next release finds nothing to do.
    migrateFileToNextRelease(restoredDir)
  })

  it('of the previous release has deadlines of ended drains, which stop nothing', async (context) => {
    const dataDir = folder(context)
    migrateFile(dataDir, MIGRATIONS.slice(0, 4))
    const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
    database.exec(`INSERT INTO members (id, name, incarnation, address, port, tags, server, runs, version,
      slots, status, started_at, heartbeat_at, drain_until)
      VALUES ('n2', 'node-2', 'n2-incarnation-1', '', 0, '{}', 0, 1, '1', 8, 'left', 1, 1, 1)`)
    database.close()
    const scene = await sceneOn(context, dataDir)
    await scene.join('n2')
    await scene.submit('a')
    await scene.run('a', ['n2'])
    const claimed = await scene.claimOne('n2')
    const member = await scene.store.setScheduling({nodeId: 'n2', change: {kind: 'cordon'}})
    assert.equal(member?.drainUntil, null)
    assert.deepEqual(await scene.store.cancelled('n2'), [])
    assert.equal((await scene.end(claimed, 'succeeded')).kind, 'finished')
  })

  it('of the previous release has rows in every table, which this one reads', async (context) => {
    const dataDir = folder(context)
    migrateFile(dataDir, PREVIOUS_MIGRATIONS)
    const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
    for (const sql of previousRows('sqlite')) database.exec(sql)
    database.close()
    const emitted: string[] = []
    const scene = await sceneOn(context, dataDir, emitted)
    assert.deepEqual(emitted.slice(0, 2), ['schema_change_began', 'schema_changed'])
    await readsPreviousRows(scene)
  })

  it('in which the previous release enabled jobs has no spans without an end', async (context) => {
    const dataDir = folder(context)
    const emitted: string[] = []
    const scene = await sceneOn(context, dataDir, emitted)
    assert(!emitted.includes('schema_change_began'), 'a new store has no schema to change')
    const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
    context.after(() => database.close())
    await closesLeftSpans(scene, (sql) => database.exec(sql))
  })

  it('of the release after the next is refused with a sentence, and the server exits', async (context) => {
    const dataDir = folder(context)
    migrateFile(dataDir, LATER_MIGRATIONS)
    const server = runProgram(context, ['server', '--data', dataDir, '--http', '127.0.0.1:0'])
    assert.notEqual((await server.exit).code, 0)
    const [known, works, newest] = [0, 1, 2].map((ahead) => SCHEMA_VERSION + ahead)
    const range = `(schema ${newest}, this one knows ${known} and works on ${works})`
    assert(
      server.stderr().includes(`was written by a newer Belfry ${range}; start a newer version.`),
      server.stderr(),
    )
    assert.deepEqual(found(dataDir), [newest, true])
    const parts = {clock: new TurnedClock(), random: countingIds()}
    const image = join(dataDir, 'belfry.sqlite')
    const restored = restoreStore(image, folder(context), parts)
    assert(!restored.ok)
    assert.match(restored.problem, /was written by a newer Belfry/)
  })

  it('is unchanged if a migration fails at its end', (context) => {
    const dataDir = folder(context)
    migrateFile(dataDir, MIGRATIONS)
    assert.throws(() => migrateFile(dataDir, endsDuring('SELECT no_such_function()')))
    assert.deepEqual(found(dataDir), [SCHEMA_VERSION, false])
    migrateFile(dataDir, NEXT_MIGRATIONS)
    assert.deepEqual(found(dataDir), [SCHEMA_VERSION + 1, true])
  })

  it('is unchanged if the process is killed during a migration', async (context) => {
    const dataDir = folder(context)
    migrateFile(dataDir, MIGRATIONS)
    const victim = spawn(process.execPath, [
      join(import.meta.dirname, 'killed-migration.ts'),
      dataDir,
    ])
    const [, signal] = (await once(victim, 'exit')) as [number | null, string | null]
    assert.equal(signal, 'SIGKILL')
    assert.deepEqual(found(dataDir), [SCHEMA_VERSION, false])
    migrateFile(dataDir, NEXT_MIGRATIONS)
    assert.deepEqual(found(dataDir), [SCHEMA_VERSION + 1, true])
  })
})

describe('the schema of the next release works for this one', () => {
  const folders = ['sql', 'sqlite', 'postgres'].map((name) => {
    return join(import.meta.dirname, '..', '..', 'src', 'store', name)
  })
  const sources = folders.flatMap((path) => {
    const files = readdirSync(path, {recursive: true, encoding: 'utf8'})
    return files.filter((file) => file.endsWith('.ts')).map((file) => join(path, file))
  })

  it('because statements name their columns', () => {
    for (const source of sources) {
      const text = readFileSync(source, 'utf8')
      // An outer statement returns the columns that the inner one names.
      const statements = text.replaceAll('SELECT * FROM (${text})', '')
      assert.doesNotMatch(statements, /SELECT\s+(\w+\.)?\*/, source)
      assert.doesNotMatch(text, /INSERT INTO [\w${}]+\s+(?![\s(])/, source)
    }
  })

  it('because a migration after the first only adds', () => {
    const adding =
      /^(CREATE TABLE |CREATE INDEX |ALTER TABLE \w+ ADD COLUMN \w+ [^,]*$|INSERT INTO |CREATE SEQUENCE )/
    for (const {version, statements} of MIGRATIONS.slice(1)) {
      const all = statements(sqliteDialect)
      // An older server writes nothing into a table that it does not know.
      const isOfNewTable = (sql: string) => {
        const table = /^CREATE UNIQUE INDEX \w+ ON (\w+) /.exec(sql)?.[1]
        return (
          table !== undefined && all.some((other) => other.startsWith(`CREATE TABLE ${table} `))
        )
      }
      for (const sql of all.filter((statement) => !isOfNewTable(statement)))
        assert.match(sql, adding, `migration ${version}: an older server may not work on this`)
    }
  })

  it('because a release has one migration, with consecutive numbers', () => {
    const versions = MIGRATIONS.map(({version}) => version)
    assert.deepEqual(
      versions,
      versions.map((_, index) => index + 1),
    )
  })
})
