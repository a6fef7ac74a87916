/**
 * Cuts a stream of bytes into lines for receivers that take lines. A line longer than the limit comes in
 * pieces, so that output without a newline never gathers in memory. Holds at most one piece.
 */
export class LineCutter {
  readonly #bytesMax: number
  #held: Buffer

  /** `bytesMax` per line, at least 4. */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
    this.#held = Buffer.alloc(0)
  }

  /**
   * The lines that are whole now, without their newlines, as text with replacements for what is not UTF-8.
   */
  *push(bytes: Uint8Array): Generator<string> {
    const fresh = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const all = this.#held.length === 0 ? fresh : Buffer.concat([this.#held, fresh])
    let start = 0
    for (;;) {
      const newline = all.indexOf(0x0a, start)
      const end = newline < 0 ? all.length : newline
      while (end - start > this.#bytesMax) {
        const piece = this.#pieceEnd(all, start)
        yield all.toString('utf8', start, piece)
        start = piece
      }
      if (newline < 0) break
      yield withoutReturn(all.toString('utf8', start, newline))
      start = newline + 1
    }
    // A copy: the chunk is not held for the sake of its last few bytes.
    this.#held = Buffer.from(all.subarray(start))
  }

  /** What is left when the stream is over; `null` when it ended with a newline. */
  rest(): string | null {
    const text = withoutReturn(this.#held.toString('utf8'))
    const empty = this.#held.length === 0
    this.#held = Buffer.alloc(0)
    return empty ? null : text
  }

  /** Does not cut within a character where it can be helped. */
  #pieceEnd(bytes: Buffer, start: number): number {
    let end = start + this.#bytesMax
    const earliest = end - 3
    while (end > earliest && (bytes[end]! & 0xc0) === 0x80) end -= 1
    return end
  }
}

function withoutReturn(line: string): string {
  return line.endsWith('\r') ? line.slice(0, -1) : line
}
