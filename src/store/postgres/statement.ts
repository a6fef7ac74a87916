/**
 * The steps' statements as PostgreSQL wants them: `?` becomes `$n`, and a statement that is to run for many
 * rows of values becomes one that takes them as arrays, so that a thousand rows cost one round trip and one
 * plan. Works on texts only; what the values' types are the server says itself.
 */
import {assert} from '../../lib/assert.ts'

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
