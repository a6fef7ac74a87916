/**
 * Queries as generators: a query yields statements (SQL and values) and receives their rows, so that one text
 * serves an engine that answers synchronously (SQLite) and one that answers later (PostgreSQL). A query never
 * performs I/O, reads a clock or opens a transaction: the engine that runs it has opened one.
 *
 *     function* rename(tx: Transaction, id: number, name: string): Query<boolean> {
 *       const row = yield* one(`SELECT id FROM jobs WHERE id = ?${tx.dialect.forUpdate}`, [id])
 *       if (row === null) return false
 *       yield* all(`UPDATE jobs SET name = ?, updated_at = ? WHERE id = ?`, [name, tx.now, id])
 *       return true
 *     }
 *
 *     const query = rename(tx, 7, 'b')    // runs nothing yet
 *     let next = query.next()             // runs up to the first statement
 *     while (!next.done) next = query.next(rowsOf(next.value))
 *     return next.value                   // true
 */
import {OUTPUT_KEPT_BYTES} from '../../core/execution.ts'

export type Value = string | number | null | Uint8Array
export type Values = readonly Value[]
export type Row = Readonly<Record<string, Value>>

/** Statement with `?` placeholders. */
export interface RunAll {
  readonly kind: 'all'
  readonly sql: string
  readonly values: Values
}

/**
 * Statement for many rows of values, in order. An engine may loop, pipeline or rewrite it as one set-based
 * statement, so no row may depend on the effect of an earlier row.
 */
export interface RunEach {
  readonly kind: 'each'
  readonly sql: string
  readonly rows: readonly Values[]
}

/** A point in a long read where the engine may yield to the event loop. */
export interface YieldToEventLoop {
  readonly kind: 'yield'
}

/** A statement whose rows are not needed: an engine may send the next ones before its reply. */
export interface Send {
  readonly kind: 'send'
  readonly statement: RunAll | RunEach
}

/** Statements that do not need each other's rows, in order: an engine may send them in one round trip. */
export interface Together {
  readonly kind: 'together'
  readonly statements: readonly Statement[]
}

export type Statement = RunAll | RunEach | Send | Together | YieldToEventLoop
/**
 * `Row[]` for `all`, `Row[][]` (one entry a row of values) for `each`, one result a statement for `together`,
 * `undefined` for `send` and `yield`.
 */
export type StatementResult = Row[] | Row[][] | readonly StatementResult[] | undefined

export type Query<Result> = Generator<Statement, Result, StatementResult>

/** All rows of a statement; `[]` for a statement without rows. */
export function* all<R = Row>(sql: string, values: Values = []): Query<R[]> {
  return (yield {kind: 'all', sql, values}) as R[]
}

/** The first row, or `null`. */
export function* one<R = Row>(sql: string, values: Values = []): Query<R | null> {
  const rows = (yield {kind: 'all', sql, values}) as R[]
  return rows[0] ?? null
}

/** Runs `sql` once for each of `rows` and returns the rows of each. Without `rows` it costs nothing. */
export function* each<R = Row>(sql: string, rows: readonly Values[]): Query<R[][]> {
  if (rows.length === 0) return []
  return (yield {kind: 'each', sql, rows}) as R[][]
}

/** `each`, with the first row of each result or `null`. */
export function* oneEach<R = Row>(sql: string, rows: readonly Values[]): Query<(R | null)[]> {
  const answers = yield* each<R>(sql, rows)
  return answers.map((answer) => answer[0] ?? null)
}

/** Runs a statement without its rows. The transaction commits only if it succeeds. */
export function* send(sql: string, values: Values = []): Query<void> {
  yield {kind: 'send', statement: {kind: 'all', sql, values}}
}

/** Runs `sql` once for each of `rows`, without the rows it returns. */
export function* sendEach(sql: string, rows: readonly Values[]): Query<void> {
  if (rows.length > 0) yield {kind: 'send', statement: {kind: 'each', sql, rows}}
}

type ResultsOf<Queries extends readonly Query<unknown>[]> = {
  -readonly [Index in keyof Queries]: Queries[Index] extends Query<infer Result> ? Result : never
}

/**
 * Runs queries side by side, so that they take as many round trips as the longest of them. None may depend on
 * the effect of another. Statements of one step run in the order of the queries.
 */
export function* together<const Queries extends readonly Query<unknown>[]>(
  ...queries: Queries
): Query<ResultsOf<Queries>> {
  const results: unknown[] = queries.map(() => undefined)
  let running = queries.map((query, index) => ({query, index, next: query.next()}))
  for (;;) {
    const statements: Statement[] = []
    running = running.filter(({index, next}) => {
      if (next.done === true) results[index] = next.value
      else statements.push(next.value)
      return next.done !== true
    })
    if (running.length === 0) return results as ResultsOf<Queries>
    const answers = (yield {kind: 'together', statements}) as readonly StatementResult[]
    running = running.map(({query, index}, at) => {
      return {query, index, next: query.next(answers[at])}
    })
  }
}

export function* yieldToEventLoop(): Query<void> {
  yield {kind: 'yield'}
}

/** Sequences of numbers. */
export type Sequence = 'job' | 'launch'

/** Differences between the SQL of the engines, as data and texts. */
export interface Dialect {
  readonly engine: 'sqlite' | 'postgres'
  /** Writers run concurrently, so a query locks the rows it decides on. False: one writer at a time. */
  readonly locking: boolean
  /** Appended to a select that locks the rows it returns; `''` without `locking`. */
  readonly forUpdate: string
  /** Appended to the select of the leader's term: a renewal does not block it, a takeover does. */
  readonly forKeyShare: string
  /** Column types of the migrations. */
  readonly columns: {
    readonly integer: string
    readonly text: string
    readonly bytes: string
    /** A primary key that grows with each row. */
    readonly growingKey: string
  }
  /** Appended to `CREATE TABLE` of tables that are read only by their key. */
  readonly keyOrganised: string
  /** Creates a sequence that starts at 1. */
  createSequence(name: Sequence): string
  /** `count` growing numbers; none of them was taken before, also not before a restart. */
  takeNumbers(name: Sequence, count: number): Query<number[]>
  /** Makes a sequence skip at least `count` numbers. */
  skipNumbers(name: Sequence, count: number): Query<void>
  /** Marks the connection as that of the leader of `term`, until it closes. Never waits. */
  markLeader(term: number): Query<void>
  /** True if a connection is marked as that of the leader of `term`; `null` = the engine cannot tell. */
  isLeaderConnected(term: number): Query<boolean | null>
}

/** Limits of the configuration. */
export interface StoreLimits {
  /** Output kept of each execution: its last bytes. */
  readonly outputTailBytes: number
}

export interface Transaction {
  /** The store's clock, ms since the epoch; one instant for the whole transaction. */
  readonly now: number
  readonly dialect: Dialect
  readonly limits: StoreLimits
}

export const DEFAULT_LIMITS: StoreLimits = {outputTailBytes: OUTPUT_KEPT_BYTES}
