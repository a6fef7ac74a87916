/**
 * A step that is taken again and again: when its time has come, or sooner when somebody rings. Never
 * two at once, and a ring while it runs means once more afterwards, so no ring is lost. A step that
 * fails is taken again with backoff.
 */
import {AssertionFailed} from './assert.ts'

/** What a loop needs of a clock; the Clock port fits. */
export interface LoopClock {
  after(delayMs: number, callback: () => void): {cancel(): void}
}

export interface LoopOptions {
  readonly clock: LoopClock
  /**
   * Takes one step and answers how long to wait for the next, in ms; 0 = at once, after other work had
   * its turn.
   */
  readonly step: () => Promise<number>
  /** Told of every failure of the step; the loop goes on by itself. */
  readonly failed: (error: unknown) => void
  /** The longest wait after a failure, in ms; default 5 s. */
  readonly backoffMaxMs?: number
}

/** After a failure: soon enough to be back at once after a blip, rare enough not to hammer what is down. */
const FIRST_BACKOFF_MS = 100
const LONGEST_BACKOFF_MS = 5_000

export class Loop {
  readonly #options: LoopOptions
  #timer: {cancel(): void} | null = null
  #running: Promise<void> | null = null
  #rung = false
  #stopped = true
  #failures = 0

  constructor(options: LoopOptions) {
    this.#options = options
  }

  /** Takes the first step at once. */
  start(): void {
    this.#stopped = false
    this.#arm(0)
  }

  /** Looks sooner. Any number of rings before the step starts are one. */
  wake(): void {
    if (this.#stopped) return
    if (this.#running !== null) this.#rung = true
    else if (this.#failures === 0) this.#arm(0)
  }

  /** No further step; resolves when the one under way has ended. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#timer?.cancel()
    this.#timer = null
    await this.#running
  }

  #arm(delayMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(delayMs, () => {
      this.#timer = null
      // `#running` must stand before the step's first line, which may itself ring or stop this loop.
      this.#running = Promise.resolve().then(() => this.#turn())
    })
  }

  async #turn(): Promise<void> {
    let delayMs: number
    try {
      delayMs = await this.#options.step()
      this.#failures = 0
    } catch (error) {
      // A broken invariant is not a failure to try again: nothing handles this rejection, and the
      // process ends.
      if (error instanceof AssertionFailed) throw error
      const {backoffMaxMs = LONGEST_BACKOFF_MS} = this.#options
      delayMs = Math.min(backoffMaxMs, FIRST_BACKOFF_MS * 2 ** Math.min(this.#failures, 10))
      this.#failures += 1
      this.#rung = false
      this.#options.failed(error)
    }
    this.#running = null
    if (this.#stopped) return
    if (this.#rung) delayMs = 0
    this.#rung = false
    this.#arm(delayMs)
  }
}

/** The one start/stop contract: everything with a life of its own keeps it. */
export interface Service {
  /** Called once. */
  start(): void
  /** Resolves when nothing of it runs any more. Idempotent, and safe before `start`. */
  stop(): Promise<void>
}
