/**
 * How far a long command is, on standard error: one line drawn over and over for a person, a line every few
 * seconds for a log.
 */
import type {Clock} from '../ports/runtime.ts'
import type {Terminal} from './terminal.ts'

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
