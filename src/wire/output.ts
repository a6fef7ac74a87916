/**
 * Output as text: bytes shown as UTF-8 with replacement, cut at its front to a number of bytes without
 * splitting a character. Apart from executions because following a run needs the same borders.
 */

/** Bytes of output that lists carry for each execution unless asked otherwise. */
export const LISTED_OUTPUT_BYTES = 16 * 1024
/** No store keeps more of one execution. */
export const KEPT_OUTPUT_BYTES = 256 * 1024

const CONTINUATION_MASK = 0xc0
const CONTINUATION = 0x80

/** Bytes as UTF-8, what is not UTF-8 as U+FFFD. */
export function decodeOutput(bytes: Uint8Array): string {
  return new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes)
}

/** The last characters of `text` that fit into `bytesMax` bytes of UTF-8. */
export function lastBytes(text: string, bytesMax: number): {text: string; cut: boolean} {
  if (text.length * 3 <= bytesMax) return {text, cut: false}
  const bytes = new TextEncoder().encode(text)
  if (bytes.length <= bytesMax) return {text, cut: false}
  let from = bytes.length - bytesMax
  while (from < bytes.length && (bytes[from]! & CONTINUATION_MASK) === CONTINUATION) from += 1
  return {text: decodeOutput(bytes.subarray(from)), cut: true}
}

/** How many bytes at the end are the begin of a character whose rest has not come yet: 0 to 3. */
export function unfinishedBytes(bytes: Uint8Array): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back]!
    if ((byte & CONTINUATION_MASK) === CONTINUATION) continue
    const needs = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return needs > back ? back : 0
  }
  return 0
}
