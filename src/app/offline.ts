/**
 * `belfry migrate`: the store of a stopped server moves from its data directory into PostgreSQL. Beside the
 * composition roots because it names adapters, and needs nothing else of a server.
 *
 * Crash points: until the commit the database has nothing. The sign that the store has moved stands before
 * the commit, so a crash between the two leaves a store that no server starts on by mistake; moving again
 * tells which it was, and goes on where nothing had moved.
 */
import {existsSync} from 'node:fs'
import {resolve} from 'node:path'
import {systemClock} from '../platform/clock.ts'
import {prepareDataDirectory} from '../platform/data-directory.ts'
import {lockDirectory} from '../platform/directory-lock.ts'
import {systemRandom} from '../platform/random.ts'
import {
  type Compared,
  type ImportResult,
  importStore,
  type TableProgress,
} from '../store/postgres/import.ts'
import {type Address, describeAddress, parseAddress} from '../store/postgres/url.ts'
import {restoreStore} from '../store/sqlite/backup.ts'
import {type ExportSource, openSource} from '../store/sqlite/export.ts'
import {
  migratedMarker,
  migratedTo,
  writeMigratedMarker,
  storeFiles,
  removeMigratedMarker,
  migratedProblem,
} from '../store/sqlite/files.ts'

export interface MigrateRequest {
  /** A data directory, absolute or from the working directory; `sqlite:` may stand before it. */
  readonly from: string
  /** `postgres://…` as for `--store`. */
  readonly to: string
  /** Hears once that the source is looked through (`null`), then of each piece that was written. */
  readonly progress: (progress: TableProgress | null) => void
}

export type Migrated =
  | {
      readonly ok: true
      /** Where it is now, without user and password. */
      readonly store: string
      /** Keeps servers from starting on the old store. */
      readonly sign: string
      readonly compared: readonly Compared[]
    }
  /** `problem` is one sentence; `isUsage` when the request is wrong whatever is there. */
  | {readonly ok: false; readonly problem: string; readonly isUsage: boolean}

export async function migrateStore({from, to, progress}: MigrateRequest): Promise<Migrated> {
  if (/^postgres(ql)?:/.test(from))
    return refuse(
      'A store on PostgreSQL does not move; --from takes the data directory of one on SQLite.',
      true,
    )
  const parsed = parseAddress(to, '--to')
  if (!parsed.ok) return refuse(parsed.problem, true)
  const dataDir = resolve(from.replace(/^sqlite:/, ''))
  if (!existsSync(storeFiles(dataDir).database))
    return refuse(
      `There is no store of Belfry in ${dataDir}; --from takes the data directory of one.`,
    )
  const lock = lockDirectory(dataDir)
  if (!lock.ok) return refuse(lock.isHeld ? stillRuns(dataDir) : lock.problem)
  try {
    return await moveFrom(dataDir, parsed.address, progress)
  } finally {
    lock.release()
  }
}

/** `dataDir` is locked. */
async function moveFrom(
  dataDir: string,
  address: Address,
  progress: MigrateRequest['progress'],
): Promise<Migrated> {
  const store = `${describeAddress(address)}?schema=${address.schema}`
  const earlier = migratedTo(dataDir)
  if (earlier !== null && earlier !== store) return refuse(migratedProblem(dataDir, earlier))
  progress(null)
  const opened = openSource(dataDir)
  if (!opened.ok) return refuse(`The store in ${dataDir} ${opened.problem}.`)
  const {source} = opened
  try {
    const moved = await move(source, {dataDir, address, store, progress})
    if (moved.ok) return {ok: true, store, sign: migratedMarker(dataDir), compared: moved.compared}
    // Nothing has moved: the directory is left as it was found.
    if (!moved.isUnknown && earlier === null) removeMigratedMarker(dataDir)
    return refuse(moved.problem)
  } finally {
    source.close()
  }
}

function move(
  source: ExportSource,
  target: {
    readonly dataDir: string
    readonly address: Address
    readonly store: string
    readonly progress: (progress: TableProgress) => void
  },
): Promise<ImportResult> {
  const {address, dataDir, store, progress} = target
  const world = {clock: systemClock(), random: systemRandom()}
  const beforeCommit = () => writeMigratedMarker(dataDir, store)
  return importStore({address, source, ...world, progress, beforeCommit})
}

function stillRuns(dataDir: string): string {
  return `The data directory ${dataDir} is held by a Belfry server that runs; stop it first.`
}

function refuse(problem: string, isUsage = false): Migrated {
  return {ok: false, problem, isUsage}
}

/*
 * `belfry restore-store`: a data directory made out of an image, while no server runs on it. Beside the
 * composition roots because it names an adapter, and needs nothing else of a server.
 */

/** Paths may be relative to the working directory. `problem` is one sentence. */
export async function restoreBackup(
  image: string,
  directory: string,
): Promise<{readonly ok: true} | {readonly ok: false; readonly problem: string}> {
  const dataDirectory = resolve(directory)
  const prepared = await prepareDataDirectory(dataDirectory)
  if (!prepared.ok) return prepared
  return restoreStore(resolve(image), dataDirectory, {clock: systemClock(), random: systemRandom()})
}
