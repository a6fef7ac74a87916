/**
 * Streaming splitter for a JSON array: chunks of bytes in, the bytes of each element out. A file of a hundred
 * thousand jobs is never one string, and never blocks the event loop. Only delimiters are found here;
 * `readJson` validates each element.
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

type State = 'before' | 'inside' | 'after'

/** The input is not one JSON array, or an element is too large. `message` is a sentence. */
export class JsonArrayError extends Error {
  override readonly name = 'JsonArrayError'
}

export class JsonArraySplitter {
  readonly #elementBytesMax: number
  #state: State = 'before'
  #depth = 0
  #inString = false
  #escaped = false
  /** Chunks of the current element. */
  #chunks: Uint8Array[] = []
  #chunkBytes = 0
  #outsideBytes = 0
  #elements = 0
  #afterComma = false

  constructor(elementBytesMax: number) {
    this.#elementBytesMax = elementBytesMax
  }

  /** Consumes the next chunk. Returns the elements that it completes, in order. */
  push(bytes: Uint8Array): Uint8Array[] {
    const complete: Uint8Array[] = []
    let from = 0
    for (let index = 0; index < bytes.length; index += 1) {
      const byte = bytes[index]!
      if (this.#state !== 'inside') {
        this.#outside(byte)
        from = index + 1
        continue
      }
      if (this.#withinValue(byte)) continue
      if (byte !== COMMA && byte !== CLOSE_ARRAY) continue
      const element = this.#take(bytes.subarray(from, index))
      this.#delimit(byte, element, complete)
      from = index + 1
    }
    if (this.#state === 'inside') this.#buffer(bytes.subarray(from))
    return complete
  }

  /** Call at the end of the input. Throws `JsonArrayError` when the array is incomplete. */
  end(): void {
    if (this.#state === 'before')
      throw new JsonArrayError('the file must contain a JSON array of jobs')
    if (this.#state === 'inside')
      throw new JsonArrayError('the file ends before the end of the JSON array')
  }

  #outside(byte: number): void {
    this.#outsideBytes += 1
    if (BLANKS.has(byte)) return
    if (
      this.#state === 'before' &&
      this.#outsideBytes <= 3 &&
      byte === BYTE_ORDER_MARK[this.#outsideBytes - 1]
    )
      return
    if (this.#state === 'before' && byte === OPEN_ARRAY) {
      this.#state = 'inside'
      return
    }
    if (this.#state === 'before')
      throw new JsonArrayError('the file must contain a JSON array of jobs')
    throw new JsonArrayError('the file has content after the end of the JSON array')
  }

  /** Tracks strings and nesting. True when the byte belongs to the element and is no delimiter. */
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

  #delimit(byte: number, element: Uint8Array, complete: Uint8Array[]): void {
    const isEmpty = element.every((inner) => BLANKS.has(inner))
    if (!isEmpty) {
      complete.push(element)
      this.#elements += 1
    } else if (byte === COMMA || this.#afterComma) {
      throw new JsonArrayError(`an element is missing after ${this.#elements} elements`)
    }
    this.#afterComma = byte === COMMA
    if (byte === CLOSE_ARRAY) this.#state = 'after'
  }

  #buffer(bytes: Uint8Array): void {
    if (bytes.length === 0) return
    this.#chunkBytes += bytes.length
    if (this.#chunkBytes > this.#elementBytesMax)
      throw new JsonArrayError(
        `element ${this.#elements + 1} is larger than ${this.#elementBytesMax} bytes`,
      )
    this.#chunks.push(bytes)
  }

  #take(last: Uint8Array): Uint8Array {
    this.#buffer(last)
    const [only] = this.#chunks
    const element =
      this.#chunks.length === 1 && only !== undefined
        ? only
        : concat(this.#chunks, this.#chunkBytes)
    this.#chunks = []
    this.#chunkBytes = 0
    return element
  }
}

function concat(chunks: readonly Uint8Array[], total: number): Uint8Array {
  const whole = new Uint8Array(total)
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
  }
  return whole
}
