/** Stores to import, and the import, for its tests. */
import assert from 'node:assert/strict'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {TestContext} from 'node:test'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {
  importStore,
  type ImportResult,
  type TableProgress,
} from '../../../src/store/postgres/import.ts'
import {openSource, type ExportSource} from '../../../src/store/sqlite/export.ts'
import {openSqliteStore} from '../../../src/store/sqlite/store.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {Scene} from '../exercise-store/scene.ts'
import {countingIds, TurnedClock} from '../adjustable-clock.ts'

/** Removed after the test. */
export function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-move-'))
  context.after(() => rmSync(path, {recursive: true, force: true}))
  return path
}

/** A scene on a store in `dataDir`; closing it leaves the store stopped. */
export function sceneIn(dataDir: string, clock = new TurnedClock()): Promise<Scene> {
  return Scene.open(async () => {
    const opened = await openSqliteStore({dataDir, clock, random: countingIds()})
    assert(opened.ok)
    const {store} = opened
    const advance = (ms: number) => clock.advance(ms)
    return {store, startedAt: clock.now(), advance, close: () => store.close()}
  })
}

export interface Hearers {
  readonly progress?: (progress: TableProgress) => void
  readonly beforeCommit?: () => void
}

export async function move(
  dataDir: string,
  url: string,
  hearers: Hearers = {},
): Promise<ImportResult> {
  const opened = openSource(dataDir)
  assert(opened.ok, opened.ok ? '' : opened.problem)
  try {
    return await moveSource(opened.source, url, hearers)
  } finally {
    opened.source.close()
  }
}

function moveSource(
  source: ExportSource,
  url: string,
  {progress = () => {}, beforeCommit = () => {}}: Hearers = {},
): Promise<ImportResult> {
  const parsed = parseAddress(url)
  assert(parsed.ok)
  const world = {clock: systemClock(), random: systemRandom()}
  return importStore({address: parsed.address, source, ...world, progress, beforeCommit})
}

export const schemaOf = (url: string) => url.split('schema=')[1]!
