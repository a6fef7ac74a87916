/**
 * The page of the database schema against the schema itself, on both engines: tables, columns, types and
 * indexes. Meanings are written by hand; the message of a failure has the rows to add and to remove.
 */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {Client} from 'pg'
import {systemClock} from '../../src/platform/clock.ts'
import {systemRandom} from '../../src/platform/random.ts'
import {openPostgresStore} from '../../src/store/postgres/store.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {prepareSchema, tablesOf} from '../../src/store/sqlite/schema.ts'
import {TestPostgres} from '../support/postgres.ts'

const PAGE = join(import.meta.dirname, '../../docs/reference/schema.md')

type Engine = 'SQLite' | 'PostgreSQL'

/** Rows of the page as `table: | cell | …`, without the cells of free text, for one engine. */
function documented(engine: Engine): string[] {
  const rows: string[] = []
  const sections = readFileSync(PAGE, 'utf8').split('\n## ').slice(1)
  for (const section of sections) {
    const [table = '', ...lines] = section.split('\n')
    for (const line of lines.filter((text) => text.startsWith('| `'))) {
      const cells = line.split('|').map((cell) => cell.trim())
      const [, name = '', second = '', third = ''] = cells
      const mark = /\((SQLite|PostgreSQL)\)$/.exec(name)?.[1] ?? engine
      if (mark !== engine) continue
      const bare = name.replace(/ \(.*\)$/, '')
      rows.push(
        second.startsWith('`')
          ? `${table}: | ${bare} | ${second} |`
          : `${table}: | ${bare} | ${second} | ${third} |`,
      )
    }
  }
  return rows
}

function columnRow(table: string, name: string, type: string, isNullable: boolean): string {
  return `${table}: | \`${name}\` | ${type} | ${isNullable ? 'yes' : 'no'} |`
}

function indexRow(table: string, name: string, on: string): string {
  return `${table}: | \`${name}\` | \`${on}\` |`
}

/** The columns and the condition of an index, as both engines can say them. */
function indexed(sql: string): string {
  const shape = /^CREATE (UNIQUE )?INDEX \S+ ON \S+ (?:USING (\w+) )?\(([^)]*)\)(?:\s+WHERE (.*))?$/
  const [, unique, method = 'btree', columns = '', where] = shape.exec(sql) ?? []
  // PostgreSQL stores a list as an array, SQLite as it was written.
  const condition = where
    ?.replaceAll(/::text|[()[\]]/g, '')
    .replace(/(?:= ANY ARRAY| IN )(.*)$/i, ' in ($1)')
    .replaceAll('  ', ' ')
    .toLowerCase()
  const kind = `${unique === undefined ? '' : 'unique '}${method === 'btree' ? '' : `${method} `}`
  return `${kind}${columns}${condition === undefined ? '' : ` where ${condition}`}`
}

interface SqliteColumn {
  readonly name: string
  readonly type: string
  readonly notnull: number
  readonly pk: number
}

function storedInSqlite(): string[] {
  const connection = new Connection(':memory:', {readOnly: false})
  const fresh = {clusterId: 'c', incarnation: 'i'}
  assert(prepareSchema(connection, {fresh, check: false, now: 0}).ok)
  const types: Readonly<Record<string, string>> = {INTEGER: 'integer', TEXT: 'text', BLOB: 'bytes'}
  const rows: string[] = []
  for (const table of tablesOf(connection)) {
    const sql = `SELECT name, type, "notnull", pk FROM pragma_table_info('${table}')`
    const columns = connection.database.prepare(sql).all() as unknown as SqliteColumn[]
    for (const {name, type, notnull, pk} of columns)
      rows.push(columnRow(table, name, types[type] ?? type, notnull === 0 && pk === 0))
    const key = columns.filter(({pk}) => pk > 0).toSorted((a, b) => a.pk - b.pk)
    if (key.length > 0)
      rows.push(indexRow(table, 'primary key', key.map(({name}) => name).join(', ')))
  }
  const indexes = connection.database
    .prepare(`SELECT tbl_name, name, sql FROM sqlite_schema WHERE type = 'index' AND sql <> ''`)
    .all()
  for (const {tbl_name: table, name, sql} of indexes)
    rows.push(indexRow(String(table), String(name), indexed(String(sql).replaceAll(/\s+/g, ' '))))
  connection.close()
  return rows
}

async function storedInPostgres(url: string): Promise<string[]> {
  const opened = await openPostgresStore({
    url: `${url}?schema=page`,
    clock: systemClock(),
    random: systemRandom(),
    connections: {writes: 1, reads: {services: 1, nodes: 1, requests: 1, lists: 1}},
  })
  assert(opened.ok, opened.ok ? '' : opened.problem)
  await opened.store.close()
  const client = new Client({connectionString: url})
  await client.connect()
  const columns = await client.query<Readonly<Record<string, string>>>(
    `SELECT table_name, column_name, data_type || coalesce(' ' || collation_name, '') AS type,
      is_nullable FROM information_schema.columns
      WHERE table_schema = 'page' AND table_name <> 'schema_version'`,
  )
  const indexes = await client.query<Readonly<Record<string, string>>>(
    `SELECT tablename, indexname, indexdef FROM pg_indexes
      WHERE schemaname = 'page' AND tablename <> 'schema_version'`,
  )
  await client.end()
  const types: Readonly<Record<string, string>> = {
    bigint: 'integer',
    'text C': 'text',
    bytea: 'bytes',
  }
  return [
    ...columns.rows.map(({table_name: table, column_name: name, type, is_nullable: nullable}) => {
      return columnRow(table!, name!, types[type!] ?? type!, nullable === 'YES')
    }),
    ...indexes.rows.map(({tablename: table, indexname: name, indexdef}) => {
      const on = indexed(indexdef!)
      return name === `${table}_pkey`
        ? indexRow(table!, 'primary key', on.replace('unique ', ''))
        : indexRow(table!, name!, on)
    }),
  ]
}

function check(engine: Engine, stored: readonly string[]): void {
  const page = documented(engine)
  const missing = stored.filter((row) => !page.includes(row)).toSorted()
  const extra = page.filter((row) => !stored.includes(row)).toSorted()
  const list = (title: string, rows: readonly string[]) => [title, ...rows].join('\n  ')
  const fix = `${list('add, with a meaning:', missing)}\n${list('remove:', extra)}`
  assert(missing.length + extra.length === 0, `docs/reference/schema.md on ${engine}:\n${fix}`)
}

test('the schema page has exactly the tables, columns and indexes of SQLite', () => {
  check('SQLite', storedInSqlite())
})

test('the schema page has exactly the tables, columns and indexes of PostgreSQL', async (context) => {
  const postgres = await TestPostgres.start()
  context.after(() => postgres.close())
  check('PostgreSQL', await storedInPostgres(postgres.url()))
})
