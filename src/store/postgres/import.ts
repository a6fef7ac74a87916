/**
 * Imports a whole store from SQLite into an empty schema. It stays the same store: identity, members, claims
 * and planned times are copied unchanged, so that a returning node finds its claims. One transaction, so
 * after a crash the schema is either empty or complete.
 */
import {assert, AssertionFailed} from '../../lib/assert.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import {removeHolder} from '../sql/cluster/lease.ts'
import {SCHEMA_VERSION} from '../sql/migrations.ts'
import {all, each, type Query} from '../sql/query.ts'
import type {ExportSource, SourceTable} from '../sqlite/export.ts'
import type {Session, SessionKind} from './connection.ts'
import {ConnectionLost, NoPrimary, textOf} from './errors.ts'
import {Primary} from './primary.ts'
import {prepareSchema} from './schema.ts'
import {Statements} from './statements.ts'
import {type Address, describeAddress} from './url.ts'

/** The purpose is part of the application name that operators see. */
const IMPORT: SessionKind = {purpose: 'move', limits: 'long', indexScansOnly: false}
/** A batch takes milliseconds. Long enough for a busy disk, short enough to detect a lost server. */
const BATCH_LIMIT_MS = 60_000
/** Timeout of reads of whole tables, and of the commit, in a store of many gigabytes. */
const WHOLE_LIMIT_MS = 600_000
/** Wait for the locks of the tables; a longer wait means that the schema is in use. */
const LOCK_LIMIT_MS = 10_000
/** Tables whose rows are no content: every new schema has some, or a server that came and went. */
const NEVER_EMPTY: ReadonlySet<string> = new Set(['meta', 'leader', 'cluster_events'])

/** Rows of a table written so far, and all its rows. */
export interface TableProgress {
  readonly table: string
  readonly done: number
  readonly total: number
}

/** A number in the source and in the target. */
export interface Compared {
  readonly what: string
  readonly source: number
  readonly target: number
}

export interface ImportRequest {
  readonly address: Address
  readonly source: ExportSource
  readonly clock: Pick<Clock, 'after'>
  readonly random: Pick<Random, 'id'>
  /** Called for each batch. */
  readonly progress: (progress: TableProgress) => void
  /** Called after all rows are written and compared. If it throws, the target stays empty. */
  readonly beforeCommit: () => void | Promise<void>
}

export type ImportResult =
  | {readonly ok: true; readonly compared: readonly Compared[]}
  | {
      readonly ok: false
      /** Sentence without secrets. */
      readonly problem: string
      /** True if the outcome of the commit is unknown. Otherwise nothing was written. */
      readonly isUnknown: boolean
    }

export async function importStore(request: ImportRequest): Promise<ImportResult> {
  const {address, clock} = request
  const where = `The store ${describeAddress(address)}`
  let session: Session | null = null
  try {
    session = await new Primary({address, clock, applicationName: 'belfry'}).connect(IMPORT)
    const statements = new Statements()
    const problem = await prepare(session, statements, request)
    if (problem !== null) return refused(`${where} ${problem}.`)
    const compared = await fill(session, statements, request)
    const differing = compared.filter(({source, target}) => source !== target)
    if (differing.length > 0)
      return refused(
        `${where} is unchanged, because the copy differs: ${describeDifferences(differing)}.`,
      )
    await request.beforeCommit()
    return await commit(session, where, compared)
  } catch (error) {
    if (error instanceof AssertionFailed) throw error
    const why = error instanceof NoPrimary ? error.reasons : textOf(error)
    return refused(`${where} is unchanged, because the import failed: ${why}.`)
  } finally {
    // Rolls back an open transaction.
    await session?.close()
  }
}

function refused(problem: string): ImportResult {
  return {ok: false, problem, isUnknown: false}
}

function describeDifferences(differing: readonly Compared[]): string {
  return differing
    .map(
      ({what, source, target}) => `${what} are ${source} in the source and ${target} in the target`,
    )
    .join(', ')
}

/** The outcome is unknown if the reply is lost, or if the standbys have not confirmed the commit. */
async function commit(
  session: Session,
  where: string,
  compared: readonly Compared[],
): Promise<ImportResult> {
  let why = 'its standbys have not confirmed it'
  try {
    const result = await session.commit(WHOLE_LIMIT_MS)
    assert(result !== 'rolled_back', 'a failed transaction is not committed')
    if (result === 'committed') return {ok: true, compared}
  } catch (error) {
    if (!(error instanceof ConnectionLost)) throw error
    why = textOf(error)
  }
  const problem = `${where} may or may not contain the import (${why}). Repeat the command to find out.`
  return {ok: false, problem, isUnknown: true}
}

/**
 * Creates the schema, opens the transaction and locks the tables against other writers. Checks the schema
 * first, so that a refused one is not changed.
 */
