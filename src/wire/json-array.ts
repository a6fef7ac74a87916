/**
 * Splits a JSON array that arrives in pieces into the texts of its elements, so that a file of a hundred
 * thousand jobs never has to be one string or one pause of the event loop. It finds borders only; what an
 * element holds is for `readJson` to judge.
 */

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const OPENERS: ReadonlySet<number> = new Set([0x5b, 0x7b])
const CLOSERS: ReadonlySet<number> = new Set([0x5d, 0x7d])
const OPEN_ARRAY = 0x5b
const CLOSE_ARRAY = 0x5d
const BLANKS: ReadonlySet<number> = new Set([0x20, 0x09, 0x0a, 0x0d])
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf]

type Place = 'before' | 'inside' | 'after'

/** Thrown for what is not one JSON array, or has an element beyond the limit. `message` is a sentence. */
export class NotAnArray extends Error {
  override readonly name = 'NotAnArray'
}

export class JsonArraySplitter {
  readonly #elementBytesMax: number
  #place: Place = 'before'
  #depth = 0
  #inString = false
  #escaped = false
  #pieces: Uint8Array[] = []
  #held = 0
  #seen = 0
  #elements = 0
  #comma = false

  constructor(elementBytesMax: number) {
    this.#elementBytesMax = elementBytesMax
  }

  /** Takes the next stretch of bytes; answers the elements that it completes, in order. */
  push(bytes: Uint8Array): Uint8Array[] {
    const complete: Uint8Array[] = []
    let from = 0
    for (let index = 0; index < bytes.length; index += 1) {
      const byte = bytes[index]!
      if (this.#place !== 'inside') {
        this.#outside(byte)
        from = index + 1
        continue
      }
      if (this.#withinValue(byte)) continue
      if (byte !== COMMA && byte !== CLOSE_ARRAY) continue
      const element = this.#take(bytes.subarray(from, index))
      this.#border(byte, element, complete)
      from = index + 1
    }
    if (this.#place === 'inside') this.#hold(bytes.subarray(from))
    return complete
  }

  /** To be called when nothing more comes. Throws `NotAnArray` when the array is not complete. */
  end(): void {
    if (this.#place === 'before') throw new NotAnArray('the file must hold a JSON array of jobs')
    if (this.#place === 'inside')
      throw new NotAnArray('the file ends in the middle of the JSON array')
  }

  #outside(byte: number): void {
    this.#seen += 1
    if (BLANKS.has(byte)) return
    if (this.#place === 'before' && this.#seen <= 3 && byte === BYTE_ORDER_MARK[this.#seen - 1])
      return
    if (this.#place === 'before' && byte === OPEN_ARRAY) {
      this.#place = 'inside'
      return
    }
    if (this.#place === 'before') throw new NotAnArray('the file must hold a JSON array of jobs')
    throw new NotAnArray('the file goes on after the end of the JSON array')
  }

  /** Follows strings and nesting. True when the byte belongs to the element and is no border. */
  #withinValue(byte: number): boolean {
    if (this.#inString) {
      if (this.#escaped) this.#escaped = false
      else if (byte === BACKSLASH) this.#escaped = true
      else if (byte === QUOTE) this.#inString = false
      return true
    }
    if (byte === QUOTE) this.#inString = true
    else if (OPENERS.has(byte)) this.#depth += 1
    else if (CLOSERS.has(byte) && this.#depth > 0) this.#depth -= 1
    else return this.#depth > 0
    return true
  }

  #border(byte: number, element: Uint8Array, complete: Uint8Array[]): void {
    const empty = element.every((held) => BLANKS.has(held))
    if (!empty) {
      complete.push(element)
      this.#elements += 1
    } else if (byte === COMMA || this.#comma) {
      throw new NotAnArray(`an element is missing after ${this.#elements} elements`)
    }
    this.#comma = byte === COMMA
    if (byte === CLOSE_ARRAY) this.#place = 'after'
  }

  #hold(bytes: Uint8Array): void {
    if (bytes.length === 0) return
    this.#held += bytes.length
    if (this.#held > this.#elementBytesMax)
      throw new NotAnArray(
        `element ${this.#elements + 1} is larger than ${this.#elementBytesMax} bytes`,
      )
    this.#pieces.push(bytes)
  }

  #take(last: Uint8Array): Uint8Array {
    this.#hold(last)
    const [only] = this.#pieces
    const element =
      this.#pieces.length === 1 && only !== undefined ? only : concat(this.#pieces, this.#held)
    this.#pieces = []
    this.#held = 0
    return element
  }
}

function concat(pieces: readonly Uint8Array[], total: number): Uint8Array {
  const whole = new Uint8Array(total)
  let at = 0
  for (const piece of pieces) {
    whole.set(piece, at)
    at += piece.length
  }
  return whole
}
