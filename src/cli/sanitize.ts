/**
 * Removes control sequences from untrusted text. The output of a job may contain sequences that recolour or
 * retitle the terminal, move the cursor over earlier output, or make the terminal type. Works on chunks that
 * may split a sequence anywhere. Its only memory is the parser state.
 */

type State = 'text' | 'escape' | 'control' | 'string' | 'stringEscape' | 'charset'

const ESCAPE = 0x1b
const BELL = 0x07
const NEWLINE = 0x0a
const TAB = 0x09
const DELETE = 0x7f
const C1_FIRST = 0x80
const C1_LAST = 0x9f
const C1_CONTROL = 0x9b
const C1_END_OF_STRING = 0x9c
/** 8-bit codes that start a string: DCS, SOS, OSC, PM, APC. */
const C1_STRINGS = [0x90, 0x98, 0x9d, 0x9e, 0x9f]
/** Change the order in which text is shown, so that it reads as another one. */
const REORDERING = [
  0x061c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069,
]
/** `P X ] ^ _` after an escape also start a string. */
const STRING_LETTERS = [0x50, 0x58, 0x5d, 0x5e, 0x5f]

export class PlainText {
  #state: State = 'text'

  /** Returns `text` without control sequences. */
  push(text: string): string {
    let shown = ''
    let from = -1
    for (let at = 0; at < text.length; at += 1) {
      if (this.#isShown(text.charCodeAt(at))) {
        if (from === -1) from = at
      } else if (from !== -1) {
        shown += text.slice(from, at)
        from = -1
      }
    }
    return from === -1 ? shown : shown + text.slice(from)
  }

  #isShown(code: number): boolean {
    // A newline ends every sequence, so an unfinished one hides its own line only.
    if (code === NEWLINE) {
      this.#state = 'text'
      return true
    }
    switch (this.#state) {
      case 'text':
        return this.#text(code)
      case 'escape':
        this.#state = afterEscape(code)
        return false
      case 'charset':
        this.#state = 'text'
        return false
      case 'control':
        if (code >= 0x40 && code <= 0x7e) this.#state = 'text'
        else if (code === ESCAPE) this.#state = 'escape'
        return false
      case 'string':
        if (code === BELL || code === C1_END_OF_STRING) this.#state = 'text'
        else if (code === ESCAPE) this.#state = 'stringEscape'
        return false
      case 'stringEscape':
        this.#state = code === 0x5c ? 'text' : 'string'
        return false
    }
  }

  #text(code: number): boolean {
    if (code === ESCAPE) this.#state = 'escape'
    else if (code === C1_CONTROL) this.#state = 'control'
    else if (C1_STRINGS.includes(code)) this.#state = 'string'
    const control = code < 0x20 || code === DELETE || (code >= C1_FIRST && code <= C1_LAST)
    return (!control || code === TAB) && !REORDERING.includes(code)
  }
}

function afterEscape(code: number): State {
  if (code === 0x5b) return 'control'
  if (STRING_LETTERS.includes(code)) return 'string'
  // Intermediate bytes select a character set: another byte follows.
  if (code >= 0x20 && code <= 0x2f) return 'charset'
  return code === ESCAPE ? 'escape' : 'text'
}

/** `text` as one line without control sequences, for a table. */
export function oneLine(text: string): string {
  return new PlainText().push(text.replaceAll(/[\r\n\t]+/g, ' ')).trim()
}

/** JSON for people and programs: control and format characters, and line separators, are escaped. */
export function plainJson(value: unknown, indent = 0): string {
  return JSON.stringify(value, null, indent).replaceAll(
    /(?!\n)[\p{C}\u2028\u2029]/gu,
    (character) =>
      character.replaceAll(
        /[^]/g,
        (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
      ),
  )
}
