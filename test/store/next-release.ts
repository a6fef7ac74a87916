/**
 * The schema of a next release. Its migration does everything that a migration may do to every table, so that
 * tests find statements of this release that would fail on it.
 */
import assert from 'node:assert/strict'
import {parseAddress} from '../../src/store/postgres/url.ts'
import {Primary} from '../../src/store/postgres/primary.ts'
import {prepareSchema, type PreparedSchema} from '../../src/store/postgres/schema.ts'
import {Statements} from '../../src/store/postgres/statements.ts'
import {MIGRATIONS, SCHEMA_VERSION, type Migration} from '../../src/store/sql/migrations.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {storeFiles} from '../../src/store/sqlite/files.ts'
import {prepareSchema as prepareFile} from '../../src/store/sqlite/schema.ts'
import {systemClock} from '../../src/platform/clock.ts'

const TABLES = [
  'jobs',
  'definitions',
  'job_metadata',
  'launches',
  'executions',
  'output',
  'output_sizes',
  'node_claims',
  'meta',
  'leader',
  'members',
  'statistics',
  'policies',
  'idempotency',
  'tokens',
  'secrets',
  'firing_pauses',
  'cluster_events',
  'notice_channels',
]

/** A nullable and a defaulted column for every table, a table, and indexes on old and new columns. */
const next: Migration = {
  version: SCHEMA_VERSION + 1,
  statements: ({columns: {integer, text}}) => [
    ...TABLES.flatMap((table) => [
      `ALTER TABLE ${table} ADD COLUMN next_note ${text}`,
      `ALTER TABLE ${table} ADD COLUMN next_weight ${integer} NOT NULL DEFAULT 7`,
      `CREATE INDEX next_${table} ON ${table} (next_weight)`,
    ]),
    `CREATE INDEX next_launches_age ON launches (decided_at)`,
    `CREATE TABLE next_things (id ${integer} PRIMARY KEY, job_id ${integer} NOT NULL)`,
  ],
}

/** The migrations of the next release. */
export const NEXT_MIGRATIONS: readonly Migration[] = [...MIGRATIONS, next]

/** The migrations of the release after the next. */
export const LATER_MIGRATIONS: readonly Migration[] = [
  ...NEXT_MIGRATIONS,
  {version: SCHEMA_VERSION + 2, statements: () => [`DROP TABLE next_things`]},
]

/** The migrations of the next release, with a statement before the commit that ends the process. */
export function endsDuring(deadly: string): readonly Migration[] {
  const {version, statements} = next
  return [...MIGRATIONS, {version, statements: (dialect) => [...statements(dialect), deadly]}]
}

/** Identity of the store if it is new. */
const fresh = {clusterId: 'made by the next release', incarnation: 'first'}

/** Migrates the database like a starting server with these migrations. */
export async function migrate(
  url: string,
  migrations: readonly Migration[],
): Promise<PreparedSchema> {
  const parsed = parseAddress(url)
  assert(parsed.ok)
  const {address} = parsed
  const primary = new Primary({address, clock: systemClock(), applicationName: 'next'})
  const session = await primary.connect({purpose: 'upkeep', limits: 'long', indexScansOnly: false})
  try {
    const {schema} = address
    return await prepareSchema(session, new Statements(), {schema, fresh, migrations})
  } finally {
    await session.close()
  }
}

export async function migrateToNextRelease(url: string): Promise<void> {
  assert.deepEqual(await migrate(url, NEXT_MIGRATIONS), {ok: true})
}

/** Migrates the store of a data directory like a starting server; throws if it is refused. */
export function migrateFile(dataDir: string, migrations: readonly Migration[]): void {
  const connection = new Connection(storeFiles(dataDir).database, {readOnly: false})
  try {
    assert(prepareFile(connection, {fresh, check: false, now: 0, migrations}).ok)
  } finally {
    connection.close()
  }
}

export function migrateFileToNextRelease(dataDir: string): void {
  migrateFile(dataDir, NEXT_MIGRATIONS)
}
