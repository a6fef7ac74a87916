/**
 * Queue of commands to start. A few are started in each turn of the event loop, so that ends and output of
 * the others are handled in between. When the system has no descriptor, process or memory for another
 * command, the queue waits until a command has ended. Runs in the helper only.
 */

/** A start blocks the helper for up to a millisecond. */
const STARTS_PER_TURN = 4

/** Another process may have freed what was missing. */
const RETRY_MS = 1_000

/** The system refuses these for now. */
const EXHAUSTED = new Set(['EMFILE', 'ENFILE', 'EAGAIN', 'ENOMEM'])

/** `code` as in errno. */
export function isExhausted(code: string): boolean {
  return EXHAUSTED.has(code)
}

export class StartQueue {
  #waiting: {start(): void}[] = []
  #isScheduled = false
  /** Set while the queue waits for resources. */
  #timer: NodeJS.Timeout | null = null

  add(command: {start(): void}): void {
    this.#waiting.push(command)
    this.#schedule()
  }

  /** Puts a command that could not be started back, and starts none before `resume` or a pause. */
  postpone(command: {start(): void}): void {
    this.#waiting.unshift(command)
    this.#timer ??= setTimeout(() => this.resume(), RETRY_MS)
  }

  /** Call when a command has ended. */
  resume(): void {
    if (this.#timer === null) return
    clearTimeout(this.#timer)
    this.#timer = null
    this.#schedule()
  }

  #schedule(): void {
    if (this.#isScheduled || this.#timer !== null || this.#waiting.length === 0) return
    this.#isScheduled = true
    setImmediate(() => this.#startSome())
  }

  #startSome(): void {
    this.#isScheduled = false
    for (let count = 0; count < STARTS_PER_TURN && this.#timer === null; count += 1)
      this.#waiting.shift()?.start()
    this.#schedule()
  }
}
