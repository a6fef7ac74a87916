/** Quotes a value that was sent for a message: short, in one line, and without control characters. */

const SHOWN_LENGTH_MAX = 64

/** Controls, and format characters that reorder or hide text. JSON escapes only some of them. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu

/** Quotes a value as JSON. A long value is cut. */
export function quoteForMessage(value: unknown): string {
  const text = typeof value === 'string' ? value.slice(0, SHOWN_LENGTH_MAX + 1) : value
  const json = JSON.stringify(text) ?? 'undefined'
  const short = json.length > SHOWN_LENGTH_MAX ? `${json.slice(0, SHOWN_LENGTH_MAX)}…` : json
  return escapeInvisible(short)
}

/** Escapes characters that reorder or hide text. */
export function escapeInvisible(text: string): string {
  return text.toWellFormed().replaceAll(UNSAFE, escaped)
}

function escaped(character: string): string {
  return `\\u${character.codePointAt(0)!.toString(16).padStart(4, '0')}`
}
