/**
 * Formats tables, field lists and times for people. Columns are as wide as their widest cell, nothing is
 * truncated, and colours have no width.
 */
import {stripVTControlCharacters} from 'node:util'
import {ZERO_TIME} from '../wire/time.ts'
import {oneLine} from './sanitize.ts'
import {type Terminal, toned} from './terminal.ts'

export interface Column<Row> {
  readonly title: string
  /** Untrusted text; control sequences are removed. */
  readonly text: (row: Row) => string
  /** Adds colours to the text, nothing else. */
  readonly shown?: (text: string) => string
}

const GAP = '  '

/** A table with a line of titles, ending in a newline; `empty` when there are no rows. */
export function table<Row>(
  terminal: Pick<Terminal, 'colours'>,
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  empty: string,
): string {
  if (rows.length === 0) return `${empty}\n`
  const titles = columns.map((column) => toned(terminal, 'faint', column.title))
  const cells = rows.map((row) =>
    columns.map((column) => {
      const text = oneLine(column.text(row))
      return column.shown === undefined ? text : column.shown(text)
    }),
  )
  const lines = [titles, ...cells]
  const widths = columns.map((_, index) =>
    lines.reduce((widest, line) => Math.max(widest, widthOf(line[index]!)), 0),
  )
  return lines.map((line) => `${aligned(line, widths)}\n`).join('')
}

/** One field per line, ending in a newline. */
export function fieldList(
  terminal: Pick<Terminal, 'colours'>,
  pairs: readonly (readonly [name: string, text: string])[],
): string {
  const width = pairs.reduce((widest, [name]) => Math.max(widest, name.length), 0)
  return pairs
    .map(([name, text]) => `${toned(terminal, 'faint', name.padEnd(width))}${GAP}${text}`.trimEnd())
    .map((line) => `${line}\n`)
    .join('')
}

function aligned(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, index) => cell + ' '.repeat(widths[index]! - widthOf(cell)))
    .join(GAP)
    .trimEnd()
}

/** Counts characters; wide East Asian characters count as one. */
function widthOf(cell: string): number {
  return [...stripVTControlCharacters(cell)].length
}

const SECOND_MS = 1000
const UNITS: readonly (readonly [unit: string, ms: number])[] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', SECOND_MS],
]

/** Relative time, as in `in 5m`, `3d ago`, `now`; `-` when it is not set. */
export function relative(time: string | null, now: number): string {
  const at = instantOf(time)
  if (at === null) return '-'
  const away = at - now
  if (Math.abs(away) < SECOND_MS) return 'now'
  return away > 0 ? `in ${coarse(away)}` : `${coarse(-away)} ago`
}

/** Time between the two; `-` while one of them is not set. */
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

/** `null` when the time is not set. */
function instantOf(time: string | null): number | null {
  return time === null || time === '' || time === ZERO_TIME ? null : Date.parse(time)
}
