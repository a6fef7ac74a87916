/**
 * Terminal access of the client commands: output, input, colours and progress. `main.ts` passes it, so
 * commands can be tested without a process.
 */
import type {Readable} from 'node:stream'
import {styleText} from 'node:util'
import type {Clock} from '../ports/runtime.ts'

export interface Terminal {
  /** Writes to standard output, unchanged. */
  out(text: string): void
  /** Writes to standard output. Resolves when it accepts more. */
  outBytes(bytes: Uint8Array): Promise<void>
  /** Writes to standard error. */
  err(text: string): void
  /** Standard input. */
  input(): Readable
  /** Asks a person for a secret, which is not shown. Absent if standard input is not a terminal. */
  askSecret?(prompt: string): Promise<string>
  /** Asks a person a question; `''` = no answer. Absent if standard input is not a terminal. */
  ask?(prompt: string): Promise<string>
  /** Standard output is a terminal, and colours are not disabled. */
  readonly colours: boolean
  /** Width of the terminal; absent if standard output is none. */
  readonly columns?: number
  /** Standard error is a terminal, so progress can be redrawn. */
  readonly progress: boolean
}

/** Meaning of a coloured text. */
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
  cordoned: 'busy',
  draining: 'busy',
  drained: 'busy',
  cancelled: 'faint',
  skipped: 'faint',
  disabled: 'faint',
  left: 'faint',
}

/** Colours a status by its meaning, or a longer text by the status in it. */
export function status(
  terminal: Pick<Terminal, 'colours'>,
  word: string,
  text: string = word,
): string {
  const tone = TONES[word]
  return tone === undefined ? text : toned(terminal, tone, text)
}

/** Fast enough to look continuous, slow enough to be free. */
const REDRAW_EVERY_MS = 100
const LINE_EVERY_MS = 5_000
const BAR_WIDTH = 24
const CLEAR_LINE = '\r\u001b[K'

export interface Progress {
  /** Name of the items. */
  readonly what: string
  readonly done: number
  readonly total: number
}

/** Progress on standard error: a redrawn line on a terminal, otherwise a line every few seconds. */
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
    const {err, progress: isTerminal} = this.#terminal
    const now = this.#clock.monotonicMs()
    if (now - this.#shownAt < (isTerminal ? REDRAW_EVERY_MS : LINE_EVERY_MS)) return
    this.#shownAt = now
    this.#isDrawn = isTerminal
    const text = `${counted(progress)} ${progress.what}`
    err(isTerminal ? `${CLEAR_LINE}${bar(progress)} ${text}` : `${text}\n`)
  }

  /** Prints immediately, without a rate limit. */
  print(text: string): void {
    this.end()
    this.#isDrawn = this.#terminal.progress
    this.#terminal.err(this.#isDrawn ? text : `${text}\n`)
  }

  /** Clears the drawn line, so the next output starts a line. */
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
