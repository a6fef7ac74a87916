/**
 * Splits a command line into words by the quoting rules of a POSIX shell and interprets nothing else: no
 * variables, no wildcards, no pipes. Pure.
 */

/**
 * In double quotes a backslash takes the meaning of these only; before anything else it stands for itself.
 */
const ESCAPABLE_IN_DOUBLE = '"\\$`\n'

/** The words, or a sentence (without a full stop) that says what is wrong. */
export function splitWords(text: string): {words: string[]} | {problem: string} {
  const words: string[] = []
  let word: string | null = null
  let at = 0
  while (at < text.length) {
    const character = text[at]!
    if (/\s/.test(character)) {
      if (word !== null) words.push(word)
      word = null
      at += 1
      continue
    }
    word ??= ''
    if (character === "'" || character === '"') {
      const quoted = readQuoted(text, at)
      if (quoted === null)
        return {problem: `the quote ${character} at character ${at + 1} is never closed`}
      word += quoted.text
      at = quoted.end
    } else if (character === '\\') {
      if (at + 1 === text.length) return {problem: 'it ends in a backslash with nothing after it'}
      if (text[at + 1] !== '\n') word += text[at + 1]
      at += 2
    } else {
      word += character
      at += 1
    }
  }
  if (word !== null) words.push(word)
  return {words}
}

/**
 * Reads from the quote at `start`; `null` when it is not closed. `end` is the index after the closing
 * quote.
 */
function readQuoted(text: string, start: number): {text: string; end: number} | null {
  const quote = text[start]!
  let content = ''
  for (let at = start + 1; at < text.length; at++) {
    const character = text[at]!
    if (character === quote) return {text: content, end: at + 1}
    const next = text[at + 1]
    if (
      quote === '"' &&
      character === '\\' &&
      next !== undefined &&
      ESCAPABLE_IN_DOUBLE.includes(next)
    ) {
      if (next !== '\n') content += next
      at += 1
    } else content += character
  }
  return null
}
