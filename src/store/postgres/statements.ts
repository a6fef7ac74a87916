/**
 * Runs a query on a session. Caches per SQL text its PostgreSQL form, the name of its prepared statement and
 * the types of its values.
 */
import {assert} from '../../lib/assert.ts'
import type {StatementResult, Statement, Row, RunEach, Query, Value, Values} from '../sql/query.ts'
import type {Session} from './connection.ts'

/** Texts differ only by the filters of lists. Further texts are parsed at each use. */
const NAMED_MAX = 400
/** Rows of values, and their bytes, in one message: limits its size and the server's memory for it. */
const ROWS_MAX = 2_000
const MESSAGE_BYTES_MAX = 8 * 2 ** 20
/**
 * Rows from which a column with one value in all of them is sent once; below, it is an array like the
 * others.
 */
const CONSTANTS_FROM_ROWS = 64
/** Texts of one statement that differ by their constant columns; most have one or two. */
const VARIANTS_MAX = 4

interface Text {
  readonly sql: string
  readonly name: string | null
}

/** A statement for many rows of values. */
interface ForMany {
  readonly types: readonly string[]
  /** The first columns, this many, may be constants. */
  readonly constantsMax: number
  /** Keys: constant columns. */
  readonly variants: Map<string, Text>
}

export class Statements {
  readonly #single = new Map<string, Text>()
  readonly #forMany = new Map<string, ForMany>()
  #names = 0

  /** Waits for each reply. An error of a statement ends the query; the caller must roll back. */
  async run<Result>(session: Session, query: Query<Result>): Promise<Result> {
    let next = query.next()
    while (next.done !== true) next = query.next(await this.answer(session, next.value, null))
    return next.value
  }

  /**
   * Sends a statement at once and resolves with its result. The reply to a `send` is not awaited but given to
   * `unawaited`; `null` = it is awaited too.
   */
  async answer(
    session: Session,
    statement: Statement,
    unawaited: ((reply: Promise<unknown>) => void) | null,
  ): Promise<StatementResult> {
    await this.#prepare(session, statement)
    if (statement.kind === 'together' && !isOneMessage(statement)) {
      const results: StatementResult[] = []
      for (const each of statement.statements) results.push(await this.answer(session, each, null))
      return results
    }
    const reply = this.#send(session, statement)
    // The rest of a long statement must not be overtaken by the next one.
    if (statement.kind !== 'send' || unawaited === null || !isOneMessage(statement))
      return await reply
    unawaited(reply)
    return undefined
  }

  /** Sends a prepared statement, or its first message, before it returns. */
  async #send(session: Session, statement: Statement): Promise<StatementResult> {
    switch (statement.kind) {
      case 'all': {
        const {sql, name} = this.#numbered(statement.sql)
        return await session.rows(sql, statement.values, name)
      }
      case 'each':
        return await this.#each(session, statement)
      case 'send':
        await this.#send(session, statement.statement)
        return undefined
      case 'together':
        return await Promise.all(statement.statements.map((each) => this.#send(session, each)))
      case 'yield':
        // Each statement already yields while it waits for the server.
        return undefined
    }
  }

  /** Asks for the types that a statement needs, so that it can then be sent at once. */
  async #prepare(session: Session, statement: Statement): Promise<void> {
    if (statement.kind === 'send') await this.#prepare(session, statement.statement)
    else if (statement.kind === 'together')
      for (const each of statement.statements) await this.#prepare(session, each)
    else if (statement.kind === 'each' && !this.#forMany.has(statement.sql))
      await this.#prepareForMany(session, statement.sql)
  }

  async #each(session: Session, {sql, rows}: RunEach): Promise<Row[][]> {
    const forMany = this.#forMany.get(sql)
    assert(forMany !== undefined, 'a statement for many rows is prepared before it is sent')
    const answers: Row[][] = rows.map(() => [])
    let from = 0
    for (const piece of messagesOf(rows)) {
      const columns = columnsOf(piece)
      const {text, constants} = this.#variant(sql, forMany, columns)
      const values = columns.map((column, at) => (constants.has(at) ? column[0]! : column))
      const found = await session.rows(text.sql, values, text.name)
      for (const row of found) answers[from + Number(row[INDEX_COLUMN]) - 1]?.push(row)
      from += piece.length
    }
    return answers
  }

