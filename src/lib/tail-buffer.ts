/**
 * The last bytes of a stream. Bytes are copied into one ring buffer that grows up to the limit. Many tiny
 * chunks, or small views of large read buffers, thus cost only the memory of their bytes.
 */

/** First size of the ring: most commands print little. */
const FIRST_RING_BYTES = 1024
const EMPTY = new Uint8Array(0)

export class TailBuffer {
  readonly #limit: number
  /** The byte at absolute position `p` is at `p % length`; never longer than the limit. */
  #ring: Uint8Array = EMPTY
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
    this.#ring = EMPTY
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
    if (size <= this.#ring.length) return
    const kept = this.#read(end)
    const doubled = Math.max(FIRST_RING_BYTES, size, this.#ring.length * 2)
    this.#ring = new Uint8Array(Math.min(this.#limit, doubled))
    this.#write(end - kept.length, kept)
  }

  #write(position: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return
    const start = position % this.#ring.length
    const toEnd = this.#ring.length - start
    this.#ring.set(bytes.subarray(0, toEnd), start)
    if (bytes.length > toEnd) this.#ring.set(bytes.subarray(toEnd), 0)
  }

  /** A copy of the buffered bytes, which end before absolute position `end`. */
  #read(end: number): Uint8Array {
    const bytes = new Uint8Array(this.#size)
    if (bytes.length === 0) return bytes
    const start = (end - bytes.length) % this.#ring.length
    const first = this.#ring.subarray(start, start + bytes.length)
    bytes.set(first)
    bytes.set(this.#ring.subarray(0, bytes.length - first.length), first.length)
    return bytes
  }
}
