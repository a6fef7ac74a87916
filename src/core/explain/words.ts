/** Words for times, lengths, counts and lists in sentences to people. */
import {roughDuration} from '../../lib/duration.ts'

/** Formats instants in one zone. */
export interface Words {
  /** `02:30:00` on the day of `now`, else `2026-11-22 02:30:00`. */
  time(at: number): string
  /** The same for a whole sentence of a stored text: each instant in it is shown in the zone. */
  text(stored: string): string
}

const INSTANT = /\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g

/** Words in a zone that this runtime knows; the day of `now` is left out of times. */
export function wordsIn(zone: string, now: number): Words {
  const local = (at: number) => Temporal.Instant.fromEpochMilliseconds(at).toZonedDateTimeISO(zone)
  const today = local(now).toPlainDate()
  const time = (at: number) => {
    const wall = local(at)
    const clock = wall.toPlainTime().toString({smallestUnit: 'second'})
    const day = wall.toPlainDate()
    return day.equals(today) ? clock : `${day.toString()} ${clock}`
  }
  return {time, text: (stored) => stored.replaceAll(INSTANT, (found) => time(Date.parse(found)))}
}

/** `1 node`, `3 nodes`, `20,000 nodes`. */
export function counted(count: number, noun: string): string {
  const digits = String(count).replaceAll(/\B(?=(?:\d{3})+$)/g, ',')
  return `${digits} ${noun}${count === 1 ? '' : 's'}`
}

/** Names in one list; beyond it only their number. */
const NAMES_MAX = 5

/** `a`, `a and b`, `a, b and c`, `a, b, c, d, e and 7 more`. */
export function listed(names: readonly string[]): string {
  const shown = names.length > NAMES_MAX ? names.slice(0, NAMES_MAX) : names
  const rest = names.length - shown.length
  const parts = rest === 0 ? shown : [...shown, `${rest} more`]
  if (parts.length < 2) return parts.join('')
  return `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)!}`
}

/** A length of time, as in `10m`; `null` if it is too short to matter. */
export function lengthFrom(from: number | null, until: number | null): string | null {
  if (from === null || until === null) return null
  return until - from < LENGTH_MIN_MS ? null : roughDuration(until - from)
}

/** A leader decides most planned times within it. */
const LENGTH_MIN_MS = 1_000

export function capitalised(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`
}
