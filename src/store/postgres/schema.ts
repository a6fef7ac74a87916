/**
 * Migrates a database to this version's schema. The first server that starts migrates; the others wait at an
 * advisory lock and then find nothing to do. Everything is in a schema of its own beside the other contents
 * of the database. A schema one release ahead is accepted, since migrations only add for one release; a newer
 * one is refused.
 *
 * Servers of the previous release run meanwhile. A statement that changes a table waits for its readers, and
 * all later statements queue behind it. So it waits only briefly, and is retried.
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
      return await migrate(session, statements, request)
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
  {schema, fresh, migrations = MIGRATIONS}: SchemaRequest,
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
  await session.run(`SET LOCAL lock_timeout TO ${TABLE_WAIT_MS}`)
  // Waits for running transactions; new ones wait for the migration. Earlier releases do not take part.
  await session.run(`SELECT pg_advisory_xact_lock(${SCHEMA_LOCK})`)
  for (const migration of migrations) {
    if (migration.version <= version) continue
    const note = `INSERT INTO schema_version (version) VALUES (${migration.version})`
    const statements = [...migration.statements(postgresDialect), note]
    await session.run(statements.join(';\n'), MIGRATION_LIMIT_MS)
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
