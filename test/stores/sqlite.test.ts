/** The store contract on SQLite: on a file with the writer in its own thread, and in memory. */
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import assert from 'node:assert/strict'
import {openMemoryStore, openSqliteStore} from '../../src/stores/sqlite/store.ts'
import {exerciseStore} from './exercise-store/exercise-store.ts'
import {countingIds, TurnedClock} from './turned-clock.ts'

exerciseStore('SQLite on a file', async () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'belfry-store-'))
  const clock = new TurnedClock()
  const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
  assert(opened.ok, 'a new store opens')
  return {
    store: opened.store,
    startedAt: clock.now(),
    advance: (ms) => clock.advance(ms),
    close: async () => {
      await opened.store.close()
      rmSync(dataDir, {recursive: true})
    },
  }
})

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
