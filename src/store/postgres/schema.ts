/**
 * Migrates a database to this version's schema. The first server that starts migrates; the others wait at an
 * advisory lock and then find nothing to do. Everything is in a schema of its own beside the other contents
 * of the database. A schema one release ahead is accepted, since migrations only add for one release; a newer
 * one is refused.
 *
 * Servers of the previous release run meanwhile. A statement that changes a table waits for its readers, and
 * all later statements queue behind it. So it waits only briefly, and is retried. Indexes of large tables are
 * built after that, while the other servers read and write.
 */
import {type Migration, MIGRATIONS, whyTooNew} from '../sql/migrations.ts'
import {DEFAULT_LIMITS} from '../sql/query.ts'
import {startNewIncarnation} from '../sql/cluster/restore-backup.ts'
import {insertIdentity, type Identity, detectCopiedStore} from '../sql/cluster/settings.ts'
import {postgresDialect, SCHEMA_LOCK, type Session} from './connection.ts'
import {sqlState, textOf} from './errors.ts'
import type {Statements} from './statements.ts'

/** The oldest PostgreSQL release that is still maintained. */
const OLDEST_VERSION = 140_000
/** Timeout of a migration of a large database, and of the wait for another server's migration. */
const MIGRATION_LIMIT_MS = 600_000
/** Longest wait for a table, which others queue behind; shorter than their own timeouts. */
const TABLE_WAIT_MS = 500
/**
 * Pause between two tries, in which the others catch up. All tries together outlast all but a long dump of
 * the database.
 */
const TRY_AGAIN_SECONDS = 2
const TRIES_MAX = 60
/** A server that stalls during a migration blocks every other start; the database ends its session. */
const STANDSTILL_MS = 10_000
/** Lock timeouts and deadlocks: the migration was rolled back and is retried. */
const LOCKED_OUT: ReadonlySet<string> = new Set(['55P03', '40P01'])
const TABLE_LOCKED =
  'cannot be migrated while another session locks one of its tables (a backup?); start again after that'

const NO_RIGHT = '42501'

/** Indexes of tables that may have millions of rows. Only speed depends on them. */
const LARGE_INDEX = /^CREATE INDEX (\w+) ON (?:launches|executions|output) /
/** `pg_try_advisory_lock` is asked again: a server that waits inside a statement would delay the build. */
const BUILD_LOCK = `hashtextextended('belfry builds indexes ' || current_schema(), 0)`

const NOW = 'SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now'

export type PreparedSchema =
  | {readonly ok: true}
  /** A sentence without its subject, e.g. `was written by a newer Belfry …`. */
  | {readonly ok: false; readonly problem: string}

export interface SchemaRequest {
  readonly schema: string
  /** Identity of the store if it is new. */
  readonly fresh: Identity
  readonly migrations?: readonly Migration[]
  /** Called before the schema of a store that has one is changed, or an index is built. */
  readonly onChange?: () => void
}

/** `session` must be without time limits. */
export async function prepareSchema(
  session: Session,
  statements: Statements,
  request: SchemaRequest,
): Promise<PreparedSchema> {
  const {schema} = request
  const problem = (await serverProblem(session)) ?? (await privilegeProblem(session, schema))
  if (problem !== null) return {ok: false, problem}
  for (let tries = 1; ; tries += 1) {
    try {
      const prepared = await migrate(session, statements, request)
      if (prepared.ok) await buildIndexes(session, request)
      return prepared
    } catch (error) {
      if (sqlState(error) === NO_RIGHT) return {ok: false, problem: foreignTables(schema, error)}
      if (!LOCKED_OUT.has(sqlState(error))) throw error
      await session.run('ROLLBACK')
      if (tries === TRIES_MAX) return {ok: false, problem: TABLE_LOCKED}
      await session.run(`SELECT pg_sleep(${TRY_AGAIN_SECONDS})`)
    }
  }
}

/** Attempt in one transaction: a crash during it leaves nothing behind. */
async function migrate(
  session: Session,
  statements: Statements,
  {schema, fresh, migrations = MIGRATIONS, onChange = () => {}}: SchemaRequest,
): Promise<PreparedSchema> {
  await session.run(`BEGIN ISOLATION LEVEL READ COMMITTED;
    SET LOCAL idle_in_transaction_session_timeout TO ${STANDSTILL_MS}`)
  await session.rows(
    'SELECT pg_advisory_xact_lock(hashtextextended($1, 0))',
    [`belfry migrates ${schema}`],
    null,
    MIGRATION_LIMIT_MS,
  )
  const version = await storedVersion(session, schema)
  const problem = whyTooNew(version, migrations)
  if (problem !== null) {
    await session.run('ROLLBACK')
    return {ok: false, problem}
  }
  if (version > 0 && version < migrations.at(-1)!.version) onChange()
  await session.run(`SET LOCAL lock_timeout TO ${TABLE_WAIT_MS}`)
  // Waits for running transactions; new ones wait for the migration. Earlier releases do not take part.
  await session.run(`SELECT pg_advisory_xact_lock(${SCHEMA_LOCK})`)
  for (const migration of migrations) {
    if (migration.version <= version) continue
    const note = `INSERT INTO schema_version (version) VALUES (${migration.version})`
    const all = migration.statements(postgresDialect)
    const some = version === 0 ? all : all.filter((sql) => !LARGE_INDEX.test(sql))
    await session.run([...some, note].join(';\n'), MIGRATION_LIMIT_MS)
  }
  const [clock] = await session.rows(NOW, [], null)
  const tx = {now: Number(clock?.['now']), dialect: postgresDialect, limits: DEFAULT_LIMITS}
  await statements.run(session, insertIdentity(tx, fresh))
  // A dump that is loaded creates its tables again, under new numbers.
  const [table] = await session.rows(
    'SELECT to_regclass($1)::oid::text AS id',
    [`${schema}.jobs`],
    null,
  )
  const id = typeof table?.['id'] === 'string' ? table['id'] : null
  const place = {engine: 'postgres', id, changedAt: null, createdAt: null} as const
  if (await statements.run(session, detectCopiedStore(place))) {
    session.answerLimitMs = MIGRATION_LIMIT_MS
    await statements.run(session, startNewIncarnation(tx, fresh.incarnation, 'put_back'))
  }
  await session.run('COMMIT', MIGRATION_LIMIT_MS)
  return {ok: true}
}

