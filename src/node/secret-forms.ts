/**
 * Forms of a secret: the texts that show its value in an output. Itself, its lines, common encodings of it,
 * and the parts of a URL that are shown or sent by themselves. Wrapped lines are no forms: the search
 * ignores line breaks.
 */
import {percentEncoded} from '../core/secret.ts'

/** A shorter part of a value, such as a line of it, is in every output. */
export const FORM_LENGTH_MIN = 6

/** Each once. */
export function formsOf(value: string): readonly string[] {
  const trimmed = value.trim()
  const texts = [value, trimmed, value.replaceAll(/\r?\n/g, '\r\n'), ...linesOf(value)]
  const {urls, parts} = formsOfUrl(trimmed)
  const shown = [...texts, ...urls, ...parts, ...[trimmed, ...parts].flatMap(encodings)]
  return [...new Set(shown)].filter(({length}) => length >= FORM_LENGTH_MIN)
}

function linesOf(value: string): string[] {
  return value.split(/\r\n|\r|\n/).map((line) => line.trim())
}

function encodings(text: string): string[] {
  const bytes = Buffer.from(text)
  const hex = bytes.toString('hex')
  return [
    ...percentCodes(text),
    ...jsonOf(text),
    hex,
    hex.toUpperCase(),
    ...base64Of(bytes, 'base64'),
    ...base64Of(bytes, 'base64url'),
  ]
}

/** Encoders differ in what they leave as it is, in the case of the digits, and in the code of a blank. */
function percentCodes(text: string): string[] {
  const codes = [percentEncoded(text), encodeURIComponent(text), encodeURI(text)]
  const inPaths = codes.map((code) => code.replaceAll('%2F', '/'))
  const inForms = codes.map((code) => code.replaceAll('%20', '+'))
  const upper = [...codes, ...inPaths, ...inForms]
  return [
    ...upper,
    ...upper.map((code) => code.replaceAll(/%../g, (escape) => escape.toLowerCase())),
  ]
}

/** JSON strings as JavaScript, Python (ASCII only) and PHP write them. */
function jsonOf(text: string): string[] {
  const json = JSON.stringify(text).slice(1, -1)
  const ascii = json.replaceAll(
    /[^\0-\x7f]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
  return [json, ascii, json.replaceAll('/', '\\/'), ascii.replaceAll('/', '\\/')]
}

/**
 * Base64 depends on the position of the value in what was encoded: `user:password`, for example.
 */
function base64Of(bytes: Buffer, encoding: 'base64' | 'base64url'): string[] {
  const inside = [0, 1, 2].map((offset) => {
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString(encoding)
    // Characters that also encode the bytes before or after are left out.
    return text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6))
  })
  return [bytes.toString(encoding), ...inside]
}

/**
 * `urls`: as it is sent, for example with a slash after the host; without its user and password, as
 * messages show it; its path, as the server shows it. `parts`: user and password, by themselves and as
 * they are sent in the header `Authorization`.
 */
function formsOfUrl(value: string): {urls: string[]; parts: string[]} {
  const url = /^https?:/i.test(value) ? URL.parse(value) : null
  if (url === null) return {urls: [], parts: []}
  const {href, pathname, search, username, password, origin} = url
  const urls = [href, `${origin}${pathname}${search}`, `${pathname}${search}`]
  // A path of a root is in every output.
  if (pathname !== '/') urls.push(`${origin}${pathname}`, pathname)
  const [user, pass] = [username, password].map(percentDecoded)
  const parts = [username, password, user!, pass!]
  if (username !== '' || password !== '') parts.push(`${user}:${pass}`)
  return {urls, parts}
}

function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text // a "%" that does not start an escape
  }
}
