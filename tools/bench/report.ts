/** Figures as one table for people and one JSON file for comparing runs. */
import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {meets, summarise, type Figure, type Target} from './figures.ts'

export interface RunFacts {
  readonly startedAt: string
  readonly mode: string
  readonly store: string
  readonly seconds: number
  readonly version: string
  readonly node: string
  readonly platform: string
  readonly cores: number
  readonly memoryMiB: number
  /**
   * Load average of the minute before the run; more than 0 is noise in every figure.
   */
  readonly loadBefore: number
  /** Sections that could not be measured, and why. */
  readonly failures: readonly string[]
  /** Notes that a reader of the figures must know. */
  readonly notes: readonly string[]
}

const HEADINGS = ['figure', 'median', 'low', 'high', 'n', 'target', ''] as const

/** Table for the terminal: a line for each figure, grouped by section. */
export function tableOf(figures: readonly Figure[]): string {
  const rows = figures.map(rowOf)
  const widths = HEADINGS.map((heading, column) =>
    Math.max(heading.length, ...rows.map((row) => row[column]!.length)),
  )
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => {
        const width = widths[column]!
        return column === 0 ? cell.padEnd(width) : cell.padStart(width)
      })
      .join('  ')
      .trimEnd()
  const lines = [line(HEADINGS), widths.map((width) => '-'.repeat(width)).join('  ')]
  let section = ''
  figures.forEach((figure, index) => {
    if (figure.section !== section) lines.push('', figure.section.toUpperCase())
    section = figure.section
    lines.push(line(rows[index]!))
  })
  return lines.join('\n')
}

/** Markdown: a table for each section. */
export function markdownOf(figures: readonly Figure[]): string {
  const sections = Map.groupBy(figures, ({section}) => section)
  const tables = [...sections].map(([section, ofSection]) => {
    const rows = ofSection.map((figure) => `| ${rowOf(figure).join(' | ').trim()} |`)
    return [
      `${section}:`,
      '',
      `| ${HEADINGS.join(' | ')} |`,
      '|---|---|---|---|---|---|---|',
      ...rows,
    ]
  })
  return tables.map((lines) => lines.join('\n')).join('\n\n')
}

function rowOf(figure: Figure): string[] {
  const {name, unit, samples, target} = figure
  const {median, low, high} = summarise(samples)
  const met = meets(figure)
  return [
    `  ${name}`,
    `${shown(median)}${unit === '' ? '' : ` ${unit}`}`,
    samples.length === 1 ? '' : shown(low),
    samples.length === 1 ? '' : shown(high),
    String(samples.length),
    target === null ? '' : targetText(target),
    met === null ? '' : met ? 'ok' : 'MISSED',
  ]
}

function targetText(target: Target): string {
  return 'atLeast' in target ? `≥ ${shown(target.atLeast)}` : `≤ ${shown(target.atMost)}`
}

/** Three significant digits, without exponent. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString('en-GB')
  return value.toFixed(size >= 10 ? 1 : 2)
}

/** Writes all figures with their samples; returns the file's path. */
export function writeJson(directory: string, facts: RunFacts, figures: readonly Figure[]): string {
  mkdirSync(directory, {recursive: true})
  const file = join(directory, `${facts.startedAt.replaceAll(/[:.]/g, '-')}.json`)
  const rows = figures.map((figure) => ({
    ...figure,
    ...summarise(figure.samples),
    met: meets(figure),
  }))
  writeFileSync(file, `${JSON.stringify({...facts, figures: rows}, null, 2)}\n`)
  return file
}
