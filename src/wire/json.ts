/**
 * Untrusted JSON: parsed, then checked for content that must not go further. That is: keys that pollute
 * prototypes, characters that stores and terminals cannot handle, and nesting that is too deep. Runs in a
 * browser; knows nothing about jobs.
 */

import type {Finding} from '../core/findings.ts'
import {escapeInvisible} from '../lib/quote.ts'

/** Deeper than any shape of this API. Bounds every later recursion. */
export const JSON_DEPTH_MAX = 32

/**
 * Numbers keep their source text only in values with at most this many nodes. The largest valid job
 * definition has a tenth of them. A larger value is rejected later in any case, and parsing it a second time
 * would block the event loop for a second.
 */
const EXACT_NODES_MAX = 20_000

const POISON_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])

export type JsonResult =
  | {readonly kind: 'value'; readonly value: unknown}
  /** The text is not JSON. */
  | {readonly kind: 'syntax'; readonly problem: string}
  /** The text is JSON with content that is rejected. */
  | {readonly kind: 'content'; readonly problem: string; readonly finding: Finding}

/**
 * Parses JSON. Numbers below the first level of objects (values of maps) are returned as their source text,
 * so that `1.10` or a long id is stored unchanged. Numbers on the first level stay numbers.
 */
export function readJson(text: string): JsonResult {
  if (text.trim() === '') return {kind: 'syntax', problem: 'it is empty; it must be JSON'}
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError)
      return {kind: 'syntax', problem: `${escapeInvisible(error.message)}${syntaxHint(text)}`}
    throw error
  }
  const check = new ContentCheck()
  const found = check.problemOf(value, 0)
  if (found !== null) return {kind: 'content', problem: sentenceOf(found), finding: found}
  const isExact = check.hasInnerNumbers && check.nodes <= EXACT_NODES_MAX
  return {kind: 'value', value: isExact ? withSourceNumbers(value, text) : value}
}

/** Deeper nesting says nothing to a person. */
const CLOSERS_SHOWN = 5

/** The end of a sentence about a text that is not JSON: its likely mistake; else `''`. */
export function syntaxHint(text: string): string {
  const other = otherFormat(text)
  if (other !== '') return other
  if (/[{[,:]\s*'/.test(text)) return '; JSON needs double quotes'
  if (/,\s*[\]}]/.test(text)) return '; JSON has no comma before ] or }'
  if (/[{,]\s*[A-Za-z_]\w*\s*:/.test(text)) return '; JSON needs double quotes around names'
  const end = missingEnd(text)
  return end === '' ? '' : `; its end is missing, at least ${end}`
}

/** Text that closes the strings, objects and arrays that are open at the end, such as `"}`. */
function missingEnd(text: string): string {
  const open: string[] = []
  let isString = false
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at]!
    if (character === '"') isString = !isString
    else if (isString) at += character === '\\' ? 1 : 0
    else if (character === '{') open.push('}')
    else if (character === '[') open.push(']')
    else if (character === open.at(-1)) open.pop()
  }
  return (isString ? '"' : '') + open.slice(-CLOSERS_SHOWN).toReversed().join('')
}

/** The end of a sentence about a text that is not JSON, if it looks like another format; else `''`. */
export function otherFormat(text: string): string {
  const [first = ''] = text.split(/\r?\n/).filter((line) => !/^\s*(#.*)?$/.test(line))
  const isYaml = /^(---(\s|$)|- |\s*[\w-]+:(\s|$))/.test(first)
  const isHcl = /^\s*[\w-]+(\s+"[^"]*")*\s*(\{|=\s)/.test(first)
  if (!isYaml && !isHcl) return ''
  return `; this looks like ${isYaml ? 'YAML' : 'HCL'}: convert it to JSON`
}

/** Decodes UTF-8 and parses it. Bytes that are not UTF-8 are a syntax problem. */
export function readJsonBytes(bytes: Uint8Array): JsonResult {
  const text = decodeStrictly(bytes)
  if (text === null) return {kind: 'syntax', problem: 'the body is not UTF-8'}
  return readJson(text)
}

/** UTF-8 as a string, without a leading byte order mark; `null` when the bytes are not UTF-8. */
export function decodeStrictly(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', {fatal: true}).decode(bytes)
  } catch (error) {
    if (error instanceof TypeError) return null
    throw error
  }
}

/** True when the text takes more than `bytesMax` bytes of UTF-8. Encodes only texts near the limit. */
export function isLongerThan(text: string, bytesMax: number): boolean {
  if (text.length > bytesMax) return true
  return text.length * 3 > bytesMax && new TextEncoder().encode(text).length > bytesMax
}

/** Checks one value. `JSON_DEPTH_MAX` bounds the recursion. */
class ContentCheck {
  /** An object below the first level has a number as a value. */
  hasInnerNumbers = false
  nodes = 0

  /** The first problem with the path to it, such as `tags.web`; `null` without one. */
  problemOf(value: unknown, depth: number): Finding | null {
    this.nodes += 1
    if (typeof value === 'string') return at('', textProblem(value))
    if (typeof value !== 'object' || value === null) return null
    if (depth >= JSON_DEPTH_MAX) return at('', `is nested deeper than ${JSON_DEPTH_MAX} levels`)
    return Array.isArray(value) ? this.#inArray(value, depth) : this.#inObject(value, depth)
  }

  #inArray(values: readonly unknown[], depth: number): Finding | null {
    for (let index = 0; index < values.length; index += 1) {
      const found = this.problemOf(values[index], depth + 1)
      if (found !== null) return below(String(index), found)
    }
    return null
  }

  #inObject(fields: object, depth: number): Finding | null {
    for (const [key, value] of Object.entries(fields)) {
      const rejected = keyProblem(key)
      if (rejected !== null) return at('', rejected)
      if (typeof value === 'number' && depth > 0) this.hasInnerNumbers = true
      const found = this.problemOf(value, depth + 1)
      if (found !== null) return below(key, found)
    }
    return null
  }
}

function at(field: string, problem: string | null): Finding | null {
  return problem === null ? null : {field, problem}
}

function below(key: string, {field, problem}: Finding): Finding {
  return {field: field === '' ? key : `${key}.${field}`, problem}
}

/** Problems that have no path are about the body. */
function sentenceOf({field, problem}: Finding): string {
  return `${field === '' ? 'the body' : field}: ${problem}`
}

function keyProblem(key: string): string | null {
  if (POISON_KEYS.has(key)) return `contains the key "${key}", which is not allowed`
  const problem = textProblem(key)
  return problem === null ? null : `a key ${problem}`
}

function textProblem(text: string): string | null {
  if (text.includes('\0')) return 'contains the character U+0000, which cannot be stored'
  if (!text.isWellFormed()) return 'contains half of a surrogate pair, which is not a character'
  return null
}

/** Parses a second time with every number as its source text, and takes the inner objects from there. */
function withSourceNumbers(value: unknown, text: string): unknown {
  const sources: unknown = JSON.parse(text, (_key, inner: unknown, context?: {source?: string}) =>
    typeof inner === 'number' && context?.source !== undefined ? context.source : inner,
  )
  if (!isObject(value) || !isObject(sources)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [key, isObject(inner) ? sources[key] : inner]),
  )
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
