/**
 * JSON as it comes in from anyone: parsed, then looked through for what must never get further (keys that
 * poison objects, characters that stores and terminals choke on, depth). Browser-safe; it knows nothing of
 * jobs.
 */

/** Deeper than any shape of this interface; bounds every later recursion. */
export const JSON_DEPTH_MAX = 32

/**
 * A definition at all its limits has a tenth of these. Beyond them parsing once more would stop the process
 * for a second, and whatever it is will be refused anyway.
 */
const EXACT_NODES_MAX = 20_000

const POISON_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

export type JsonReading =
  | {readonly kind: 'value'; readonly value: unknown}
  /** Not JSON. */
  | {readonly kind: 'syntax'; readonly problem: string}
  /** JSON that is refused for what it holds. */
  | {readonly kind: 'content'; readonly problem: string}

/**
 * Parses text. Numbers inside of objects inside of the value (values of maps) come as the text they were
 * written in, so that `1.10` or a long id survives being stored as text; numbers at the top stay numbers.
 */
export function readJson(text: string): JsonReading {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return {kind: 'syntax', problem: error.message}
    throw error
  }
  const walk = new Walk()
  const problem = walk.problemOf(value, 0)
  if (problem !== null) return {kind: 'content', problem: placed(problem)}
  const exact = walk.innerNumbers && walk.nodes <= EXACT_NODES_MAX
  return {kind: 'value', value: exact ? withNumbersAsWritten(value, text) : value}
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

/** One walk over a value. Recursion is bounded by the depth that is allowed. */
class Walk {
  /** There are numbers as values of objects below the first level. */
  innerNumbers = false
  nodes = 0

  /** What is wrong, as a sentence that begins with where; `null` when nothing is. */
  problemOf(value: unknown, depth: number): string | null {
    this.nodes += 1
    if (typeof value === 'string') {
      const problem = textProblem(value)
      return problem === null ? null : `: ${problem}`
    }
    if (typeof value !== 'object' || value === null) return null
    if (depth >= JSON_DEPTH_MAX) return `: is nested deeper than ${JSON_DEPTH_MAX} levels`
    return Array.isArray(value) ? this.#inArray(value, depth) : this.#inObject(value, depth)
  }

  #inArray(values: readonly unknown[], depth: number): string | null {
    for (let index = 0; index < values.length; index += 1) {
      const problem = this.problemOf(values[index], depth + 1)
      if (problem !== null) return `.${index}${problem}`
    }
    return null
  }

  #inObject(fields: object, depth: number): string | null {
    for (const [key, value] of Object.entries(fields)) {
      const bad = keyProblem(key)
      if (bad !== null) return `: ${bad}`
      if (typeof value === 'number' && depth > 0) this.innerNumbers = true
      const problem = this.problemOf(value, depth + 1)
      if (problem !== null) return `.${key}${problem}`
    }
    return null
  }
}

/** `.tags.web: is wrong` → `tags.web: is wrong`; at the very top it is the body. */
function placed(problem: string): string {
  return problem.startsWith('.') ? problem.slice(1) : `the body${problem}`
}

function keyProblem(key: string): string | null {
  if (POISON_KEYS.has(key)) return `holds the key "${key}", which is not allowed`
  const problem = textProblem(key)
  return problem === null ? null : `a key ${problem}`
}

function textProblem(text: string): string | null {
  if (text.includes('\0')) return 'holds the character U+0000, which cannot be stored'
  if (!text.isWellFormed()) return 'holds half of a surrogate pair, which is not a character'
  return null
}

/**
 * Parses once more, with every number as its source text, and takes what is below the first level from that.
 */
function withNumbersAsWritten(value: unknown, text: string): unknown {
  const written: unknown = JSON.parse(text, (_key, inner: unknown, context?: {source?: string}) =>
    typeof inner === 'number' && context?.source !== undefined ? context.source : inner,
  )
  if (!isObject(value) || !isObject(written)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, isObject(inner) ? written[key] : inner]),
  )
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
