/**
 * Splits a stream of bytes into lines. A line above the limit is split into pieces, so output without a
 * newline does not accumulate in memory. Buffers at most one piece.
 */
export class LineCutter {
  readonly #bytesMax: number
  #buffered: Buffer

  /** `bytesMax` applies to each line and is at least 4. */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
    this.#buffered = Buffer.alloc(0)
  }

  /** The complete lines without their newlines. Invalid UTF-8 is replaced. */
  *push(bytes: Uint8Array): Generator<string> {
    const fresh = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    const all = this.#buffered.length === 0 ? fresh : Buffer.concat([this.#buffered, fresh])
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
    // A copy, so the last few bytes do not keep the whole chunk in memory.
    this.#buffered = Buffer.from(all.subarray(start))
  }

  /** The incomplete line at the end of the stream; `null` when the stream ended with a newline. */
  rest(): string | null {
    const text = withoutReturn(this.#buffered.toString('utf8'))
    const empty = this.#buffered.length === 0
    this.#buffered = Buffer.alloc(0)
    return empty ? null : text
  }

  /** End of a piece. Does not split a character of valid UTF-8. */
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
