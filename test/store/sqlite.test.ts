/**
 * The store contract on SQLite: on a file with the writer in its own thread, on a file that the next release
 * has migrated, and in memory.
 */
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {storeFiles} from '../../src/store/sqlite/files.ts'
import {openMemoryStore, openSqliteStore} from '../../src/store/sqlite/store.ts'
import {exerciseStore} from './exercise-store/exercise-store.ts'
import {sharedStore, type SharedStore} from './exercise-store/shared-store.ts'
import {migrateFileToNextRelease} from './next-release.ts'
import {countingIds, TurnedClock} from './adjustable-clock.ts'

/** Remembers the rows of a new store; the returned function restores them. */
function janitorOf(connection: Connection): () => void {
  // Tables are emptied in any order. The rows need not survive a power cut.
  connection.execute('PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF')
  const tables = connection.database
    .prepare(`SELECT name FROM sqlite_schema WHERE type = 'table'`)
    .all()
    .map(({name}) => String(name))
  for (const name of tables)
    connection.execute(`CREATE TEMP TABLE new_${name} AS SELECT * FROM main.${name}`)
  const restore = tables.map(
    (name) => `DELETE FROM main.${name}; INSERT INTO main.${name} SELECT * FROM new_${name};`,
  )
  return () => connection.execute(`BEGIN IMMEDIATE; ${restore.join(' ')} COMMIT`)
}

async function onFile(prepare: (dataDir: string) => void): Promise<SharedStore> {
  const dataDir = mkdtempSync(join(tmpdir(), 'belfry-store-'))
  prepare(dataDir)
  const clock = new TurnedClock()
  const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
  assert(opened.ok, 'a new store opens')
  const connection = new Connection(storeFiles(dataDir).database, {readOnly: false})
  const restore = janitorOf(connection)
  return {
    store: opened.store,
    startedAt: clock.now(),
    advance: (ms) => clock.advance(ms),
    empty: async () => {
      restore()
      clock.restart()
    },
    close: async () => {
      connection.close()
      await opened.store.close()
      rmSync(dataDir, {recursive: true})
    },
  }
}

const onNewFile = sharedStore(() => onFile(() => {}))
const onFileOfNextRelease = sharedStore(() => onFile(migrateFileToNextRelease))
exerciseStore('SQLite on a file', onNewFile)
exerciseStore('SQLite on a file of the next release', onFileOfNextRelease, false)

exerciseStore('SQLite in memory', async () => {
  const clock = new TurnedClock()
  const store = openMemoryStore({clock, random: countingIds()})
  return {
    store,
    startedAt: clock.now(),
    advance: (ms) => clock.advance(ms),
    close: () => store.close(),
  }
})

test('a heartbeat on SQLite overtakes other writes that wait', async () => {
  const store = openMemoryStore({
    clock: new TurnedClock(),
    random: countingIds(),
    commitItemsMax: 4,
  })
  const order: string[] = []
  const writes = Array.from({length: 40}, () => store.probe().then(() => order.push('other')))
  const beat = {nodeId: 'n1', incarnation: 'life', status: 'alive'} as const
  await Promise.all([...writes, store.beat([beat]).then(() => order.push('beat'))])
  assert.ok(order.indexOf('beat') < 12, `after ${order.indexOf('beat')} others`)
  await store.close()
})
