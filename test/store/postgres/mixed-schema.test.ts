/**
 * Servers one release apart on one database: the next release migrates while a server of this one runs and
 * continues. A schema two releases ahead is refused.
 */
import assert from 'node:assert/strict'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, it, type TestContext} from 'node:test'
import {SCHEMA_VERSION} from '../../../src/store/sql/migrations.ts'
import {restoreStore} from '../../../src/store/sqlite/backup.ts'
import {openPostgresStore} from '../../../src/store/postgres/store.ts'
import {openSqliteStore} from '../../../src/store/sqlite/store.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {freshSchema, openAt, withCluster} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {runProgram} from '../../support/server-process.ts'
import {ALL_JOBS, Scene} from '../exercise-store/scene.ts'
import {endsDuring, LATER_MIGRATIONS, migrate, NEXT_MIGRATIONS} from '../next-release.ts'
import {
  closesLeftSpans,
  PREVIOUS_MIGRATIONS,
  previousRows,
  readsPreviousRows,
} from '../previous-release.ts'

const STARTED_AT = Date.UTC(2026, 0, 15, 12)

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-mixed-'))
  context.after(() => rmSync(path, {recursive: true}))
  return path
}

async function versionOf(url: string): Promise<unknown> {
  const schema = url.split('schema=')[1]!
  const [row] = await postgres.run(
    `SELECT max(version)::int AS version FROM ${schema}.schema_version`,
  )
  return row?.['version']
}

async function hasNextColumns(url: string): Promise<boolean> {
  const schema = url.split('schema=')[1]!
  const sql = `SELECT FROM information_schema.columns
    WHERE table_schema = '${schema}' AND column_name LIKE 'next_%note'`
  return (await postgres.run(sql)).length > 0
}

describe('while the next release migrates', () => {
  it('a server of this release keeps working, during and after the migration', async () => {
    await withCluster(postgres, async ({scene, second, url, rows}) => {
      await scene.submit('a')
      await scene.complete('a', 'succeeded')
      const migrating = migrate(url, NEXT_MIGRATIONS)
      let ran = 1
      const isOver = {value: false}
      void migrating.finally(() => (isOver.value = true))
      while (!isOver.value) {
        await scene.complete('a', 'succeeded')
        ran += 1
      }
      assert.deepEqual(await migrating, {ok: true})
      await scene.complete('a', 'failed')
      await scene.submit('a', {owner: 'somebody'})
      assert.equal((await scene.job('a')).counters.successCount, ran)
      assert.equal((await second.info()).schemaVersion, SCHEMA_VERSION + 1)
      const filled = await rows('SELECT DISTINCT next_note, next_weight FROM launches')
      assert.deepEqual(filled, [{next_note: null, next_weight: '7'}])
      const again = await openAt(url)
      assert.equal((await again.store.jobs(ALL_JOBS)).total, 1)
      await again.store.close()
    })
  })

  it('a long read of a table delays only the migration', async () => {
    await withCluster(postgres, async ({scene, url, hold, waiting}) => {
      await scene.submit('a')
      const reader = await hold('LOCK TABLE launches IN ACCESS SHARE MODE')
      const migrating = migrate(url, NEXT_MIGRATIONS)
      await waiting(1)
      // Waits behind the migration, which soon times out.
      await scene.complete('a', 'succeeded')
      assert.equal(await versionOf(url), SCHEMA_VERSION)
      await reader.release()
      assert.deepEqual(await migrating, {ok: true})
      await scene.complete('a', 'succeeded')
    })
  })

  it('and is killed, the next start finds nothing and migrates', async () => {
    const url = freshSchema(postgres.url())
    const {store} = await openAt(url)
    await assert.rejects(migrate(url, endsDuring('SELECT pg_terminate_backend(pg_backend_pid())')))
    assert.deepEqual([await versionOf(url), await hasNextColumns(url)], [SCHEMA_VERSION, false])
    assert.deepEqual(await migrate(url, NEXT_MIGRATIONS), {ok: true})
    assert.deepEqual([await versionOf(url), await hasNextColumns(url)], [SCHEMA_VERSION + 1, true])
    await store.probe()
    await store.close()
  })
})

