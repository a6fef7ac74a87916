/**
 * One connection to a SQLite file, and running steps on it at once. Statements are prepared once and kept;
 * results are always read whole, because re-using a kept statement would end an open iteration.
 */
import {DatabaseSync, type StatementSync} from 'node:sqlite'
import {assert} from '../../lib/assert.ts'
import {
  all,
  type StatementResult,
  type Statement,
  type Dialect,
  one,
  type Row,
  type Sequence,
  type Query,
  type Value,
} from '../sql/query.ts'

/** Texts differ only by the filters of lists; beyond this many the oldest are prepared again. */
const STATEMENTS_KEPT_MAX = 500
/** Page cache in KiB. The writer goes back to the same pages; readers mostly pass through. */
const WRITER_CACHE_KIB = 32 * 1024
const READER_CACHE_KIB = 8 * 1024
/**
 * 16 MiB: fewer, larger trips into the main file than SQLite's default; a start after a crash still reads
 * it at once.
 */
const LOG_PAGES = 4_000
/** What a log that grew under a long read is cut back to. */
const LOG_KEPT_BYTES = 64 * 1024 * 1024
/** Another connection of ours checkpointing or recovering takes milliseconds. */
const BUSY_TIMEOUT_MS = 5_000

export interface ConnectionOptions {
  readonly readOnly: boolean
}

export class Connection {
  readonly database: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()

  /** `path` is a file or `:memory:`. Throws what `node:sqlite` throws when it cannot be opened. */
  constructor(path: string, {readOnly}: ConnectionOptions) {
    this.database = new DatabaseSync(path, {readOnly, timeout: BUSY_TIMEOUT_MS})
    this.database.exec(`PRAGMA cache_size = -${readOnly ? READER_CACHE_KIB : WRITER_CACHE_KIB}`)
    if (readOnly) return
    this.database.exec('PRAGMA journal_mode = WAL')
    this.database.exec('PRAGMA synchronous = FULL')
    this.database.exec('PRAGMA temp_store = MEMORY')
    this.database.exec(`PRAGMA wal_autocheckpoint = ${LOG_PAGES}`)
    this.database.exec(`PRAGMA journal_size_limit = ${LOG_KEPT_BYTES}`)
  }

  /** The value of a pragma, as text. */
  pragma(name: string): string {
    const row = this.database.prepare(`PRAGMA ${name}`).get()
    return String(Object.values(row ?? {})[0] ?? '')
  }

  execute(sql: string): void {
    this.database.exec(sql)
  }

  /** Runs one statement; a `yield` does nothing here. */
  answer(command: Statement): StatementResult {
    switch (command.kind) {
      case 'all':
        return this.#statement(command.sql).all(...command.values) as Row[]
      case 'each': {
        const statement = this.#statement(command.sql)
        const rows = command.rows as readonly Value[][]
        return rows.map((values) => statement.all(...values) as Row[])
      }
      case 'yield':
        return undefined
    }
  }

  /**
   * Runs a whole step. What a statement throws is thrown into nothing: the step is over and the caller
   * rolls back.
   */
  run<Result>(step: Query<Result>): Result {
    let next = step.next()
    while (next.done !== true) next = step.next(this.answer(next.value))
    return next.value
  }

  /** The same inside one read transaction. */
  snapshot<Result>(step: Query<Result>): Result {
    assert(!this.database.isTransaction, 'a snapshot is not taken inside a transaction')
    this.database.exec('BEGIN')
    try {
      return this.run(step)
    } finally {
      if (this.database.isTransaction) this.database.exec('COMMIT')
    }
  }

  close(): void {
    this.#statements.clear()
    if (this.database.isOpen) this.database.close()
  }

  #statement(sql: string): StatementSync {
    const known = this.#statements.get(sql)
    if (known !== undefined) return known
    if (this.#statements.size >= STATEMENTS_KEPT_MAX) {
      const [oldest] = this.#statements.keys()
      this.#statements.delete(oldest!)
    }
    const statement = this.database.prepare(sql)
    this.#statements.set(sql, statement)
    return statement
  }
}

/* What is particular to SQLite's SQL. */

/** A writer is alone in its transaction, so nothing needs a lock of its own. */
export const sqliteDialect: Dialect = {
  engine: 'sqlite',
  locking: false,
  forUpdate: '',
  forKeyShare: '',
  columns: {integer: 'INTEGER', text: 'TEXT', bytes: 'BLOB'},
  keyOrganised: ' WITHOUT ROWID',
  createSequence: (name) => `CREATE TABLE ${name}_numbers AS SELECT 0 AS last`,
  takeNumbers,
  skipNumbers,
}

function* takeNumbers(name: Sequence, count: number): Query<number[]> {
  const row = yield* one<{last: number}>(
    `UPDATE ${name}_numbers SET last = last + ? RETURNING last`,
    [count],
  )
  const first = row!.last - count + 1
  return Array.from({length: count}, (_, index) => first + index)
}

function* skipNumbers(name: Sequence, count: number): Query<void> {
  yield* all(`UPDATE ${name}_numbers SET last = last + ?`, [count])
}
