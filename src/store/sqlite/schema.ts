/**
 * Migrates a SQLite file to this version's schema. Refuses files that are foreign, newer or damaged. Lists
 * the tables and columns of a store from the file itself, so that a copy misses none.
 */
import type {Place} from '../../core/copied-store.ts'
import {statSync} from 'node:fs'
import {vacateLease} from '../sql/cluster/lease.ts'
import {type Migration, MIGRATIONS, whyTooNew} from '../sql/migrations.ts'
import {DEFAULT_LIMITS, type Row, type Sequence} from '../sql/query.ts'
import {startNewIncarnation} from '../sql/cluster/restore-backup.ts'
import {
  insertIdentity,
  type Identity,
  identity,
  MARK,
  MARK_COUNT,
  metaValue,
  detectCopiedStore,
  putMeta,
} from '../sql/cluster/settings.ts'
import {type Connection, sqliteDialect} from './connection.ts'
import type {StoredMark, StoreMark} from './mark.ts'

/** Marks Belfry's files in SQLite's header: "BELF". */
const APPLICATION_ID = 0x42454c46

/** `PRAGMA synchronous` returns a number. */
const SYNCHRONOUS: Readonly<Record<string, string>> = {0: 'off', 1: 'normal', 2: 'full', 3: 'extra'}

export interface SchemaRequest {
  /** Identity of the store if it is new. */
  readonly fresh: Identity
  /** Check the whole file first. */
  readonly check: boolean
  readonly now: number
  /** Mark of a server's store; none = the store is in memory, or no server runs on it yet. */
  readonly mark?: StoreMark
  /** Migrations of another release, for tests. */
  readonly migrations?: readonly Migration[]
  /** Called before the schema of a store that has one is changed. */
  readonly onChange?: () => void
}

export interface EngineInfo {
  /** The stored version, which may be that of the next release. */
  readonly schemaVersion: number
  readonly engineVersion: string
  readonly durability: Readonly<Record<string, string>>
}

export type SchemaResult =
  | {readonly ok: true; readonly info: EngineInfo}
  /** A sentence without its subject, e.g. `is damaged: …`. */
  | {readonly ok: false; readonly problem: string; readonly isDamaged?: boolean}

/**
 * Checks and migrates the file, and ends the lease of the previous process. A store that was put back becomes
 * a store of its own: nothing of its past runs.
 */
export function prepareSchema(
  connection: Connection,
  {migrations = MIGRATIONS, ...request}: SchemaRequest,
): SchemaResult {
  const place = placeOf(connection)
  const problem = foreign(connection, migrations) ?? (request.check ? damage(connection) : null)
  if (problem !== null) return {ok: false, problem}
  const version = versionOf(connection)
  if (version > 0 && version < migrations.at(-1)!.version) request.onChange?.()
  for (const migration of migrations) {
    if (migration.version <= versionOf(connection)) continue
    atomically(connection, () => {
      for (const sql of migration.statements(sqliteDialect)) connection.execute(sql)
      connection.execute(`PRAGMA user_version = ${migration.version}`)
      connection.execute(`PRAGMA application_id = ${APPLICATION_ID}`)
    })
  }
  claim(connection, request, place)
  return {ok: true, info: engineInfo(connection)}
}

