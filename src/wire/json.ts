/**
 * JSON as it comes in from anyone: parsed, then looked through for what must never get further (keys that poison
 * objects, characters that stores and terminals choke on, depth). Browser-safe; it knows nothing of jobs.
 */

/** Deeper than any shape of this interface; bounds every later recursion. */
export const JSON_DEPTH_MAX = 32

const POISON_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

export type JsonReading =
  | {readonly kind: 'value'; readonly value: unknown}
  /** Not JSON. */
  | {readonly kind: 'syntax'; readonly problem: string}
  /** JSON that is refused for what it holds. */
  | {readonly kind: 'content'; readonly problem: string}

/**
 * Parses text. Numbers inside of objects inside of the value (values of maps) come as the text they were written in,
 * so that `1.10` or a long id survives being stored as text; numbers at the top stay numbers.
 */
export function readJson(text: string): JsonReading {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return {kind: 'syntax', problem: error.message}
    throw error
  }
  const look = lookThrough(value)
  if (look.problem !== null) return {kind: 'content', problem: look.problem}
  return {kind: 'value', value: look.innerNumbers ? withNumbersAsWritten(value, text) : value}
}

/** Decodes UTF-8 and parses; bytes that are not UTF-8 are a syntax problem. */
export function readJsonBytes(bytes: Uint8Array): JsonReading {
  const text = decodeStrictly(bytes)
  if (text === null) return {kind: 'syntax', problem: 'the body is not UTF-8'}
  return readJson(text)
}

/** UTF-8 to text, without a leading byte order mark; `null` when the bytes are not UTF-8. */
export function decodeStrictly(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(bytes)
  } catch (error) {
    if (error instanceof TypeError) return null
    throw error
  }
}

interface Look {
  readonly problem: string | null
  /** There are numbers below the first level. */
  readonly innerNumbers: boolean
}

/** One walk over the value, without recursion: hostile depth costs a list entry, not a stack frame. */
function lookThrough(root: unknown): Look {
  const waiting: {value: unknown; depth: number; at: string}[] = [{value: root, depth: 0, at: ''}]
  let innerNumbers = false
  for (let item = waiting.pop(); item !== undefined; item = waiting.pop()) {
    const {value, depth, at} = item
    if (typeof value === 'number' && depth > 1) innerNumbers = true
    if (typeof value === 'string') {
      const problem = textProblem(value)
      if (problem !== null)
        return {problem: `${at === '' ? 'the body' : at}: ${problem}`, innerNumbers}
    }
    if (typeof value !== 'object' || value === null) continue
    if (depth >= JSON_DEPTH_MAX)
      return {problem: `the body: is nested deeper than ${JSON_DEPTH_MAX} levels`, innerNumbers}
    for (const [key, inner] of Object.entries(value)) {
      const problem = Array.isArray(value) ? null : keyProblem(key)
      if (problem !== null) return {problem, innerNumbers}
      waiting.push({value: inner, depth: depth + 1, at: at === '' ? key : `${at}.${key}`})
    }
  }
  return {problem: null, innerNumbers}
}

function keyProblem(key: string): string | null {
  if (POISON_KEYS.has(key)) return `the key "${key}" is not allowed`
  const problem = textProblem(key)
  return problem === null ? null : `a key ${problem}`
}

function textProblem(text: string): string | null {
  if (text.includes('\0')) return 'holds the character U+0000, which cannot be stored'
  if (!text.isWellFormed()) return 'holds half of a surrogate pair, which is not a character'
  return null
}

/** Parses once more, with every number as its source text, and takes what is below the first level from that. */
function withNumbersAsWritten(value: unknown, text: string): unknown {
  const written: unknown = JSON.parse(text, (_key, inner: unknown, context?: {source?: string}) =>
    typeof inner === 'number' && context?.source !== undefined ? context.source : inner,
  )
  if (!isObject(value) || !isObject(written)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      typeof inner === 'object' && inner !== null ? written[key] : inner,
    ]),
  )
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
