/**
 * The store contract on SQLite: on a file with the writer in its own thread, on a file that the next release
 * has migrated, and in memory.
 */
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import assert from 'node:assert/strict'
import {openMemoryStore, openSqliteStore} from '../../src/store/sqlite/store.ts'
import {exerciseStore} from './exercise-store/exercise-store.ts'
import type {OpenedStore} from './exercise-store/scene.ts'
import {migrateFileToNextRelease} from './next-release.ts'
import {countingIds, TurnedClock} from './adjustable-clock.ts'

async function onFile(prepare: (dataDir: string) => void): Promise<OpenedStore> {
  const dataDir = mkdtempSync(join(tmpdir(), 'belfry-store-'))
  prepare(dataDir)
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
}

exerciseStore('SQLite on a file', () => onFile(() => {}))
exerciseStore('SQLite on a file of the next release', () => onFile(migrateFileToNextRelease))

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
