/**
 * Running a step on a session. Keeps what is known about the steps' texts: their PostgreSQL form, the name
 * under which a server has them parsed, and the types of their values.
 */
import {assert} from '../../lib/assert.ts'
import type {StatementResult, Statement, Row, Query, Value, Values} from '../sql/query.ts'
import type {Session} from './connection.ts'

/** Texts differ only by the filters of lists; beyond this many they are parsed each time. */
const NAMED_MAX = 400
/** Rows of values in one round trip: a message, and what the server makes of it, stay of a size. */
const ROWS_MAX = 2_000

interface Text {
  readonly sql: string
  readonly name: string | null
}

export class Statements {
  readonly #single = new Map<string, Text>()
  readonly #forMany = new Map<string, Text>()
  #names = 0

  /** Runs a whole step. What a statement throws ends the step; whoever opened the transaction undoes it. */
  async run<Result>(session: Session, step: Query<Result>): Promise<Result> {
    let next = step.next()
    while (next.done !== true) next = step.next(await this.#answer(session, next.value))
    return next.value
  }

  async #answer(session: Session, command: Statement): Promise<StatementResult> {
    switch (command.kind) {
      case 'all': {
        const {sql, name} = this.#numbered(command.sql)
        return await session.rows(sql, command.values, name)
      }
      case 'each':
        return await this.#each(session, command.sql, command.rows)
      case 'yield':
        // Every statement waits for the server already, which lets other work go first.
        return undefined
    }
  }

  async #each(session: Session, sql: string, rows: readonly Values[]): Promise<Row[][]> {
    const text = this.#forMany.get(sql) ?? (await this.#prepareForMany(session, sql))
    const answers: Row[][] = rows.map(() => [])
    for (let from = 0; from < rows.length; from += ROWS_MAX) {
      const piece = rows.slice(from, from + ROWS_MAX)
      const columns = (piece[0] ?? []).map((_, column): Value[] => {
        return piece.map((values) => values[column] ?? null)
      })
      const found = await session.rows(text.sql, columns, text.name)
      for (const row of found) answers[from + Number(row[INDEX_COLUMN]) - 1]?.push(row)
    }
    return answers
  }

  #numbered(sql: string): Text {
    const known = this.#single.get(sql)
    if (known !== undefined) return known
    return this.#keep(this.#single, sql, numbered(sql))
  }

  /** The server says of what types the values are; once for each text. */
  async #prepareForMany(session: Session, sql: string): Promise<Text> {
    const results = await session.run(`PREPARE belfry_asks AS ${numbered(sql)};
      SELECT parameter_types::text[] AS types FROM pg_prepared_statements
        WHERE name = 'belfry_asks';
      DEALLOCATE belfry_asks`)
    // An array of texts, which is no value of ours.
    const types = results[1]?.rows[0]?.['types'] as unknown as readonly string[]
    return this.#keep(this.#forMany, sql, setBased(sql, types))
  }

  #keep(texts: Map<string, Text>, sql: string, text: string): Text {
    const known = texts.get(sql)
    if (known !== undefined) return known
    if (this.#names >= NAMED_MAX) return {sql: text, name: null}
    this.#names += 1
    const kept = {sql: text, name: `belfry_${this.#names}`}
    texts.set(sql, kept)
    return kept
  }
}

/*
 * The steps' statements as PostgreSQL wants them: `?` becomes `$n`, and a statement that is to run for many
 * rows of values becomes one that takes them as arrays, so that a thousand rows cost one round trip and one
 * plan. Works on texts only; what the values' types are the server says itself.
 */

/** Column of the answers that tells which row of values one belongs to, from 1. */
export const INDEX_COLUMN = 'each_index'
const ROWS = 'each_row'

/** `?` outside of quotes by `$1`, `$2` …; a text that has none is left as it is. */
export function numbered(sql: string): string {
  let count = 0
  return replacePlaceholders(sql, () => `$${(count += 1)}`)
}

/**
 * The same statement for arrays of values, one array a placeholder. What it answers carries `INDEX_COLUMN`.
 * `types` are those of the placeholders.
 */
export function setBased(sql: string, types: readonly string[]): string {
  const arrays = types.map((type, index) => `$${index + 1}::${type}[]`).join(', ')
  const names = types.map((_type, index) => `v${index + 1}`).join(', ')
  const rows = `unnest(${arrays}) WITH ORDINALITY AS ${ROWS} (${names}, i)`
  let count = 0
  const text = replacePlaceholders(sql, () => `${ROWS}.v${(count += 1)}`)
  assert(count === types.length, 'every placeholder has a type')
  const verb = /^\s*(\w*)/.exec(text)?.[1] ?? ''
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
      throw new TypeError(`a statement that begins with ${verb} has no form for many rows`)
  }
}

/**
 * `OFFSET 0` keeps the inner select as it is: it is looked up by its keys for each row, whatever the server
 * believes about the sizes of tables it has not looked at for a while.
 */
function selectOf(text: string, rows: string): string {
  const inner = `SELECT * FROM (${text}) AS looked_up OFFSET 0`
  return `SELECT ${ROWS}.i AS ${INDEX_COLUMN}, found.* FROM ${rows} CROSS JOIN LATERAL (${inner}) AS found`
}

/** `INSERT … VALUES (…) rest` takes its rows from a select. */
function insertOf(text: string, rows: string): string {
  const at = topLevel(text, 'VALUES')
  assert(at !== -1, 'an insert for many rows has one list of values')
  const open = text.indexOf('(', at)
  const close = closing(text, open)
  const values = text.slice(open + 1, close)
  return `${text.slice(0, at)}SELECT ${values} FROM ${rows}${text.slice(close + 1)}`
}

/** The rows of values stand beside the table before `WHERE`; what is returned says for which of them. */
function changeOf(text: string, source: string): string {
  const where = topLevel(text, 'WHERE')
  assert(where !== -1, 'a change for many rows says which')
  const joined = `${text.slice(0, where)}${source} ${text.slice(where)}`
  const returning = topLevel(joined, 'RETURNING')
  if (returning === -1) return joined
  const after = returning + 'RETURNING'.length
  return `${joined.slice(0, after)} ${ROWS}.i AS ${INDEX_COLUMN},${joined.slice(after)}`
}

function replacePlaceholders(sql: string, next: () => string): string {
  let result = ''
  for (const [index, part] of sql.split("'").entries()) {
    // Every second part stands between quotes.
    result += index % 2 === 1 ? `'${part}'` : part.replaceAll('?', next)
  }
  return result
}

/** Where `word` stands outside of parentheses and quotes; -1 when it does not. */
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

/** The parenthesis that closes the one at `open`. */
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
  throw new TypeError('a parenthesis is not closed')
}
