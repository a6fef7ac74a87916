/**
 * Backup of a store on PostgreSQL: one SQLite file, as of a store on SQLite, so both are restored the same
 * way. One snapshot, copied in batches, so that neither the size nor concurrent writes matter.
 */
import {closeSync, existsSync, fsyncSync, openSync, rmSync} from 'node:fs'
import type {Row, Value} from '../sql/query.ts'
import {BACKUP_MARK, MARK, putMeta} from '../sql/cluster/settings.ts'
import {Connection} from '../sqlite/connection.ts'
import {columnsOf, prepareSchema, SEQUENCES, tablesOf} from '../sqlite/schema.ts'
import type {Session} from './connection.ts'

/** Rows of a batch, which occupies the event loop for a few milliseconds, and memory. */
const ROWS_PER_BATCH = 500
/** Fewer for the table of outputs, whose rows are large. */
const OUTPUT_ROWS_PER_BATCH = 50
/** A table that is not cached is read from the disk. */
const BATCH_LIMIT_MS = 60_000

/** Writes a backup of one snapshot. `session` must be without time limits. Removes the file if it fails. */
export async function writeBackup(session: Session, target: string): Promise<void> {
  if (existsSync(target)) throw new Error(`${target} exists already`)
  let backup: Connection | null = null
  try {
    backup = new Connection(target, {readOnly: false})
    const prepared = prepareSchema(backup, {
      fresh: {clusterId: '', incarnation: ''},
      check: false,
      now: 0,
    })
    if (!prepared.ok) throw new Error(`the backup ${prepared.problem}`)
    // The file is worthless until it is complete: neither a log nor a flush in between protects anything.
    // SQLite ignores OFF in its defensive mode, and the reader of a file with a log leaves two more files.
    backup.execute('PRAGMA journal_mode = MEMORY')
    backup.execute('PRAGMA synchronous = OFF')
    await copyInto(backup, session)
    backup.close()
    flush(target)
  } catch (error) {
    backup?.close()
    for (const ending of ['', '-wal', '-shm']) rmSync(`${target}${ending}`, {force: true})
    throw error
  }
}

function flush(path: string): void {
  const file = openSync(path, 'r+')
  try {
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
}

async function copyInto(backup: Connection, session: Session): Promise<void> {
  await session.run('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
  backup.execute('BEGIN IMMEDIATE')
  for (const table of tablesOf(backup)) await copyTable(backup, session, table)
  // Sequences follow the tables: a number taken meanwhile may be skipped, but none is used again.
  for (const name of SEQUENCES) {
    const [row] = await session.rows(
      `SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last FROM ${name}_numbers`,
      [],
      null,
    )
    const sql = `UPDATE ${name}_numbers SET last = ?`
    backup.answer({kind: 'all', sql, values: [row?.['last'] ?? 0]})
  }
  backup.run(putMeta(MARK, BACKUP_MARK))
  backup.execute('COMMIT')
  await session.run('COMMIT')
}

async function copyTable(backup: Connection, session: Session, table: string): Promise<void> {
  const columns = columnsOf(backup, table)
  const list = columns.join(', ')
  const places = columns.map(() => '?').join(', ')
  const insert = `INSERT INTO ${table} (${list}) VALUES (${places})`
  const rowsMax = table === 'output' ? OUTPUT_ROWS_PER_BATCH : ROWS_PER_BATCH
  backup.execute(`DELETE FROM ${table}`)
  await session.run(`DECLARE belfry_backup NO SCROLL CURSOR FOR SELECT ${list} FROM ${table}`)
  for (;;) {
    const [result] = await session.run(`FETCH ${rowsMax} FROM belfry_backup`, BATCH_LIMIT_MS)
    const found = result?.rows ?? []
    const rows = found.map((row: Row) => columns.map((column): Value => row[column] ?? null))
    backup.answer({kind: 'each', sql: insert, rows})
    if (found.length < rowsMax) break
  }
  await session.run('CLOSE belfry_backup')
}
