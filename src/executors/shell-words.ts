/**
 * Reads a command line by the quoting rules of a POSIX shell: splits it into words, and finds what only a
 * shell would interpret.
 */

/** Characters that a backslash escapes in double quotes. */
const ESCAPABLE_IN_DOUBLE = '"\\$`\n'

/**
 * Splits a command line into words by the quoting rules of a POSIX shell. Nothing else is interpreted: no
 * variables, wildcards or pipes. `problem` has no final period.
 */
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

/** Reads from the quote at `start`. `end` is the index after the closing quote; `null` = not closed. */
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

/** Outside of quotes, what a shell interprets. In the order in which they are tried. */
const SYNTAX = /\|\||&&|\||;|>>|<<|>|<|&(?=\s|$)|`|\$(?:[A-Za-z_]\w*|[{(])/y
const IN_DOUBLE_QUOTES = /`|\$(?:[A-Za-z_]\w*|[{(])/y
/** A variable before the program: its value is not shown. */
const ASSIGNMENT = /^\s*([A-Za-z_]\w*=)/
const SHOWN_MAX = 5
const SHOWN_LENGTH_MAX = 32

/**
 * Shell syntax in a text, as it is written: `|`, `&&`, `$HOME`, `*`. Each once and short, at most five.
 * Empty if a quote is not closed.
 */
export function shellSyntaxIn(text: string): readonly string[] {
  const found = new Set<string>()
  const assigned = ASSIGNMENT.exec(text)?.[1]
  if (assigned !== undefined) found.add(assigned)
  // A `*` or `?` in a URL or after the `=` of an option is rarely a wildcard.
  let isLiteral = false
  for (let at = 0; at < text.length;) {
    const character = text[at]!
    if (character === "'" || character === '"') {
      const quoted = readQuoted(text, at)
      if (quoted === null) return []
      if (character === '"') findInQuotes(text, at + 1, quoted.end - 1, found)
      at = quoted.end
      continue
    }
    if (/\s/.test(character)) isLiteral = false
    else if (character === '=' || text.startsWith('://', at)) isLiteral = true
    const match = matchAt(SYNTAX, text, at)
    if (match !== null) found.add(match)
    else if ('*?'.includes(character) && !isLiteral) found.add(character)
    else if (isHome(text, at)) found.add('~')
    at += character === '\\' ? 2 : (match?.length ?? 1)
  }
  return [...found].slice(0, SHOWN_MAX).map((each) => each.slice(0, SHOWN_LENGTH_MAX))
}

/** `~` as a word, or before a path. */
function isHome(text: string, at: number): boolean {
  return (
    text[at] === '~' &&
    (at === 0 || /\s/.test(text[at - 1]!)) &&
    /^[\s/]?$/.test(text[at + 1] ?? '')
  )
}

function findInQuotes(text: string, from: number, end: number, found: Set<string>): void {
  for (let at = from; at < end; at += 1) {
    const match = matchAt(IN_DOUBLE_QUOTES, text, at)
    if (match !== null) found.add(match)
    if (text[at] === '\\') at += 1
  }
}

function matchAt(pattern: RegExp, text: string, at: number): string | null {
  pattern.lastIndex = at
  return pattern.exec(text)?.[0] ?? null
}