/**
 * Builds the indexes of large tables that are missing, or that a build that was interrupted left invalid. A
 * crash leaves the rest to the next start. Each waits for the transactions that run, such as a backup.
 */
async function buildIndexes(
  session: Session,
  {schema, migrations = MIGRATIONS, onChange = () => {}}: SchemaRequest,
): Promise<void> {
  const wanted = migrations.flatMap(({statements}) =>
    statements(postgresDialect).filter((sql) => LARGE_INDEX.test(sql)),
  )
  if ((await missingIndexes(session, schema, wanted)).length === 0) return
  onChange()
  for (;;) {
    const [row] = await session.rows(
      `SELECT pg_try_advisory_lock(${BUILD_LOCK})::int AS has`,
      [],
      null,
    )
    if (row?.['has'] === 1) break
    await session.run(`SELECT pg_sleep(${TRY_AGAIN_SECONDS})`)
  }
  try {
    for (const {name, sql, isInvalid} of await missingIndexes(session, schema, wanted)) {
      if (isInvalid) await session.run(`DROP INDEX CONCURRENTLY ${name}`, MIGRATION_LIMIT_MS)
      const statement = sql.replace('CREATE INDEX', 'CREATE INDEX CONCURRENTLY')
      await session.run(statement, MIGRATION_LIMIT_MS)
    }
  } finally {
    await session.run(`SELECT pg_advisory_unlock(${BUILD_LOCK})`)
  }
}

async function missingIndexes(
  session: Session,
  schema: string,
  wanted: readonly string[],
): Promise<{readonly name: string; readonly sql: string; readonly isInvalid: boolean}[]> {
  const rows = await session.rows(
    `SELECT c.relname AS name, i.indisvalid::int AS valid FROM pg_index i
      JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1`,
    [schema],
    null,
  )
  const found = new Map(rows.map(({name, valid}) => [String(name), valid === 1]))
  return wanted.flatMap((sql) => {
    const name = LARGE_INDEX.exec(sql)![1]!
    return found.get(name) === true ? [] : [{name, sql, isInvalid: found.has(name)}]
  })
}

/** Checked first: PostgreSQL's error names a missing privilege, but not the statement that grants it. */
async function privilegeProblem(session: Session, schema: string): Promise<string | null> {
  const [row] = await session.rows(
    `SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database,
      count(n.oid)::int AS there, has_database_privilege(current_database(), 'CREATE')::int AS makes,
      bool_and(has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE'))::int AS uses
      FROM pg_namespace n WHERE n.nspname = $1`,
    [schema],
    null,
  )
  const {there, makes, uses} = row ?? {}
  const role = String(row?.['role'])
  const database = String(row?.['database'])
  if (there === 0 && makes === 0)
    return (
      `has no schema "${schema}", and role ${role} may not create it; ` +
      `let an administrator run CREATE SCHEMA "${schema}" AUTHORIZATION ${role} in database ${database}`
    )
  if (there === 1 && uses === 0)
    return (
      `has a schema "${schema}" that role ${role} may not use; ` +
      `let its owner run GRANT USAGE, CREATE ON SCHEMA "${schema}" TO ${role}`
    )
  return null
}

function foreignTables(schema: string, error: unknown): string {
  const fix = 'use the role that owns them, or make this one a member of it'
  return `has tables in schema "${schema}" that another role owns (${textOf(error)}); ${fix}`
}

async function serverProblem(session: Session): Promise<string | null> {
  const [row] = await session.rows(
    `SELECT current_setting('server_version_num')::int AS version,
      current_setting('server_version') AS name, current_setting('server_encoding') AS encoding`,
    [],
    null,
  )
  if (Number(row?.['version']) < OLDEST_VERSION)
    return `is on PostgreSQL ${String(row?.['name'])}; at least 14 is needed`
  if (row?.['encoding'] !== 'UTF8')
    return `is in a database with the encoding ${String(row?.['encoding'])}; UTF8 is needed`
  return null
}

/** The stored version; 0 = none, after creating the schema and its version table. */
async function storedVersion(session: Session, schema: string): Promise<number> {
  const [there] = await session.rows(
    'SELECT 1 AS there FROM pg_namespace WHERE nspname = $1',
    [schema],
    null,
  )
  // Only if missing: an administrator may have created the schema without the privilege to create others.
  if (there === undefined) await session.run(`CREATE SCHEMA "${schema}"`)
  await session.run(`CREATE TABLE IF NOT EXISTS schema_version (
    version bigint PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
  )`)
  const [row] = await session.rows('SELECT max(version) AS version FROM schema_version', [], null)
  return Number(row?.['version'] ?? 0)
}
