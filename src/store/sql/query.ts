/**
 * The store's steps as generators: a step yields commands (SQL and values) and is handed the rows, so that
 * one text serves an engine that answers at once and one that answers later. A step never performs I/O,
 * reads a clock or opens a transaction itself: whoever drives it has opened one.
 */
import {OUTPUT_KEPT_BYTES} from '../../core/execution.ts'

export type Value = string | number | null | Uint8Array
export type Values = readonly Value[]
export type Row = Readonly<Record<string, Value>>

/** One statement with `?` placeholders. */
export interface RunAll {
  readonly kind: 'all'
  readonly sql: string
  readonly values: Values
}

/**
 * One statement, many rows of values, in order. An engine may loop, pipeline or rewrite it as one set-based
 * statement; so no row may depend on what an earlier row of the same command did.
 */
export interface RunEach {
  readonly kind: 'each'
  readonly sql: string
  readonly rows: readonly Values[]
}

/** A place in a long read where the driver may let other work of the process go first. */
export interface YieldToEventLoop {
  readonly kind: 'breathe'
}

export type Statement = RunAll | RunEach | YieldToEventLoop
/** `Row[]` for `all`, `Row[][]` (one entry a row of values) for `each`, nothing for `breathe`. */
export type StatementResult = Row[] | Row[][] | undefined

export type Query<Result> = Generator<Statement, Result, StatementResult>

/** All rows a statement answers; `[]` for one that answers none. */
export function* all<R = Row>(sql: string, values: Values = []): Query<R[]> {
  return (yield {kind: 'all', sql, values}) as R[]
}

/** The first row, or `null`. */
export function* one<R = Row>(sql: string, values: Values = []): Query<R | null> {
  const rows = (yield {kind: 'all', sql, values}) as R[]
  return rows[0] ?? null
}

/** Runs `sql` once for each of `rows`; answers what each returned. Costs nothing when there are none. */
export function* each<R = Row>(sql: string, rows: readonly Values[]): Query<R[][]> {
  if (rows.length === 0) return []
  return (yield {kind: 'each', sql, rows}) as R[][]
}

/** `each`, with the first row of every answer or `null`. */
export function* oneEach<R = Row>(sql: string, rows: readonly Values[]): Query<(R | null)[]> {
  const answers = yield* each<R>(sql, rows)
  return answers.map((answer) => answer[0] ?? null)
}

export function* yieldToEventLoop(): Query<void> {
  yield {kind: 'breathe'}
}

/*
 * What a step is told about the transaction it runs in: the store's instant and where the engines differ.
 * Plain data and texts, so that a step stays the same on every engine.
 */

/** Names of the sequences numbers are taken from. */
export type Sequence = 'job' | 'launch'

/** The few places where two SQL engines do not agree. */
export interface Dialect {
  readonly engine: 'sqlite' | 'postgres'
  /**
   * Transactions run concurrently, so a query locks the rows it decides on. `false`: a writer is alone,
   * and the texts of locks are empty.
   */
  readonly locking: boolean
  /** Appended to a select that locks the rows it returns. */
  readonly forUpdate: string
  /** Appended to the select of the leader's term: not blocked by a renewal, blocked by a takeover. */
  readonly forKeyShare: string
  /** Column types of the migrations. */
  readonly columns: {readonly integer: string; readonly text: string; readonly bytes: string}
  /** Appended to `CREATE TABLE` of tables that are only looked up by their key. */
  readonly keyOrganised: string
  /** Creates a sequence that starts at 1. */
  createSequence(name: Sequence): string
  /** `count` growing numbers never handed out before, nor after a restart. */
  takeNumbers(name: Sequence, count: number): Query<number[]>
  /** Makes a sequence leave out at least `count` numbers. */
  skipNumbers(name: Sequence, count: number): Query<void>
}

/** Sizes the steps obey; from configuration. */
export interface StoreLimits {
  /** Last bytes of each execution's output that are kept. */
  readonly outputKeptBytes: number
}

export interface Transaction {
  /** The store's clock, ms since the epoch: one instant for the whole transaction. */
  readonly now: number
  readonly dialect: Dialect
  readonly limits: StoreLimits
}

export const DEFAULT_LIMITS: StoreLimits = {outputKeptBytes: OUTPUT_KEPT_BYTES}
