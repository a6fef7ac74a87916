/**
 * A SQLite store as the source of a migration to PostgreSQL. Refused unless it is undamaged and of this
 * release; read in batches from one snapshot; never written. The caller owns the data directory.
 */
import {SCHEMA_VERSION} from '../sql/migrations.ts'
import type {Row, Sequence, Value, Values} from '../sql/query.ts'
import {Connection} from './connection.ts'
import {failureOf} from './errors.ts'
import {storeFiles} from './files.ts'
import {columnsOf, damage, foreign, SEQUENCES, tablesOf, versionOf} from './schema.ts'

/** Limits of a batch, which is one message to the target: rows, and bytes of texts and output. */
const ROWS_PER_BATCH = 2_000
const BYTES_PER_BATCH = 4 * 1024 * 1024
/** Bytes of a number or an empty text in a message. */
const VALUE_BYTES = 8

export interface SourceTable {
  readonly name: string
  readonly columns: readonly string[]
  readonly rows: number
}

/** A number that must be equal in source and target; `sql` returns it as `tally` on both engines. */
export interface Tally {
  readonly what: string
  readonly sql: string
}

/** Sums, so that more than the number of rows is compared. */
const SUMS: readonly Tally[] = [
  sumOf('jobs', 'success_count', 'successes of jobs'),
  sumOf('jobs', 'error_count', 'errors of jobs'),
  sumOf('statistics', 'success_count', 'successes of days'),
  sumOf('statistics', 'failed_count', 'failures of days'),
  sumOf('output', 'length(bytes)', 'bytes of output'),
]

function sumOf(table: string, value: string, what: string): Tally {
  return {what, sql: `SELECT coalesce(sum(${value}), 0) AS tally FROM ${table}`}
}

export type OpenedSource =
  | {readonly ok: true; readonly source: ExportSource}
  /** A sentence without its subject, e.g. `is damaged: …`. */
  | {readonly ok: false; readonly problem: string}

/** Checks the whole file, which takes as long as reading it. */
export function openSource(dataDir: string): OpenedSource {
  const {database: file} = storeFiles(dataDir)
  let connection: Connection | null = null
  try {
    connection = new Connection(file, {readOnly: true})
    const problem = migrationProblem(connection)
    if (problem === null) return {ok: true, source: new ExportSource(connection)}
    connection.close()
    return {ok: false, problem}
  } catch (error) {
    connection?.close()
    return {ok: false, problem: `cannot be read: ${failureOf(error).message}`}
  }
}

function migrationProblem(connection: Connection): string | null {
  const wrong = foreign(connection)
  if (wrong !== null) return wrong
  const version = versionOf(connection)
  const versions = `(schema ${version}, this one moves ${SCHEMA_VERSION})`
  if (version > SCHEMA_VERSION)
    return `was written by a newer Belfry ${versions}; move it with that version`
  if (version < SCHEMA_VERSION) {
    return `was written by an older Belfry ${versions}; start and stop this version's server on it first`
  }
  return damage(connection)
}

export class ExportSource {
  readonly tables: readonly SourceTable[]
  /** Numbers that must be equal in the target. */
  readonly tallies: readonly (Tally & {readonly source: number})[]
  readonly clusterId: string
  readonly #connection: Connection

  /** Takes a snapshot and counts everything in it. */
  constructor(connection: Connection) {
    this.#connection = connection
    connection.execute('BEGIN')
    const counts = tablesOf(connection).map((name) => {
      return {what: name, sql: `SELECT count(*) AS tally FROM ${name}`}
    })
    this.tallies = [...counts, ...SUMS].map((tally) => ({
      ...tally,
      source: this.#number(tally.sql),
    }))
    this.tables = counts.map(({what: name}, index) => {
      return {name, columns: columnsOf(connection, name), rows: this.tallies[index]!.source}
    })
    const [row] = this.#rows(`SELECT value FROM meta WHERE key = 'cluster_id'`)
    this.clusterId = String(row?.['value'] ?? '')
  }

  /** The last number taken from each sequence; 0 = none. */
  get lastNumbers(): readonly {readonly name: Sequence; readonly last: number}[] {
    return SEQUENCES.map((name) => {
      return {name, last: this.#number(`SELECT last AS tally FROM ${name}_numbers`)}
    })
  }

  /** All rows of a table in batches, values in the order of its columns; memory holds one batch. */
  *batches({name, columns}: SourceTable): Generator<readonly Values[]> {
    const rows = this.#connection.database.prepare(`SELECT ${columns.join(', ')} FROM ${name}`)
    let batch: Values[] = []
    let bytes = 0
    for (const row of rows.iterate()) {
      const values = columns.map((column) => row[column] as Value)
      batch.push(values)
      bytes += values.reduce<number>((sum, value) => sum + sizeOf(value), 0)
      if (batch.length < ROWS_PER_BATCH && bytes < BYTES_PER_BATCH) continue
      yield batch
      batch = []
      bytes = 0
    }
    if (batch.length > 0) yield batch
  }

  close(): void {
    this.#connection.close()
  }

  #number(sql: string): number {
    return Number(this.#rows(sql)[0]?.['tally'] ?? 0)
  }

  #rows(sql: string): Row[] {
    return this.#connection.answer({kind: 'all', sql, values: []}) as Row[]
  }
}

function sizeOf(value: Value): number {
  return (
    VALUE_BYTES + (typeof value === 'object' || typeof value === 'string' ? lengthOf(value) : 0)
  )
}

function lengthOf(value: string | Uint8Array | null): number {
  return value === null ? 0 : value.length
}