  /** The text for these columns: constants are sent once, which halves the cost of inserting launches. */
  #variant(
    sql: string,
    {types, constantsMax, variants}: ForMany,
    columns: readonly (readonly Value[])[],
  ): {readonly text: Text; readonly constants: ReadonlySet<number>} {
    const wanted = constantColumns(columns, constantsMax)
    const isKnown = variants.has(keyOf(wanted)) || variants.size < VARIANTS_MAX
    const constants = isKnown ? wanted : new Set<number>()
    const key = keyOf(constants)
    let text = variants.get(key)
    if (text === undefined) {
      text = this.#named(setBased(sql, types, constants))
      variants.set(key, text)
    }
    return {text, constants}
  }

  #numbered(sql: string): Text {
    const known = this.#single.get(sql)
    if (known !== undefined) return known
    const text = this.#named(numbered(sql))
    if (text.name !== null) this.#single.set(sql, text)
    return text
  }

  /** Asks the server for the types of the values, once a text. */
  async #prepareForMany(session: Session, sql: string): Promise<void> {
    const results = await session.run(`PREPARE belfry_asks AS ${numbered(sql)};
      SELECT parameter_types::text[] AS types FROM pg_prepared_statements
        WHERE name = 'belfry_asks';
      DEALLOCATE belfry_asks`)
    // A text array, which `Value` does not include.
    const types = results[1]?.rows[0]?.['types'] as unknown as readonly string[]
    // Another session may have asked meanwhile: one name has one text.
    if (!this.#forMany.has(sql))
      this.#forMany.set(sql, {types, constantsMax: constantsMax(sql), variants: new Map()})
  }

  #named(sql: string): Text {
    if (this.#names >= NAMED_MAX) return {sql, name: null}
    this.#names += 1
    return {sql, name: `belfry_${this.#names}`}
  }
}

/** Splits rows of values into messages within the limits; a row of its own may be larger. */
function* messagesOf(rows: readonly Values[]): Generator<readonly Values[]> {
  let from = 0
  let bytes = 0
  for (const [index, values] of rows.entries()) {
    const size = sizeOf(values)
    const isFull = index - from === ROWS_MAX || bytes + size > MESSAGE_BYTES_MAX
    if (isFull && index > from) {
      yield rows.slice(from, index)
      from = index
      bytes = 0
    }
    bytes += size
  }
  yield rows.slice(from)
}

function columnsOf(rows: readonly Values[]): readonly (readonly Value[])[] {
  return (rows[0] ?? []).map((_, column) => rows.map((values) => values[column] ?? null))
}

/** Columns among the first `max` with one value in all rows; never all columns: one array has the rows. */
function constantColumns(columns: readonly (readonly Value[])[], max: number): ReadonlySet<number> {
  const constants = new Set<number>()
  if ((columns[0]?.length ?? 0) < CONSTANTS_FROM_ROWS) return constants
  for (const [index, column] of columns.slice(0, max).entries())
    if (column.every((value) => value === column[0])) constants.add(index)
  if (constants.size === columns.length) constants.delete(0)
  return constants
}

function keyOf(constants: ReadonlySet<number>): string {
  return [...constants].join()
}

/** Characters count as bytes: the limit is about memory, and does not have to be exact. */
function sizeOf(values: Values): number {
  let size = 0
  for (const value of values) if (typeof value !== 'number') size += value?.length ?? 0
  return size
}

function isOneMessage(statement: Statement): boolean {
  switch (statement.kind) {
    case 'each':
      return [...messagesOf(statement.rows)].length === 1
    case 'send':
      return isOneMessage(statement.statement)
    case 'together':
      return statement.statements.every(isOneMessage)
    case 'all':
    case 'yield':
      return true
  }
}

/*
 * Rewriting SQL texts for PostgreSQL: `?` becomes `$n`. A statement for many rows of values becomes one that
 * takes them as arrays, so that a thousand rows cost one round trip and one plan.
 */

/** Column of each result row: index of its row of values, from 1. */
export const INDEX_COLUMN = 'each_index'
const ROWS = 'each_row'

/** Replaces each `?` outside of quotes by `$1`, `$2` …. */
export function numbered(sql: string): string {
  let count = 0
  return replacePlaceholders(sql, () => `$${(count += 1)}`)
}

/**
 * Rewrites a statement to take arrays of values, one array a placeholder. Its result rows have
 * `INDEX_COLUMN`. `types`: one a placeholder. `constants`: indexes of placeholders, not of all, that take one
 * value instead.
 */
