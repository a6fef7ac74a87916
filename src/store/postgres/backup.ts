/**
 * An image of a store on PostgreSQL: the same single SQLite file as of a store on SQLite, so that there is
 * one way back. One snapshot of the database, carried over in pieces, so that neither its size nor what is
 * written meanwhile matters.
 */
import {existsSync, rmSync} from 'node:fs'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import type {Row, Value} from '../sql/query.ts'
import {Connection} from '../sqlite/connection.ts'
import {columnsOf, prepareSchema, SEQUENCES, tablesOf} from '../sqlite/schema.ts'
import type {Session} from './connection.ts'
import {textOf} from './errors.ts'

/** A piece of a table holds the process for a few milliseconds, and is this many rows of memory. */
const ROWS_PER_PIECE = 500
/** Each of these may hold a whole stretch of output. */
const OUTPUT_ROWS_PER_PIECE = 50
/** A cold table is read from the disk. */
const PIECE_LIMIT_MS = 60_000

/** Writes an image of what `session`, one without limits of time, sees now. Throws `StoreUnavailable`. */
export async function writeBackup(session: Session, target: string): Promise<void> {
  if (existsSync(target)) throw new StoreUnavailable(`${target} exists already`)
  let image: Connection | null = null
  try {
    image = new Connection(target, {readOnly: false})
    const prepared = prepareSchema(image, {
      fresh: {clusterId: '', incarnation: ''},
      check: false,
      now: 0,
    })
    if (!prepared.ok) throw new Error(`the image ${prepared.problem}`)
    await copyInto(image, session)
    // One file, without a log beside it; this also brings it to the disk.
    image.execute('PRAGMA journal_mode = DELETE')
    image.close()
  } catch (error) {
    image?.close()
    for (const ending of ['', '-wal', '-shm']) rmSync(`${target}${ending}`, {force: true})
    throw new StoreUnavailable(`no image was written: ${textOf(error)}`, {cause: error})
  }
}

async function copyInto(image: Connection, session: Session): Promise<void> {
  await session.run('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
  image.execute('BEGIN IMMEDIATE')
  for (const table of tablesOf(image)) await copyTable(image, session, table)
  // After the tables: a number handed out meanwhile may be left out, but none is handed out again.
  for (const name of SEQUENCES) {
    const [row] = await session.rows(
      `SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM ${name}_numbers`,
      [],
      null,
    )
    const sql = `UPDATE ${name}_numbers SET last = ?`
    image.answer({kind: 'all', sql, values: [row?.['last'] ?? 0]})
  }
  image.execute('COMMIT')
  await session.run('COMMIT')
}

async function copyTable(image: Connection, session: Session, table: string): Promise<void> {
  const columns = columnsOf(image, table)
  const list = columns.join(', ')
  const places = columns.map(() => '?').join(', ')
  const insert = `INSERT INTO ${table} (${list}) VALUES (${places})`
  const piece = table === 'output' ? OUTPUT_ROWS_PER_PIECE : ROWS_PER_PIECE
  image.execute(`DELETE FROM ${table}`)
  await session.run(`DECLARE belfry_image NO SCROLL CURSOR FOR SELECT ${list} FROM ${table}`)
  for (;;) {
    const [result] = await session.run(`FETCH ${piece} FROM belfry_image`, PIECE_LIMIT_MS)
    const found = result?.rows ?? []
    const rows = found.map((row: Row) => columns.map((column): Value => row[column] ?? null))
    image.answer({kind: 'each', sql: insert, rows})
    if (found.length < piece) break
  }
  await session.run('CLOSE belfry_image')
}
