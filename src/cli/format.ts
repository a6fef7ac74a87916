/**
 * Formats tables, field lists and times for people. Columns are as wide as their widest cell. On a terminal,
 * cells are cut until a row fits; in a pipe, nothing is.
 */
import {roughDuration} from '../lib/duration.ts'
import {ZERO_TIME} from '../wire/shapes.ts'
import {oneLine} from './sanitize.ts'
import {type Terminal, toned} from './terminal.ts'

export interface Column<Row> {
  readonly title: string
  /** Untrusted text; control sequences are removed. */
  readonly text: (row: Row) => string
  /** Put before the text, as the lines of a tree; its spaces stay. */
  readonly indent?: (row: Row) => string
  /** Adds colours to the text, nothing else. */
  readonly shown?: (text: string) => string
  /** Cut after all others, as a name is. So is the first column. */
  readonly isName?: true
  /** Never cut. */
  readonly isWhole?: true
  /** Never cut, but left out, the last first, when the row does not fit otherwise. */
  readonly isDispensable?: true
}

const GAP = '  '
/** Fewer characters of a cell tell nothing. */
const CELL_MIN = 6
const NAME_MIN = 16

/** A table with a line of titles, ending in a newline; `empty` when there are no rows. */
export function table<Row>(
  terminal: Pick<Terminal, 'colours' | 'columns'>,
  all: readonly Column<Row>[],
  rows: readonly Row[],
  empty: string,
): string {
  if (rows.length === 0) return `${empty}\n`
  const columns = fittingColumns(all, rows, terminal.columns)
  const cells = rows.map((row) => columns.map((column) => cellOf(column, row)))
  const natural = columns.map(({title}, index) =>
    cells.reduce((widest, line) => Math.max(widest, lengthOf(line[index]!)), title.length),
  )
  const widths = fitted(natural, columns, terminal.columns)
  const line = (texts: readonly string[], shown: (text: string, index: number) => string) => {
    const parts = texts.map((text, index) => {
      const cut = cutTo(text, widths[index]!)
      return shown(cut, index) + ' '.repeat(widths[index]! - lengthOf(cut))
    })
    return `${parts.join(GAP).trimEnd()}\n`
  }
  const titles = columns.map(({title}) => title)
  return [
    line(titles, (text) => toned(terminal, 'faint', text)),
    ...cells.map((texts) => line(texts, (text, index) => columns[index]!.shown?.(text) ?? text)),
  ].join('')
}

function cellOf<Row>({text, indent}: Column<Row>, row: Row): string {
  return `${indent?.(row) ?? ''}${oneLine(text(row))}`
}

/** Columns left when dispensable ones that do not fit are dropped. */
function fittingColumns<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  total = Infinity,
): readonly Column<Row>[] {
  const natural = columns.map((column) =>
    rows.reduce(
      (widest, row) => Math.max(widest, lengthOf(cellOf(column, row))),
      column.title.length,
    ),
  )
  const widths = fitted(natural, columns, total)
  const width = widths.reduce((sum, each) => sum + each, GAP.length * (columns.length - 1))
  const last = columns.findLastIndex(({isDispensable}) => isDispensable === true)
  if (width <= total || last === -1) return columns
  return fittingColumns(columns.toSpliced(last, 1), rows, total)
}

function isUncut<Row>({isWhole, isDispensable}: Column<Row>): boolean {
  return isWhole === true || isDispensable === true
}

/** Widths with which a row fits into `total`, as far as the minimum of each column allows. */
function fitted<Row>(
  natural: readonly number[],
  columns: readonly Column<Row>[],
  total = Infinity,
): readonly number[] {
  const widths = [...natural]
  const minimum = (index: number, least: number) => Math.max(least, columns[index]!.title.length)
  let excess =
    natural.reduce((sum, width) => sum + width, GAP.length * (natural.length - 1)) - total
  for (const isName of [false, true])
    while (excess > 0) {
      const cuttable = widths
        .map((width, index) => ({width, index}))
        .filter(({index}) => (index === 0 || columns[index]!.isName === true) === isName)
        .filter(({index}) => !isUncut(columns[index]!))
        .filter(({width, index}) => width > minimum(index, isName ? NAME_MIN : CELL_MIN))
      const widest = cuttable.toSorted((one, other) => other.width - one.width)[0]
      if (widest === undefined) break
      widths[widest.index] = widest.width - 1
      excess -= 1
    }
  return widths
}

function cutTo(text: string, width: number): string {
  return lengthOf(text) <= width ? text : `${[...text].slice(0, width - 1).join('')}…`
}

/** Fields as lines, ending in a newline. */
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

/** Counts characters; wide East Asian characters count as one. */
function lengthOf(text: string): number {
  return [...text].length
}

/**
 * An instant of the API in a zone: `2026-11-22 17:55:00 +01:00`, and `2026-11-22 16:55:00Z` for `UTC`; `-`
 * when it is not set.
 */
export function shownTime(time: string | null, zone: string): string {
  const at = instantOf(time)
  if (at === null || Number.isNaN(at)) return time === null || at === null ? '-' : oneLine(time)
  const local = Temporal.Instant.fromEpochMilliseconds(at).toZonedDateTimeISO(zone)
  const wall = local.toPlainDateTime().toString({smallestUnit: 'second'}).replace('T', ' ')
  return zone === 'UTC' ? `${wall}Z` : `${wall} ${local.offset}`
}

/** A text of the server with its instants, as in `2026-11-22T16:55:00.000Z`, in a zone. */
export function localTimes(text: string, zone: string): string {
  return text.replaceAll(/\b\d{4}-\d\d-\d\dT[\d:.]+Z\b/g, (time) => shownTime(time, zone))
}

/** Time and its age, `2026-11-22 17:55:00 +01:00 (3d ago)`; `-` when it is not set. */
export function timeAndAge(time: string | null, zone: string, now: number): string {
  const away = relative(time, now)
  return away === '-' ? '-' : `${shownTime(time, zone)} (${away})`
}

const SECOND_MS = 1000

/** Relative time, as in `in 5m`, `3d ago`, `now`; `-` when it is not set. */
export function relative(time: string | null, now: number): string {
  const at = instantOf(time)
  if (at === null) return '-'
  const away = at - now
  if (Math.abs(away) < SECOND_MS) return 'now'
  return away > 0 ? `in ${roughDuration(away)}` : `${roughDuration(-away)} ago`
}

/** Time between the two; `-` while one of them is not set. */
export function duration(from: string, until: string): string {
  const start = instantOf(from)
  const end = instantOf(until)
  if (start === null || end === null) return '-'
  return roughDuration(end - start)
}

/** `null` when the time is not set. */
function instantOf(time: string | null): number | null {
  return time === null || time === '' || time === ZERO_TIME ? null : Date.parse(time)
}
