/**
 * Moving a whole store from SQLite into an empty schema. It stays the same store: its identity, members,
 * claims and planned times come along as they are, so that every node that returns finds what it held. All
 * of it is one transaction, so the schema is empty or has everything, whenever who dies.
 */
import {AssertionFailed} from '../../lib/assert.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import {vacateLease} from '../sql/lease.ts'
import {SCHEMA_VERSION} from '../sql/migrations.ts'
import {all, DEFAULT_LIMITS, each, type Query} from '../sql/query.ts'
import type {ExportSource, SourceTable} from '../sqlite/export.ts'
import {postgresDialect, type Session, type SessionKind} from './connection.ts'
import {ConnectionLost, NoPrimary, textOf} from './errors.ts'
import {Primary} from './primary.ts'
import {prepareSchema} from './schema.ts'
import {Statements} from './statements.ts'
import {type Address, describeAddress} from './url.ts'

const MOVE: SessionKind = {purpose: 'move', limits: 'long', byKeys: false}
/** A piece takes milliseconds; a busy disk is waited for, a server that is gone is not. */
const PIECE_LIMIT_MS = 60_000
/** Reading whole tables, and the commit, of a store of many gigabytes. */
const WHOLE_LIMIT_MS = 600_000
/** Whoever uses the schema now keeps its tables locked for no longer than this, or goes on using it. */
const LOCK_LIMIT_MS = 10_000
/** Every new schema has a row there. */
const NEVER_EMPTY: ReadonlySet<string> = new Set(['meta', 'leader'])

/** Rows of a table that are written, and that there are. */
export interface TableProgress {
  readonly table: string
  readonly done: number
  readonly total: number
}

/** A number of the source and what the target has for it. */
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
  /** Hears of each piece. */
  readonly progress: (progress: TableProgress) => void
  /** Called when all is there and equal. What it throws ends the move, and the target stays empty. */
  readonly beforeCommit: () => void | Promise<void>
}

export type ImportResult =
  | {readonly ok: true; readonly compared: readonly Compared[]}
  | {
      readonly ok: false
      /** One sentence, without anything secret. */
      readonly problem: string
      /** Nobody knows whether the commit took place. Otherwise nothing did. */
      readonly isUnknown: boolean
    }

export async function importStore(request: ImportRequest): Promise<ImportResult> {
  const {address, clock} = request
  const where = `The store ${describeAddress(address)}`
  let session: Session | null = null
  try {
    session = await new Primary({address, clock, applicationName: 'belfry'}).connect(MOVE)
    const statements = new Statements()
    const problem = await prepare(session, statements, request)
    if (problem !== null) return refused(`${where} ${problem}.`)
    const compared = await fill(session, statements, request)
    const differing = compared.filter(({source, target}) => source !== target)
    if (differing.length > 0) return refused(`${where} was left empty: ${described(differing)}.`)
    await request.beforeCommit()
    return await commit(session, where, compared)
  } catch (error) {
    if (error instanceof AssertionFailed) throw error
    const why = error instanceof NoPrimary ? error.reasons : textOf(error)
    return refused(`${where} was not moved into: ${why}.`)
  } finally {
    // Undoes what is not committed.
    await session?.close()
  }
}

function refused(problem: string): ImportResult {
  return {ok: false, problem, isUnknown: false}
}

function described(differing: readonly Compared[]): string {
  return differing
    .map(
      ({what, source, target}) => `${what} are ${source} in the source and ${target} in the target`,
    )
    .join(', ')
}

/** A commit whose answer is lost, or that the standbys have not confirmed, may hold or not. */
async function commit(
  session: Session,
  where: string,
  compared: readonly Compared[],
): Promise<ImportResult> {
  let why = 'its standbys have not confirmed it'
  try {
    if (await session.commit(WHOLE_LIMIT_MS)) return {ok: true, compared}
  } catch (error) {
    if (!(error instanceof ConnectionLost)) throw error
    why = textOf(error)
  }
  const problem = `${where} may or may not have been moved into (${why}); try again, which tells.`
  return {ok: false, problem, isUnknown: true}
}

/**
 * Makes the schema, opens the transaction and keeps everybody else from writing. Looks first: a schema that
 * is refused is not changed.
 */
async function prepare(
  session: Session,
  statements: Statements,
  {address: {schema}, source, random}: ImportRequest,
): Promise<string | null> {
  const found = await whyUnfit(session, schema, source)
  if (found !== null) return found
  // An identity of its own until it is moved into: it must never be taken for the source.
  const fresh = {clusterId: random.id(), incarnation: random.id()}
  const prepared = await prepareSchema(session, statements, {schema, fresh})
  if (!prepared.ok) return prepared.problem
  const tables = source.tables.map(({name}) => name).join(', ')
  await session.run(
    `BEGIN ISOLATION LEVEL READ COMMITTED;
      SET LOCAL lock_timeout TO ${LOCK_LIMIT_MS};
      LOCK TABLE ${tables} IN EXCLUSIVE MODE`,
    PIECE_LIMIT_MS,
  )
  return await whyUnfit(session, schema, source)
}

/** What is wrong with the schema as a target, as a sentence without a subject; `null` also when it is new. */
async function whyUnfit(
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
  const fix = `name another with schema=, or drop the schema ${schema} if nobody needs it`
  return `is not empty, it holds ${holding.join(', ')}; ${fix}`
}

async function tablesInUse(session: Session, tables: readonly SourceTable[]): Promise<string[]> {
  const names = tables.map(({name}) => name).filter((name) => !NEVER_EMPTY.has(name))
  const looks = names.map((name) => `EXISTS (SELECT 1 FROM ${name})::int AS ${name}`)
  const [row] = await session.rows(`SELECT ${looks.join(', ')}`, [], null)
  return names.filter((name) => row?.[name] === 1)
}

/** Writes everything into the open transaction, and compares. */
async function fill(
  session: Session,
  statements: Statements,
  request: ImportRequest,
): Promise<readonly Compared[]> {
  const {source} = request
  session.answerLimitMs = PIECE_LIMIT_MS
  for (const table of NEVER_EMPTY) await session.run(`DELETE FROM ${table}`)
  for (const table of source.tables) {
    await fillTable(session, statements, table, request)
    // The first launches after the move must not be planned for an empty table.
    await session.run(`ANALYZE ${table.name}`, WHOLE_LIMIT_MS)
  }
  // Whoever led the source leads no more.
  const tx = {now: 0, dialect: postgresDialect, limits: DEFAULT_LIMITS}
  await statements.run(session, vacateLease(tx))
  session.answerLimitMs = WHOLE_LIMIT_MS
  const compared: Compared[] = []
  for (const {what, sql, source: expected} of source.tallies)
    compared.push({what, source: expected, target: await statements.run(session, tally(sql))})
  for (const {name, last} of source.lastNumbers) {
    // Not undone with the transaction, which costs an empty schema nothing.
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
  for (const piece of source.pieces(table)) {
    try {
      await statements.run(session, each(insert, piece))
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      throw new Error(`${name}: ${textOf(error)}`, {cause: error})
    }
    done += piece.length
    progress({table: name, done, total})
  }
}