async function prepare(
  session: Session,
  statements: Statements,
  {address: {schema}, source, random}: ImportRequest,
): Promise<string | null> {
  const found = await targetProblem(session, schema, source)
  if (found !== null) return found
  // A random identity until the commit, so that the target is never mistaken for the source.
  const fresh = {clusterId: random.id(), incarnation: random.id()}
  const prepared = await prepareSchema(session, statements, {schema, fresh})
  if (!prepared.ok) return prepared.problem
  const tables = source.tables.map(({name}) => name).join(', ')
  await session.run(
    `BEGIN ISOLATION LEVEL READ COMMITTED;
      SET LOCAL lock_timeout TO ${LOCK_LIMIT_MS};
      LOCK TABLE ${tables} IN EXCLUSIVE MODE`,
    BATCH_LIMIT_MS,
  )
  return await targetProblem(session, schema, source)
}

/** Why the schema cannot be the target, as a sentence without its subject; `null` = it can, or is new. */
async function targetProblem(
  session: Session,
  schema: string,
  {tables, clusterId}: ExportSource,
): Promise<string | null> {
  const sql = `SELECT (to_regclass($1) IS NOT NULL)::int AS there`
  const [known] = await session.rows(sql, [`${schema}.schema_version`], null)
  if (known?.['there'] !== 1) return null
  const [row] = await session.rows('SELECT max(version) AS version FROM schema_version', [], null)
  const version = Number(row?.['version'] ?? 0)
  if (version === 0) return null
  if (version > SCHEMA_VERSION) {
    const versions = `(schema ${version}, this one moves ${SCHEMA_VERSION})`
    return `was written by a newer Belfry ${versions}; move with that version`
  }
  const holding = await tablesInUse(session, tables)
  if (holding.length === 0) return null
  const [identity] = await session.rows(`SELECT value FROM meta WHERE key = 'cluster_id'`, [], null)
  if (identity?.['value'] === clusterId) return 'holds this store already'
  const fix = `name another with schema=, or drop the schema ${schema} if it is not needed`
  return `is not empty, it holds ${holding.join(', ')}; ${fix}`
}

async function tablesInUse(session: Session, tables: readonly SourceTable[]): Promise<string[]> {
  const names = tables.map(({name}) => name).filter((name) => !NEVER_EMPTY.has(name))
  const checks = names.map((name) => `EXISTS (SELECT 1 FROM ${name})::int AS ${name}`)
  const [row] = await session.rows(`SELECT ${checks.join(', ')}`, [], null)
  return names.filter((name) => row?.[name] === 1)
}

/** Tables whose `id` the database counts up. */
const GROWING_KEYS = `SELECT table_name FROM information_schema.columns
  WHERE table_schema = current_schema() AND column_name = 'id' AND is_identity = 'YES'`

/** Writes all rows in the open transaction and compares the numbers of both sides. */
async function fill(
  session: Session,
  statements: Statements,
  request: ImportRequest,
): Promise<readonly Compared[]> {
  const {source} = request
  session.answerLimitMs = BATCH_LIMIT_MS
  for (const table of NEVER_EMPTY) await session.run(`DELETE FROM ${table}`)
  for (const table of source.tables) {
    await fillTable(session, statements, table, request)
    // PostgreSQL would plan the first queries for an empty table if it had no statistics.
    await session.run(`ANALYZE ${table.name}`, WHOLE_LIMIT_MS)
  }
  // The source's leader must not stay leader.
  await statements.run(session, removeHolder())
  session.answerLimitMs = WHOLE_LIMIT_MS
  const compared: Compared[] = []
  for (const {what, sql, source: expected} of source.tallies)
    compared.push({what, source: expected, target: await statements.run(session, tally(sql))})
  const growing = await session.rows(GROWING_KEYS, [], null)
  for (const {table_name: name} of growing) {
    const table = String(name)
    const next = `1 + coalesce(max(id), 0)`
    await session.run(
      `SELECT setval(pg_get_serial_sequence('${table}', 'id'), ${next}, false) FROM ${table}`,
    )
  }
  for (const {name, last} of source.lastNumbers) {
    // A rollback does not undo it, which is harmless for an empty schema.
    const values = last === 0 ? '1, false' : `${last}, true`
    await session.run(`SELECT setval('${name}_numbers', ${values})`)
    const sql = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS tally FROM ${name}_numbers`
    const target = await statements.run(session, tally(sql))
    compared.push({what: `${name} numbers given`, source: last, target})
  }
  return compared
}

function* tally(sql: string): Query<number> {
  const [row] = yield* all<{tally: number}>(sql)
  return row!.tally
}

async function fillTable(
  session: Session,
  statements: Statements,
  table: SourceTable,
  {source, progress}: ImportRequest,
): Promise<void> {
  const {name, columns, rows: total} = table
  const places = columns.map(() => '?').join(', ')
  const insert = `INSERT INTO ${name} (${columns.join(', ')}) VALUES (${places})`
  let done = 0
  progress({table: name, done, total})
  for (const batch of source.batches(table)) {
    try {
      await statements.run(session, each(insert, batch))
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      throw new Error(`${name}: ${textOf(error)}`, {cause: error})
    }
    done += batch.length
    progress({table: name, done, total})
  }
}
