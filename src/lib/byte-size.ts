/**
 * Byte sizes as people write them: `512MiB`, `1.5 GB`, `1048576`. One grammar for configuration, job
 * parameters and messages. Decimal units (KB, MB) are powers of 1000, binary units (KiB, MiB) powers
 * of 1024.
 */
import {assert} from './assert.ts'

const UNITS: ReadonlyMap<string, number> = new Map([
  ['', 1],
  ['b', 1],
  ['kb', 1e3],
  ['mb', 1e6],
  ['gb', 1e9],
  ['tb', 1e12],
  ['kib', 2 ** 10],
  ['mib', 2 ** 20],
  ['gib', 2 ** 30],
  ['tib', 2 ** 40],
])

/**
 * Reads a decimal number with an optional unit in any case, with or without blanks between them.
 * Returns whole bytes, rounded; `null` when `text` is not a byte size. The result may be 0 or exceed
 * 2^53: limits belong to the caller.
 */
export function parseByteSize(text: string): number | null {
  const match = /^(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)$/.exec(text)
  if (match === null) return null
  const unit = UNITS.get(match[2]!.toLowerCase())
  return unit === undefined ? null : Math.round(Number(match[1]) * unit)
}

const BINARY_UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const

/**
 * Text for people, in the largest binary unit that fits, rounded to one decimal: `0 B`, `1.5 KiB`,
 * `64 MiB`. `parseByteSize` reads it back, exactly unless it was rounded.
 */
export function formatByteSize(bytes: number): string {
  assert(Number.isSafeInteger(bytes) && bytes >= 0, `a byte size must be whole, not ${bytes}`)
  let amount = bytes
  let unit = 0
  // Compared as it is shown, so that 1023.99 KiB becomes 1 MiB, not 1024 KiB.
  while (rounded(amount) >= 1024 && unit < BINARY_UNITS.length - 1) {
    amount /= 1024
    unit += 1
  }
  return `${rounded(amount)} ${BINARY_UNITS[unit]}`
}

function rounded(amount: number): number {
  return Math.round(amount * 10) / 10
}