/** Makes this process the owner of the store. Throws what writing the file of the mark throws. */
function claim(connection: Connection, {now, fresh, mark}: SchemaRequest, place: Place): void {
  const tx = {now, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
  const start = () => {
    connection.run(insertIdentity(tx, fresh))
    connection.run(vacateLease(tx))
  }
  if (mark === undefined) return atomically(connection, start)
  const isNew = connection.run(identity(tx)).clusterId === ''
  const stored = storedMark(connection)
  const beside = mark.read()
  // An earlier release writes no mark, and no file beside the store.
  const isUnmarked = isNew || (stored.mark === '' && beside === null)
  const hasMark = beside?.isOriginal === true && beside.marks.includes(stored.mark)
  const isOther = !isUnmarked && (!hasMark || mark.isOlder(stored))
  mark.change(isOther ? [] : [stored.mark], now, (next) =>
    atomically(connection, () => {
      start()
      const isMoved = connection.run(detectCopiedStore(place))
      // The place counts only until the store has a mark.
      if (isOther || (stored.mark === '' && isMoved))
        connection.run(startNewIncarnation(tx, fresh.incarnation, 'put_back'))
      connection.run(putMeta(MARK, next))
    }),
  )
  showCount(connection, mark, now)
}

/** Changes the mark of a store that this process owns. Throws if the file or the store takes none. */
export function changeMark(connection: Connection, mark: StoreMark, now: number): void {
  mark.change([storedMark(connection).mark], now, (next) =>
    atomically(connection, () => connection.run(putMeta(MARK, next))),
  )
  showCount(connection, mark, now)
}

/** Counts up in the open transaction. */
export function countUp(connection: Connection): void {
  connection.run(putMeta(MARK_COUNT, String(storedMark(connection).count + 1)))
}

/** Writes the committed count beside the store. */
export function showCount(connection: Connection, mark: StoreMark, now: number): void {
  mark.count(storedMark(connection), now)
}

function storedMark(connection: Connection): StoredMark {
  const mark = connection.run(metaValue(MARK)) ?? ''
  return {mark, count: Number(connection.run(metaValue(MARK_COUNT)) ?? 0)}
}

/**
 * Place for stores of the previous release, which has no mark, and for a return to it. Some file systems
 * give a file a new number at each mount: only a file whose state also changed after its last write is a
 * copy. Read before this process writes.
 */
function placeOf({database}: Connection): Place {
  const path = database.location()
  const found = path === null ? undefined : statSync(path, {throwIfNoEntry: false})
  if (found === undefined) return {engine: 'sqlite', id: null, changedAt: null, createdAt: null}
  const {ino, ctimeMs: changedAt, birthtimeMs} = found
  // 0 = the file system does not know it.
  const createdAt = birthtimeMs <= 0 ? null : birthtimeMs
  return {engine: 'sqlite', id: String(ino), changedAt, createdAt}
}

export function versionOf(connection: Connection): number {
  return Number(connection.pragma('user_version'))
}

/** Why the file is not one this version may open; `null` when it is, or is new. */
export function foreign(connection: Connection, migrations = MIGRATIONS): string | null {
  const application = Number(connection.pragma('application_id'))
  const version = versionOf(connection)
  const isNew = application === 0 && version === 0 && connection.pragma('schema_version') === '0'
  if (!isNew && application !== APPLICATION_ID) return 'is not a store of Belfry'
  return whyTooNew(version, migrations)
}

/** The damage that SQLite finds in the file; `null` = none. `isComplete` also checks the indexes. */
export function damage(connection: Connection, isComplete = false): string | null {
  const found = connection.pragma(isComplete ? 'integrity_check(1)' : 'quick_check(1)')
  return found === 'ok' ? null : `is damaged: ${found.split('\n')[0]}`
}

export function atomically(connection: Connection, work: () => void): void {
  connection.execute('BEGIN IMMEDIATE')
  try {
    work()
    connection.execute('COMMIT')
  } catch (error) {
    if (connection.database.isTransaction) connection.execute('ROLLBACK')
    throw error
  }
}

function engineInfo(connection: Connection): EngineInfo {
  const version = connection.database.prepare('SELECT sqlite_version() AS version').get()
  const synchronous = connection.pragma('synchronous')
  return {
    schemaVersion: versionOf(connection),
    engineVersion: String(version?.['version'] ?? ''),
    durability: {
      journal_mode: connection.pragma('journal_mode'),
      synchronous: SYNCHRONOUS[synchronous] ?? synchronous,
    },
  }
}

export const SEQUENCES: readonly Sequence[] = ['job', 'launch']

/** The tables that both engines have, sorted; without the counters of sequences and SQLite's own tables. */
export function tablesOf(connection: Connection): string[] {
  const sql = `SELECT name FROM sqlite_schema
    WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name`
  const rows = connection.answer({kind: 'all', sql, values: []}) as Row[]
  const counters = new Set(SEQUENCES.map((name) => `${name}_numbers`))
  return rows.map(({name}) => String(name)).filter((name) => !counters.has(name))
}

export function columnsOf(connection: Connection, table: string): string[] {
  const sql = `SELECT name FROM pragma_table_info(?)`
  const rows = connection.answer({kind: 'all', sql, values: [table]}) as Row[]
  return rows.map(({name}) => String(name))
}