describe('indexes of large tables', () => {
  it('that a killed server did not finish are built at the next start, beside writes', async () => {
    await withCluster(postgres, async ({scene, url, hold, waiting, rows}) => {
      await scene.submit('a')
      await rows('DROP INDEX launches_root')
      await rows(
        `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'launches_not_run'::regclass`,
      )
      const writer = await hold('LOCK TABLE launches IN ROW EXCLUSIVE MODE')
      const emitted: string[] = []
      const opening = openPostgresStore({
        url,
        clock: systemClock(),
        random: systemRandom(),
        events: {emit: (name) => void emitted.push(name)},
      })
      await waiting(1)
      await scene.complete('a', 'succeeded')
      assert.deepEqual(emitted, ['schema_change_began'])
      await writer.release()
      const opened = await opening
      assert(opened.ok)
      await opened.store.close()
      assert.deepEqual(emitted.slice(0, 2), ['schema_change_began', 'schema_changed'])
      const names = `'launches_root'::regclass, 'launches_not_run'::regclass`
      const found = await rows(`SELECT indisvalid FROM pg_index WHERE indexrelid IN (${names})`)
      assert.deepEqual(found, [{indisvalid: true}, {indisvalid: true}])
    })
  })
})

describe('after the previous release', () => {
  it('a database has rows in every table, which this one reads', async () => {
    const url = freshSchema(postgres.url())
    assert.deepEqual(await migrate(url, PREVIOUS_MIGRATIONS), {ok: true})
    const rows = previousRows('postgres').join(';\n')
    await postgres.run(`SET search_path TO ${url.split('schema=')[1]!};\n${rows}`)
    let now = STARTED_AT
    const {store} = await openAt(url, () => now)
    const advance = (ms: number) => void (now += ms)
    const scene = await Scene.open(async () => {
      return {store, startedAt: STARTED_AT, advance, close: () => store.close()}
    })
    try {
      await readsPreviousRows(scene)
    } finally {
      await store.close()
    }
  })

  it('a server of it enables jobs beside this one, and their spans end', async () => {
    await withCluster(postgres, ({scene, rows}) => closesLeftSpans(scene, rows))
  })
})

describe('starting at once on an empty database', () => {
  for (const servers of [2, 3])
    it(`${servers} servers of this release make one store`, async () => {
      const url = freshSchema(postgres.url())
      const opened = await Promise.all(Array.from({length: servers}, () => openAt(url)))
      const facts = await Promise.all(opened.map(({store}) => store.info()))
      assert.equal(new Set(facts.map(({clusterId}) => clusterId)).size, 1)
      await Promise.all(opened.map(({store}) => store.close()))
    })

  it('servers of this release and the next create one store', async () => {
    for (let round = 0; round < 3; round += 1) {
      const url = freshSchema(postgres.url())
      const [one, prepared, two] = await Promise.all([
        openAt(url),
        migrate(url, NEXT_MIGRATIONS),
        openAt(url),
      ])
      assert.deepEqual(prepared, {ok: true})
      const facts = [await one.store.info(), await two.store.info()]
      assert.deepEqual(
        facts.map(({schemaVersion}) => schemaVersion),
        [SCHEMA_VERSION + 1, SCHEMA_VERSION + 1],
      )
      assert.equal(facts[0]!.clusterId, facts[1]!.clusterId)
      await Promise.all([one.store.close(), two.store.close()])
    }
  })
})

describe('a schema of the release after the next', () => {
  it('is refused with a sentence, and the server exits', async (context) => {
    const url = freshSchema(postgres.url())
    assert.deepEqual(await migrate(url, LATER_MIGRATIONS), {ok: true})
    const args = ['server', '--data', folder(context), '--http', '127.0.0.1:0', '--store', url]
    const server = runProgram(context, args)
    const {code} = await server.exit
    assert.notEqual(code, 0)
    const [known, works, found] = [0, 1, 2].map((ahead) => SCHEMA_VERSION + ahead)
    const range = `(schema ${found}, this one knows ${known} and works on ${works})`
    assert(
      server.stderr().includes(`was written by a newer Belfry ${range}; start a newer version.`),
      server.stderr(),
    )
    assert.equal(await versionOf(url), found)
  })
})

describe('a backup of a store of the next release', () => {
  it('made by this release can be restored by it', async (context) => {
    await withCluster(postgres, async ({scene, second, url}) => {
      await scene.submit('a')
      await scene.complete('a', 'succeeded')
      await migrate(url, NEXT_MIGRATIONS)
      await scene.complete('a', 'succeeded')
      const image = join(folder(context), 'image.sqlite')
      await second.backup(image)
      const dataDir = folder(context)
      const parts = {clock: systemClock(), random: systemRandom()}
      assert.deepEqual(restoreStore(image, dataDir, parts), {ok: true})
      const opened = await openSqliteStore({dataDir, ...parts})
      assert(opened.ok)
      assert.equal((await opened.store.job('a'))!.counters.successCount, 2)
      assert.equal((await opened.store.info()).schemaVersion, SCHEMA_VERSION)
      await opened.store.close()
    })
  })
})