export function setBased(
  sql: string,
  types: readonly string[],
  constants: ReadonlySet<number> = new Set(),
): string {
  const listed = types.flatMap((type, index) => (constants.has(index) ? [] : [{type, index}]))
  const arrays = listed.map(({type, index}) => `$${index + 1}::${type}[]`).join(', ')
  const names = listed.map(({index}) => `v${index + 1}`).join(', ')
  const rows = `unnest(${arrays}) WITH ORDINALITY AS ${ROWS} (${names}, i)`
  let count = 0
  const text = replacePlaceholders(sql, () => {
    const index = count
    count += 1
    return constants.has(index) ? `$${count}::${types[index]}` : `${ROWS}.v${count}`
  })
  assert(count === types.length, 'every placeholder has a type')
  const verb = verbOf(text)
  switch (verb) {
    case 'SELECT':
      return selectOf(text, rows)
    case 'INSERT':
      return insertOf(text, rows)
    case 'UPDATE':
      return changeOf(text, `FROM ${rows}`)
    case 'DELETE':
      return changeOf(text, `USING ${rows}`)
    default:
      throw new TypeError(`statement cannot run for many rows: it starts with ${verb}`)
  }
}

/**
 * How many placeholders, from the first one, may be constants: those of an insert, and those that an update
 * sets. The plan of a look-up does not depend on the values of one call.
 */
function constantsMax(sql: string): number {
  const verb = verbOf(sql)
  if (verb === 'INSERT') return Infinity
  return verb === 'UPDATE' ? sql.slice(0, topLevel(sql, 'WHERE')).split('?').length - 1 : 0
}

function verbOf(sql: string): string {
  return /^\s*(\w*)/.exec(sql)?.[1] ?? ''
}

/**
 * `OFFSET 0` prevents the planner from flattening the inner select. Each row is looked up by its keys, even
 * if the statistics of the tables are out of date.
 */
function selectOf(text: string, rows: string): string {
  const inner = `SELECT * FROM (${text}) AS looked_up OFFSET 0`
  return `SELECT ${ROWS}.i AS ${INDEX_COLUMN}, found.* FROM ${rows} CROSS JOIN LATERAL (${inner}) AS found`
}

/** `INSERT … VALUES (…) rest` becomes `INSERT … SELECT … FROM rows rest`. */
function insertOf(text: string, rows: string): string {
  const at = topLevel(text, 'VALUES')
  assert(at !== -1, 'an insert for many rows has one list of values')
  const open = text.indexOf('(', at)
  const close = closing(text, open)
  const values = text.slice(open + 1, close)
  return `${text.slice(0, at)}SELECT ${values} FROM ${rows}${text.slice(close + 1)}`
}

/** Adds the rows of values before `WHERE`, and their index to `RETURNING`. */
function changeOf(text: string, source: string): string {
  const where = topLevel(text, 'WHERE')
  assert(where !== -1, 'an update or delete for many rows has a WHERE')
  const joined = `${text.slice(0, where)}${source} ${text.slice(where)}`
  const returning = topLevel(joined, 'RETURNING')
  if (returning === -1) return joined
  const after = returning + 'RETURNING'.length
  return `${joined.slice(0, after)} ${ROWS}.i AS ${INDEX_COLUMN},${joined.slice(after)}`
}

function replacePlaceholders(sql: string, next: () => string): string {
  let result = ''
  for (const [index, part] of sql.split("'").entries()) {
    // Every second part is inside quotes.
    result += index % 2 === 1 ? `'${part}'` : part.replaceAll('?', next)
  }
  return result
}

/** Index of `word` outside of parentheses and quotes; -1 if there is none. */
function topLevel(text: string, word: string): number {
  let depth = 0
  let isQuoted = false
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at]
    if (character === "'") isQuoted = !isQuoted
    if (isQuoted) continue
    if (character === '(') depth += 1
    else if (character === ')') depth -= 1
    else if (depth === 0 && isWordAt(text, word, at)) return at
  }
  return -1
}

function isWordAt(text: string, word: string, at: number): boolean {
  const around = /[A-Za-z0-9_]/
  return (
    text.startsWith(word, at) &&
    !around.test(text[at - 1] ?? ' ') &&
    !around.test(text[at + word.length] ?? ' ')
  )
}

/** Index of the parenthesis that closes the one at `open`. */
function closing(text: string, open: number): number {
  let depth = 0
  let isQuoted = false
  for (let at = open; at < text.length; at += 1) {
    const character = text[at]
    if (character === "'") isQuoted = !isQuoted
    if (isQuoted) continue
    if (character === '(') depth += 1
    if (character === ')') depth -= 1
    if (depth === 0) return at
  }
  throw new TypeError('parenthesis must be closed')
}
