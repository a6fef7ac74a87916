/** The end of an output in messages: its last lines, within the bounds of a message. Pure. */

/** Bytes that are read for it: 100 lines of usual length. */
export const OUTPUT_BYTES_MAX = 16 * 1024
/** Characters of all incidents of a message: messages are kept for 30 days. */
export const OUTPUT_LENGTH_MAX = 16 * 1024

/** `isCut`: the text begins somewhere in a line, which is left out unless it is the only one. */
export function lastLines(text: string, count: number, isCut: boolean): string {
  const lines = text.replace(/(?:\r?\n)+$/, '').split('\n')
  const whole = isCut && lines.length > 1 ? lines.slice(1) : lines
  return count === 0 ? '' : whole.slice(-count).join('\n')
}
