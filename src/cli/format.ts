/**
 * Rows for people: columns as wide as their widest cell, nothing cut. Cells may be coloured; colours take no
 * room.
 */
import {stripVTControlCharacters} from 'node:util'
import {oneLine} from './sanitize.ts'
import {toned, type Terminal} from './terminal.ts'

export interface Column<Row> {
  readonly title: string
  /** Text from elsewhere; made harmless here. */
  readonly text: (row: Row) => string
  /** Colours the text; must not change it otherwise. */
  readonly shown?: (text: string) => string
}

const GAP = '  '

/** A table with a line of titles, ending in a newline. `empty` is said when there are no rows. */
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

/** Facts one below the other, ending in a newline. */
export function facts(
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

/** Counts characters, so wide ones of East Asia stand out by a place. */
function widthOf(cell: string): number {
  return [...stripVTControlCharacters(cell)].length
}
