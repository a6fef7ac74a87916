/**
 * Sets of the numbers 0 to 63 in two 32-bit words: the allowed values of a cron field. The operations of the
 * hot paths (next, previous, count below) are a few machine instructions instead of an array scan.
 */
export interface BitSet {
  /** 0 to 31. */
  readonly low: number
  /** 32 to 63. */
  readonly high: number
}

/** The set of `values`, each 0 to 63. */
export function bitSetOf(values: Iterable<number>): BitSet {
  let low = 0
  let high = 0
  for (const value of values) {
    if (value < 32) low |= 1 << value
    else high |= 1 << (value - 32)
  }
  return {low, high}
}

export function has(set: BitSet, value: number): boolean {
  return value < 32 ? ((set.low >>> value) & 1) === 1 : ((set.high >>> (value - 32)) & 1) === 1
}

/** Smallest member ≥ `value`, or -1. `value` from 0 to 64. */
export function nextMember(set: BitSet, value: number): number {
  if (value < 32) {
    const found = nextBit(set.low, value)
    if (found >= 0) return found
  }
  const found = nextBit(set.high, Math.max(0, value - 32))
  return found < 0 ? -1 : found + 32
}

/** Largest member ≤ `value`, or -1. `value` from -1 to 63. */
export function previousMember(set: BitSet, value: number): number {
  if (value >= 32) {
    const found = previousBit(set.high, value - 32)
    if (found >= 0) return found + 32
  }
  return previousBit(set.low, Math.min(31, value))
}

/** Number of members < `value`. `value` from 0 to 64. */
export function countBelow(set: BitSet, value: number): number {
  if (value <= 32) return countBits(bitsBelow(set.low, value))
  return countBits(set.low) + countBits(bitsBelow(set.high, value - 32))
}

/** Position of the lowest bit at `from` or above, or -1. `from` from 0 to 32. */
export function nextBit(word: number, from: number): number {
  if (from > 31) return -1
  const rest = word >>> from
  return rest === 0 ? -1 : from + 31 - Math.clz32(rest & -rest)
}

/** Position of the highest bit at `from` or below, or -1. `from` from -1 to 31. */
export function previousBit(word: number, from: number): number {
  if (from < 0) return -1
  const rest = word << (31 - from)
  return rest === 0 ? -1 : from - Math.clz32(rest)
}

/** `word` without the bits at `until` and above. `until` from 0 to 32. */
export function bitsBelow(word: number, until: number): number {
  return until > 31 ? word : word & ((1 << until) - 1)
}

/** Number of set bits in a 32-bit word. */
export function countBits(word: number): number {
  let sum = word - ((word >>> 1) & 0x55555555)
  sum = (sum & 0x33333333) + ((sum >>> 2) & 0x33333333)
  return Math.imul((sum + (sum >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
