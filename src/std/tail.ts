/** The last bytes of a stream whose beginning may be forgotten. Memory is bounded by the limit and one chunk. */
export class Tail {
  readonly #limit: number
  #chunks: Uint8Array[] = []
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

  /** Keeps `bytes` (not copied: they belong to the tail now) and lets go what no longer counts. */
  push(bytes: Uint8Array): void {
    this.#total += bytes.length
    const kept = bytes.length > this.#limit ? bytes.slice(bytes.length - this.#limit) : bytes
    this.#chunks.push(kept)
    this.#held += kept.length
    while (this.#held - this.#chunks[0]!.length >= this.#limit)
      this.#held -= this.#chunks.shift()!.length
  }

  /** Takes what is held, at most the limit: absolute position of the first byte, and the bytes. The tail is empty afterwards. */
  take(): {readonly offset: number; readonly bytes: Uint8Array} {
    const size = Math.min(this.#held, this.#limit)
    const bytes = new Uint8Array(size)
    let end = size
    for (let index = this.#chunks.length - 1; index >= 0 && end > 0; index -= 1) {
      const chunk = this.#chunks[index]!
      const part = chunk.length > end ? chunk.subarray(chunk.length - end) : chunk
      bytes.set(part, end - part.length)
      end -= part.length
    }
    this.#chunks = []
    this.#held = 0
    return {offset: this.#total - size, bytes}
  }

  /** Gives back what `take` answered and could not be used, if it still counts. Nothing but `push` may lie between. */
  unshift(bytes: Uint8Array): void {
    const room = this.#limit - this.#held
    if (room <= 0 || bytes.length === 0) return
    const kept = bytes.length > room ? bytes.slice(bytes.length - room) : bytes
    this.#chunks.unshift(kept)
    this.#held += kept.length
  }
}
