/**
 * Commands on the files of a stopped server: `belfry migrate` moves a store from SQLite to PostgreSQL, and
 * `belfry restore-store` creates a data directory from a backup. They are here because they name adapters.
 *
 * Crash points of a migration: before the commit the database has nothing. The migrated marker is written
 * before the commit, so a crash between the two leaves a store that no server starts on by mistake. A
 * repeated migration finds out whether the commit happened, and migrates if it did not.
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
  /** Data directory, absolute or relative to the working directory, with or without a `sqlite:` prefix. */
  readonly from: string
  /** `postgres://…` as for `--store`. */
  readonly to: string
  /** Called with `null` when the check of the source begins, then for each batch written. */
  readonly progress: (progress: TableProgress | null) => void
}

export type Migrated =
  | {
      readonly ok: true
      /** Address of the new store, without user and password. */
      readonly store: string
      /** Path of the migrated marker, which keeps servers from starting on the old store. */
      readonly markerFile: string
      readonly compared: readonly Compared[]
    }
  /** `isUsage`: the arguments are invalid, independent of any file or database. */
  | {readonly ok: false; readonly problem: string; readonly isUsage: boolean}

export async function migrateStore({from, to, progress}: MigrateRequest): Promise<Migrated> {
  if (/^postgres(ql)?:/.test(from))
    return refuse(
      '--from must be the data directory of a store on SQLite: a store on PostgreSQL cannot be migrated.',
      true,
    )
  const parsed = parseAddress(to, '--to')
  if (!parsed.ok) return refuse(parsed.problem, true)
  const dataDir = resolve(from.replace(/^sqlite:/, ''))
  if (!existsSync(storeFiles(dataDir).database))
    return refuse(
      `--from must be the data directory of a Belfry store: there is no store in ${dataDir}.`,
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
  const previous = migratedTo(dataDir)
  if (previous !== null && previous !== store) return refuse(migratedProblem(dataDir, previous))
  progress(null)
  const opened = openSource(dataDir)
  if (!opened.ok) return refuse(`The store in ${dataDir} ${opened.problem}.`)
  const {source} = opened
  try {
    const moved = await move(source, {dataDir, address, store, progress})
    if (moved.ok)
      return {ok: true, store, markerFile: migratedMarker(dataDir), compared: moved.compared}
    // Nothing was committed: the directory is left as it was.
    if (!moved.isUnknown && previous === null) removeMigratedMarker(dataDir)
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
  const ports = {clock: systemClock(), random: systemRandom()}
  const beforeCommit = () => writeMigratedMarker(dataDir, store)
  return importStore({address, source, ...ports, progress, beforeCommit})
}

function stillRuns(dataDir: string): string {
  return `The store in ${dataDir} cannot be migrated: a running Belfry server uses it. Stop it first.`
}

function refuse(problem: string, isUsage = false): Migrated {
  return {ok: false, problem, isUsage}
}

/** Creates a data directory from a backup. Paths may be relative to the working directory. */
export async function restoreBackup(
  backup: string,
  directory: string,
): Promise<{readonly ok: true} | {readonly ok: false; readonly problem: string}> {
  const dataDirectory = resolve(directory)
  const prepared = await prepareDataDirectory(dataDirectory)
  if (!prepared.ok) return prepared
  return restoreStore(resolve(backup), dataDirectory, {
    clock: systemClock(),
    random: systemRandom(),
  })
}
