/**
 * Rows for people: columns as wide as their widest cell, nothing cut. Cells may be coloured; colours take no
 * room.
 */
import type {Readable} from 'node:stream'
import {stripVTControlCharacters, styleText} from 'node:util'
import type {Clock} from '../ports/runtime.ts'
import {ZERO_TIME} from '../wire/time.ts'
import {oneLine} from './sanitize.ts'

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

/*
 * Times for people: how far away, which is what one looks for in a table; the full instant stands in `show`.
 */

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

/*
 * What a command may do to the world in front of it: write, ask for input, know whether anyone looks. Given
 * by the entry, so that commands can be tried without a process.
 */

export interface Terminal {
  /** To standard output, as it is. */
  out(text: string): void
  /** Resolves when more may come. */
  outBytes(bytes: Uint8Array): Promise<void>
  /** To standard error. */
  err(text: string): void
  /** Standard input. */
  input(): Readable
  /** A person reads standard output, and wants colours. */
  readonly colours: boolean
  /** A person reads standard error: progress may be drawn there. */
  readonly progress: boolean
}

/** What a word means, rather than its colour. */
export type Tone = 'good' | 'bad' | 'busy' | 'faint' | 'strong'

const STYLES = {
  good: 'green',
  bad: 'red',
  busy: 'yellow',
  faint: 'dim',
  strong: 'bold',
} as const satisfies Record<Tone, Parameters<typeof styleText>[0]>

export function toned(terminal: Pick<Terminal, 'colours'>, tone: Tone, text: string): string {
  return terminal.colours ? styleText(STYLES[tone], text, {validateStream: false}) : text
}

const TONES: Readonly<Record<string, Tone>> = {
  success: 'good',
  succeeded: 'good',
  alive: 'good',
  launched: 'good',
  failed: 'bad',
  partially_failed: 'bad',
  timed_out: 'bad',
  lost: 'bad',
  missed: 'bad',
  running: 'busy',
  pending: 'busy',
  leaving: 'busy',
  cancelled: 'faint',
  skipped: 'faint',
  disabled: 'faint',
  left: 'faint',
}

/** A status in the colour of what it means. */
export function status(terminal: Pick<Terminal, 'colours'>, word: string): string {
  const tone = TONES[word]
  return tone === undefined ? word : toned(terminal, tone, word)
}

/*
 * How far a long command is, on standard error: one line drawn over and over for a person, a line every few
 * seconds for a log.
 */

/** Faster than anyone reads, slow enough to cost nothing. */
const DRAWN_EVERY_MS = 100
const LINE_EVERY_MS = 5_000
const BAR_WIDTH = 24
const CLEAR_LINE = '\r\u001b[K'

export interface Progress {
  /** What is being worked on. */
  readonly what: string
  readonly done: number
  readonly total: number
}

export class ProgressLine {
  readonly #terminal: Pick<Terminal, 'err' | 'progress'>
  readonly #clock: Pick<Clock, 'monotonicMs'>
  #shownAt = -Infinity
  #isDrawn = false

  constructor(terminal: Pick<Terminal, 'err' | 'progress'>, clock: Pick<Clock, 'monotonicMs'>) {
    this.#terminal = terminal
    this.#clock = clock
  }

  show(progress: Progress): void {
    const {err, progress: isWatched} = this.#terminal
    const now = this.#clock.monotonicMs()
    if (now - this.#shownAt < (isWatched ? DRAWN_EVERY_MS : LINE_EVERY_MS)) return
    this.#shownAt = now
    this.#isDrawn = isWatched
    const text = `${counted(progress)} ${progress.what}`
    err(isWatched ? `${CLEAR_LINE}${bar(progress)} ${text}` : `${text}\n`)
  }

  /** Shown at once, whenever something was shown last. */
  say(text: string): void {
    this.end()
    this.#isDrawn = this.#terminal.progress
    this.#terminal.err(this.#isDrawn ? text : `${text}\n`)
  }

  /** Takes the drawn line away, so that what is said next begins a line. */
  end(): void {
    if (this.#isDrawn) this.#terminal.err(CLEAR_LINE)
    this.#isDrawn = false
  }
}

function counted({done, total}: Progress): string {
  return `${done.toLocaleString('en')} of ${total.toLocaleString('en')}`
}

function bar({done, total}: Progress): string {
  const filled = total === 0 ? BAR_WIDTH : Math.floor((done / total) * BAR_WIDTH)
  return `[${'#'.repeat(filled)}${'-'.repeat(BAR_WIDTH - filled)}]`
}
