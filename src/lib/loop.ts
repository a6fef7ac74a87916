/**
 * A step that runs again and again: after the delay it returns, or sooner after `wake`. Two steps
 * never run at once. A `wake` during a step runs the step once more afterwards, so none is lost. A
 * failed step is retried with exponential backoff.
 */
import {AssertionFailed} from './assert.ts'
import {Backoff} from './backoff.ts'

/** The part of the Clock port that a loop needs. */
export interface LoopClock {
  after(delayMs: number, callback: () => void): {cancel(): void}
}

export interface LoopOptions {
  readonly clock: LoopClock
  /**
   * Runs one step and returns the delay before the next, in ms. 0 = at once, but after other pending
   * work.
   */
  readonly step: () => Promise<number>
  /** Receives every failure of the step; the loop continues by itself. */
  readonly failed: (error: unknown) => void
  /** The longest delay after a failure, in ms; default 5 s. */
  readonly backoffMaxMs?: number
}

/** Short, so that a brief failure costs little time. */
const BACKOFF_FIRST_MS = 100
/** Long enough not to overload a service that is down. */
const BACKOFF_MAX_MS = 5_000

export class Loop {
  readonly #options: LoopOptions
  readonly #backoff: Backoff
  #timer: {cancel(): void} | null = null
  #running: Promise<void> | null = null
  #isWoken = false
  #isStopped = true

  constructor(options: LoopOptions) {
    this.#options = options
    const {backoffMaxMs = BACKOFF_MAX_MS} = options
    this.#backoff = new Backoff({firstMs: BACKOFF_FIRST_MS, maxMs: backoffMaxMs})
  }

  /** Runs the first step at once. */
  start(): void {
    this.#isStopped = false
    this.#schedule(0)
  }

  /**
   * Runs the next step now instead of after its delay. Several calls before the step starts count as
   * one. A backoff after a failure is not shortened.
   */
  wake(): void {
    if (this.#isStopped) return
    if (this.#running !== null) this.#isWoken = true
    else if (this.#backoff.failures === 0) this.#schedule(0)
  }

  /** Starts no further step; resolves when the running one has ended. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true
    this.#timer?.cancel()
    this.#timer = null
    await this.#running
  }

  #schedule(delayMs: number): void {
    this.#timer?.cancel()
    this.#timer = this.#options.clock.after(delayMs, () => {
      this.#timer = null
      // `#running` must be set before the step's first line, which may itself wake or stop this loop.
      this.#running = Promise.resolve().then(() => this.#runStep())
    })
  }

  async #runStep(): Promise<void> {
    let delayMs: number
    try {
      delayMs = await this.#options.step()
      this.#backoff.reset()
    } catch (error) {
      // A broken invariant is never retried: this rejection is left unhandled, and the process ends.
      if (error instanceof AssertionFailed) throw error
      delayMs = this.#backoff.failedMs()
      this.#isWoken = false
      this.#options.failed(error)
    }
    this.#running = null
    if (this.#isStopped) return
    if (this.#isWoken) delayMs = 0
    this.#isWoken = false
    this.#schedule(delayMs)
  }
}

/** The start/stop contract of everything that runs in the background. */
export interface Service {
  /** Called once. */
  start(): void
  /** Resolves when none of its work is running any more. Idempotent, and safe before `start`. */
  stop(): Promise<void>
}
