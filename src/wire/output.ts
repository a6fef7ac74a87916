/** Output of commands as text: UTF-8, cut only between characters. */

const CONTINUATION_MASK = 0xc0
const CONTINUATION = 0x80

/** Output as text: UTF-8, with U+FFFD for other bytes. */
export function decodeOutput(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes)
}

/** The last characters of `text` that fit into `bytesMax` bytes of UTF-8. */
export function lastBytes(text: string, bytesMax: number): {text: string; cutBytes: number} {
  if (text.length * 3 <= bytesMax) return {text, cutBytes: 0}
  const bytes = new TextEncoder().encode(text)
  if (bytes.length <= bytesMax) return {text, cutBytes: 0}
  let from = bytes.length - bytesMax
  while (from < bytes.length && (bytes[from]! & CONTINUATION_MASK) === CONTINUATION) from += 1
  return {text: decodeOutput(bytes.subarray(from)), cutBytes: from}
}

/** Number of bytes at the end that start an incomplete character: 0 to 3. */
export function unfinishedBytes(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back]!
    if ((byte & CONTINUATION_MASK) === CONTINUATION) continue
    const needs = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return needs > back ? back : 0
  }
  return 0
}
