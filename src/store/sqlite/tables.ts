/** What tables and columns a store's file has, read from the file: whoever copies a store forgets none. */
import type {Row} from '../sql/query.ts'
import type {Sequence} from '../sql/transaction.ts'
import type {Connection} from './connection.ts'

export const SEQUENCES: readonly Sequence[] = ['job', 'launch']

/** Tables both engines have, by name; the counters of sequences and SQLite's own are not among them. */
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
