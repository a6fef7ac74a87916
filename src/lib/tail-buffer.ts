/**
 * The first and the last bytes of a stream. Bytes are copied: the last ones into one circular buffer that
 * grows up to the limit. Many tiny chunks, or small views of large read buffers, thus cost only the memory of
 * their bytes.
 */

/** First size of the buffer: most commands print little. */
const FIRST_BUFFER_BYTES = 1024
const EMPTY = new Uint8Array(0)

/** The first bytes of a stream. */
export class StartBuffer {
  readonly #limit: number
  #buffer: Uint8Array = EMPTY
  #size = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Copies what fits and ignores the rest. */
  push(bytes: Uint8Array): void {
    const kept = bytes.subarray(0, this.#limit - this.#size)
    if (kept.length === 0) return
    const size = this.#size + kept.length
    if (size > this.#buffer.length) {
      const doubled = Math.max(FIRST_BUFFER_BYTES, size, this.#buffer.length * 2)
      const larger = new Uint8Array(Math.min(this.#limit, doubled))
      larger.set(this.bytes)
      this.#buffer = larger
    }
    this.#buffer.set(kept, this.#size)
    this.#size = size
  }

  get bytes(): Uint8Array {
    return this.#buffer.subarray(0, this.#size)
  }
}

export class TailBuffer {
  readonly #limit: number
  /** The byte at absolute position `p` is at `p % length`; never longer than the limit. */
  #buffer: Uint8Array = EMPTY
  #size = 0
  #total = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Bytes written in total. */
  get totalBytes(): number {
    return this.#total
  }

  /** Bytes in the buffer. */
  get heldBytes(): number {
    return this.#size
  }

  /** Copies `bytes` and drops the oldest bytes beyond the limit. */
  push(bytes: Uint8Array): void {
    const kept = bytes.length > this.#limit ? bytes.subarray(bytes.length - this.#limit) : bytes
    this.#total += bytes.length
    const size = Math.min(this.#limit, this.#size + kept.length)
    this.#reserve(size, this.#total - bytes.length)
    this.#size = size
    this.#write(this.#total - kept.length, kept)
  }

  /** Removes and returns the buffered bytes, with the absolute position of the first. */
  take(): {readonly offset: number; readonly bytes: Uint8Array} {
    const bytes = this.#read(this.#total)
    this.#buffer = EMPTY
    this.#size = 0
    return {offset: this.#total - bytes.length, bytes}
  }

  /** Puts back bytes from `take`, as far as the limit allows. Only `push` may be called in between. */
  unshift(bytes: Uint8Array): void {
    const room = this.#limit - this.#size
    const kept = bytes.length > room ? bytes.subarray(bytes.length - room) : bytes
    this.#reserve(this.#size + kept.length, this.#total)
    this.#size += kept.length
    this.#write(this.#total - this.#size, kept)
  }

  /** Makes room for `size` bytes. The buffered bytes end before absolute position `end`. */
  #reserve(size: number, end: number): void {
    if (size <= this.#buffer.length) return
    const kept = this.#read(end)
    const doubled = Math.max(FIRST_BUFFER_BYTES, size, this.#buffer.length * 2)
    this.#buffer = new Uint8Array(Math.min(this.#limit, doubled))
    this.#write(end - kept.length, kept)
  }

  #write(position: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return
    const start = position % this.#buffer.length
    const toEnd = this.#buffer.length - start
    this.#buffer.set(bytes.subarray(0, toEnd), start)
    if (bytes.length > toEnd) this.#buffer.set(bytes.subarray(toEnd), 0)
  }

  /** A copy of the buffered bytes, which end before absolute position `end`. */
  #read(end: number): Uint8Array {
    if (this.#size === 0) return EMPTY
    const bytes = new Uint8Array(this.#size)
    const start = (end - bytes.length) % this.#buffer.length
    const first = this.#buffer.subarray(start, start + bytes.length)
    bytes.set(first)
    bytes.set(this.#buffer.subarray(0, bytes.length - first.length), first.length)
    return bytes
  }
}
