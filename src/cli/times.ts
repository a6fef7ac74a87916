/**
 * Times for people: how far away, which is what one looks for in a table; the full instant stands in `show`.
 */
import {ZERO_TIME} from '../wire/time.ts'

const SECOND_MS = 1000
const UNITS: readonly (readonly [unit: string, ms: number])[] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', SECOND_MS],
]

/** `in 5m`, `3d ago`, `now`; `-` for a time that is not set. */
export function relative(time: string | null, now: number): string {
  const at = instantOf(time)
  if (at === null) return '-'
  const away = at - now
  if (Math.abs(away) < SECOND_MS) return 'now'
  return away > 0 ? `in ${coarse(away)}` : `${coarse(-away)} ago`
}

/** From start to end, `-` as long as one of them is not reached. */
export function duration(from: string, until: string): string {
  const start = instantOf(from)
  const end = instantOf(until)
  if (start === null || end === null) return '-'
  const ms = end - start
  return ms < SECOND_MS ? `${ms}ms` : coarse(ms)
}

/** The two largest units. */
function coarse(ms: number): string {
  const first = UNITS.findIndex(([, unitMs]) => ms >= unitMs)
  const [unit, unitMs] = UNITS[first]!
  const whole = `${Math.floor(ms / unitMs)}${unit}`
  const next = UNITS[first + 1]
  const rest = next === undefined ? 0 : Math.floor((ms % unitMs) / next[1])
  return rest === 0 ? whole : `${whole}${rest}${next![0]}`
}

/** `null` for a time that is not set. */
function instantOf(time: string | null): number | null {
  return time === null || time === '' || time === ZERO_TIME ? null : Date.parse(time)
}
