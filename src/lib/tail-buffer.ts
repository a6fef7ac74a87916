/**
 * The last bytes of a stream whose beginning may be forgotten. Bytes are copied into one ring that
 * grows up to the limit, so that neither many tiny chunks nor small views of large read buffers cost
 * more memory than what they hold.
 */

/** The ring's first size: most commands print little. */
const FIRST_RING_BYTES = 1024
const EMPTY = new Uint8Array(0)

export class TailBuffer {
  readonly #limit: number
  /** The byte at absolute position `p` stands at `p % length`; never longer than the limit. */
  #ring: Uint8Array = EMPTY
  #held = 0
  #total = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Bytes written in all. */
  get totalBytes(): number {
    return this.#total
  }

  /** Bytes held now. */
  get heldBytes(): number {
    return this.#held
  }

  /** Copies `bytes` and lets go what no longer counts. */
  push(bytes: Uint8Array): void {
    const kept = bytes.length > this.#limit ? bytes.subarray(bytes.length - this.#limit) : bytes
    this.#total += bytes.length
    const held = Math.min(this.#limit, this.#held + kept.length)
    this.#reserve(held, this.#total - bytes.length)
    this.#held = held
    this.#write(this.#total - kept.length, kept)
  }

  /**
   * Takes what is held, at most the limit: absolute position of the first byte, and the bytes. The tail
   * is empty afterwards.
   */
  take(): {readonly offset: number; readonly bytes: Uint8Array} {
    const bytes = this.#read(this.#total)
    this.#ring = EMPTY
    this.#held = 0
    return {offset: this.#total - bytes.length, bytes}
  }

  /**
   * Gives back what `take` answered and could not be used, if it still counts. Nothing but `push` may
   * lie between.
   */
  unshift(bytes: Uint8Array): void {
    const room = this.#limit - this.#held
    const kept = bytes.length > room ? bytes.subarray(bytes.length - room) : bytes
    this.#reserve(this.#held + kept.length, this.#total)
    this.#held += kept.length
    this.#write(this.#total - this.#held, kept)
  }

  /** Makes room for `size` bytes; what is held ends before absolute position `end`. */
  #reserve(size: number, end: number): void {
    if (size <= this.#ring.length) return
    const held = this.#read(end)
    const doubled = Math.max(FIRST_RING_BYTES, size, this.#ring.length * 2)
    this.#ring = new Uint8Array(Math.min(this.#limit, doubled))
    this.#write(end - held.length, held)
  }

  #write(position: number, bytes: Uint8Array): void {
    if (bytes.length === 0) return
    const start = position % this.#ring.length
    const toEnd = this.#ring.length - start
    this.#ring.set(bytes.subarray(0, toEnd), start)
    if (bytes.length > toEnd) this.#ring.set(bytes.subarray(toEnd), 0)
  }

  /** A copy of what is held, which ends before absolute position `end`. */
  #read(end: number): Uint8Array {
    const bytes = new Uint8Array(this.#held)
    if (bytes.length === 0) return bytes
    const start = (end - bytes.length) % this.#ring.length
    const first = this.#ring.subarray(start, start + bytes.length)
    bytes.set(first)
    bytes.set(this.#ring.subarray(0, bytes.length - first.length), first.length)
    return bytes
  }
}
