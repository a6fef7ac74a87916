/**
 * Durations as people write them: `1h30m`, `500ms`. One grammar for schedules, timeouts and options. It has
 * no signs, and no months or years, whose length varies.
 */
import {assert} from './assert.ts'

const SECOND_MS = 1000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

/** 100 years: longer than any sensible wait. Whole ms up to here are far below 2^53. */
export const DURATION_MAX_MS = 36_525 * DAY_MS

/** Longest accepted text: more than any sensible combination of units needs, and cheap to parse. */
const TEXT_LENGTH_MAX = 64

/** Digits of a decimal part that count. With more, the sum is no longer exact in a double. */
const DECIMALS_MAX = 9

/** Units from ms up, in whole ms. */
const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: SECOND_MS,
  m: MINUTE_MS,
  h: HOUR_MS,
  d: DAY_MS,
}

/**
 * Smaller units: how many make one ms. Dividing by a whole number loses less than multiplying by 0.000001.
 * Both spellings of micro are in use: U+00B5 and U+03BC.
 */
const PARTS_OF_MS: Readonly<Record<string, number>> = {
  us: 1000,
  '\u00b5s': 1000,
  '\u03bcs': 1000,
  ns: 1_000_000,
}

/**
 * Parses a duration such as `1h30m`, `1.5h`, `250ms` or `0`: one or more decimal numbers, each with its unit
 * (`ns us µs ms s m h d`), without blanks or signs, in any order. Returns ms, with a fraction only if
 * smaller units were written; `null` when `text` is not a duration or is longer than 100 years.
 */
export function parseDuration(text: string): number | null {
  if (text === '0') return 0
  if (text === '' || text.length > TEXT_LENGTH_MAX) return null
  const part = /(?:(\d+)(?:\.(\d*))?|\.(\d+))(ns|us|\u00b5s|\u03bcs|ms|s|m|h|d)/y
  let total = 0
  while (part.lastIndex < text.length) {
    const match = part.exec(text)
    if (match === null) return null
    total += lengthOf(match[1] ?? '0', match[2] ?? match[3] ?? '', match[4]!)
  }
  return total <= DURATION_MAX_MS ? total : null
}

/**
 * The length of a duration in whole ms, rounded up; `null` when `text` is not one. Instants are whole ms: a
 * length that is compared with them, or added to them, must be whole too.
 */
export function parseLength(text: string): number | null {
  const ms = parseDuration(text)
  return ms === null ? null : Math.ceil(ms)
}

/** Sums whole and decimal parts as integers: `1.005s` is 1005 ms, not 1004.9999999999999. */
function lengthOf(whole: string, decimals: string, unit: string): number {
  const kept = decimals.slice(0, DECIMALS_MAX)
  const unitMs = UNITS_MS[unit] ?? 1
  const inUnitMs = Number(whole) * unitMs + (Number(kept) * unitMs) / 10 ** kept.length
  return inUnitMs / (PARTS_OF_MS[unit] ?? 1)
}

const SHOWN: readonly (readonly [unit: string, perUnit: number])[] = [
  ['d', DAY_MS],
  ['h', HOUR_MS],
  ['m', MINUTE_MS],
  ['s', SECOND_MS],
  ['ms', 1],
]

/**
 * The shortest exact text for a duration in ms: `1h30m`, `500ms`, `1d`, `0s`. Fractions are rounded to the
 * ns. `parseDuration` reads it back, except for a negative duration, which gets a leading `-`. `ms` must be
 * finite.
 */
export function formatDuration(ms: number): string {
  assert(Number.isFinite(ms), `a duration must be finite, not ${ms}`)
  if (ms < 0) return `-${formatDuration(-ms)}`
  let text = ''
  let rest = Math.floor(ms)
  let ns = Math.round((ms - rest) * PARTS_OF_MS.ns!)
  if (ns === PARTS_OF_MS.ns) {
    rest += 1
    ns = 0
  }
  for (const [unit, perUnit] of SHOWN) {
    const whole = Math.floor(rest / perUnit)
    if (whole > 0) text += `${whole}${unit}`
    rest -= whole * perUnit
  }
  if (ns >= 1000) text += `${Math.floor(ns / 1000)}us`
  if (ns % 1000 > 0) text += `${ns % 1000}ns`
  return text === '' ? '0s' : text
}

/** A duration for people: its two largest units from a second on, as in `1h30m`, else whole ms. */
export function roughDuration(ms: number): string {
  const first = SHOWN.findIndex(([unit, perUnit]) => unit !== 'ms' && ms >= perUnit)
  if (first === -1) return `${Math.round(ms)}ms`
  const [unit, perUnit] = SHOWN[first]!
  const [nextUnit, perNext] = SHOWN[first + 1]!
  const rest = nextUnit === 'ms' ? 0 : Math.floor((ms % perUnit) / perNext)
  return `${Math.floor(ms / perUnit)}${unit}${rest === 0 ? '' : `${rest}${nextUnit}`}`
}
