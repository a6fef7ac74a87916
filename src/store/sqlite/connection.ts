/**
 * Connection to a SQLite file, which runs queries synchronously, and SQLite's dialect. Statements are
 * prepared once and cached. Results are always read completely: running a cached statement again would end
 * an open iteration.
 */
import {DatabaseSync, type StatementSync} from 'node:sqlite'
import {assert} from '../../lib/assert.ts'
import {createForOwner, restrictToOwner} from '../../platform/data-directory.ts'
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
  type Values,
} from '../sql/query.ts'

/** Texts vary only by the filters of lists; beyond this many, the oldest is dropped from the cache. */
const STATEMENTS_KEPT_MAX = 500

/** Page cache in KiB. The writer uses the same pages again; readers mostly read once. */
const WRITER_CACHE_KIB = 32 * 1024
const READER_CACHE_KIB = 8 * 1024

/** 16 MiB: fewer, larger checkpoints than SQLite's default, and still a fast recovery after a crash. */
const LOG_PAGES = 4_000

/** Size to which a log is truncated that grew during a long read. */
const LOG_KEPT_BYTES = 64 * 1024 * 1024

/** A checkpoint or recovery by another connection of Belfry takes milliseconds. */
const BUSY_TIMEOUT_MS = 5_000

export interface ConnectionOptions {
  readonly readOnly: boolean
}

export class Connection {
  readonly database: DatabaseSync
  readonly #statements = new Map<string, PreparedStatement>()

  /** `path` is a file or `:memory:`. Throws the error of `node:sqlite` if it cannot be opened. */
  constructor(path: string, {readOnly}: ConnectionOptions) {
    if (!readOnly && path !== ':memory:') makePrivate(path)
    this.database = new DatabaseSync(path, {readOnly, timeout: BUSY_TIMEOUT_MS})
    try {
      this.#configure(readOnly)
    } catch (error) {
      // An open that fails leaves no descriptor behind.
      this.database.close()
      throw error
    }
  }

  #configure(readOnly: boolean): void {
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
        return this.#statement(command.sql).rows(command.values)
      case 'each': {
        const statement = this.#statement(command.sql)
        return command.rows.map((values) => statement.rows(values))
      }
      case 'send':
        this.answer(command.statement)
        return undefined
      case 'together':
        return command.statements.map((statement) => this.answer(statement))
      case 'yield':
        return undefined
    }
  }

  /** Runs a query. An error of a statement ends the query, which cannot catch it; the caller rolls back. */
  run<Result>(query: Query<Result>): Result {
    let next = query.next()
    while (next.done !== true) next = query.next(this.answer(next.value))
    return next.value
  }

  /** Runs a query in one read transaction. */
  snapshot<Result>(query: Query<Result>): Result {
    assert(!this.database.isTransaction, 'a snapshot is not taken inside a transaction')
    this.database.exec('BEGIN')
    try {
      return this.run(query)
    } finally {
      if (this.database.isTransaction) this.database.exec('COMMIT')
    }
  }

  close(): void {
    this.#statements.clear()
    if (this.database.isOpen) this.database.close()
  }

  #statement(sql: string): PreparedStatement {
    const known = this.#statements.get(sql)
    if (known !== undefined) return known
    if (this.#statements.size >= STATEMENTS_KEPT_MAX) {
      const [oldest] = this.#statements.keys()
      this.#statements.delete(oldest!)
    }
    const statement = new PreparedStatement(this.database, sql)
    this.#statements.set(sql, statement)
    return statement
  }
}

/**
 * A statement that is prepared once. Its rows are read as arrays: the row objects of `node:sqlite` are
 * dictionaries, which take longer to make, to read and to copy than objects of one shape.
 */
class PreparedStatement {
  readonly #statement: StatementSync
  readonly #columns: readonly string[]
  /**
   * Row without values, to copy. V8 turns an object into a hash table if more than about 17 keys are added
   * one by one. An object of `JSON.parse` keeps its shape, and so do its copies.
   */
  readonly #empty: Row

  constructor(database: DatabaseSync, sql: string) {
    this.#statement = database.prepare(withStablePlan(sql))
    this.#statement.setReturnArrays(true)
    this.#columns = this.#statement.columns().map(({name}) => name)
    const members = this.#columns.map((name) => `${JSON.stringify(name)}: null`)
    this.#empty = JSON.parse(`{${members.join()}}`) as Row
  }

  rows(values: Values): Row[] {
    // The types know only rows that are objects.
    const rows = this.#statement.all(...values) as unknown as readonly (readonly Value[])[]
    return rows.map((row) => this.#toObject(row))
  }

  #toObject(row: readonly Value[]): Row {
    const object: Record<string, Value> = {...this.#empty}
    this.#columns.forEach((name, index) => (object[name] = row[index]!))
    return object
  }
}

/**
 * SQLite plans a statement again for each value of a plain `LIMIT ?`, which takes ten times as long as most
 * statements run. It plans an expression once.
 */
function withStablePlan(sql: string): string {
  return sql.replaceAll(/\b(LIMIT|OFFSET) \?/g, '$1 +?')
}

/**
 * SQLite gives its log and shared memory the mode of the database. Files of a crash may still have another.
 */
function makePrivate(path: string): void {
  try {
    createForOwner(path)
  } catch {
    // SQLite reports why it cannot be created.
  }
  for (const ending of ['', '-wal', '-shm']) restrictToOwner(`${path}${ending}`)
}

/** Only one transaction writes at a time, so rows need no locks. */
export const sqliteDialect: Dialect = {
  engine: 'sqlite',
  locking: false,
  forUpdate: '',
  forKeyShare: '',
  columns: {
    integer: 'INTEGER',
    text: 'TEXT',
    bytes: 'BLOB',
    growingKey: 'INTEGER PRIMARY KEY',
  },
  keyOrganised: ' WITHOUT ROWID',
  createSequence: (name) => `CREATE TABLE ${name}_numbers AS SELECT 0 AS last`,
  takeNumbers,
  skipNumbers,
  // A single process owns the store: a leader that has died left with its followers.
  *markLeader() {},
  isLeaderConnected,
}

// eslint-disable-next-line require-yield -- the answer needs no statement
function* isLeaderConnected(): Query<boolean | null> {
  return null
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
