/**
 * One running execution's output on its way to the store. Only the last bytes count, so what the store
 * has not taken yet is held in a tail of that length and older bytes are simply let go: memory stays
 * bounded without slowing the command.
 */
import {executionId, type ExecutionKey} from '../core/execution.ts'
import type {Clock, Timer} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {OutputAppend} from '../ports/node-store.ts'
import {TailBuffer} from '../lib/tail-buffer.ts'

export interface OutputBufferOptions {
  readonly clock: Clock
  readonly events: Events
  readonly jobName: string
  readonly key: ExecutionKey
  readonly token: string
  readonly keepBytes: number
  /** Offered to the store once this much is new … */
  readonly flushBytes: number
  /** … or after this long, */
  readonly flushMs: number
  /** but never sooner than this after the last time: a flood costs the store a bounded rate. */
  readonly pauseMs: number
  /** False = the execution is not ours any more. */
  readonly append: (item: OutputAppend) => Promise<boolean>
}

const NEWLINE = 0x0a

export class OutputBuffer {
  readonly #options: OutputBufferOptions
  readonly #tail: TailBuffer
  #timer: {timer: Timer; dueAt: number} | null = null
  /** On its way to the store. */
  #flushing: Uint8Array | null = null
  #flushedAt = -Infinity
  #closed = false
  /** Not ours any more, and never again: the rest of the output has nowhere to go. */
  #isRefused = false
  #endsLine = true

  constructor(options: OutputBufferOptions) {
    this.#options = options
    this.#tail = new TailBuffer(options.keepBytes)
  }

  write(bytes: Uint8Array): void {
    if (this.#closed || bytes.length === 0) return
    this.#tail.push(bytes)
    this.#endsLine = bytes.at(-1) === NEWLINE
    this.#plan()
  }

  /** Whether what follows the output begins on a line of its own. */
  get endsLine(): boolean {
    return this.#endsLine
  }

  /**
   * The last stretch for the finish; nothing is flushed afterwards. A flush under way is not waited for: it
   * may take as long as the store is away, and an end must not. What it brings is brought again, and stored
   * once.
   */
  close(): {readonly offset: number; readonly bytes: Uint8Array; readonly totalBytes: number} {
    this.#closed = true
    this.#timer?.timer.cancel()
    if (this.#flushing !== null) this.#putBack(this.#flushing)
    return {...this.#tail.take(), totalBytes: this.#tail.totalBytes}
  }

  #plan(): void {
    if (this.#flushing !== null || this.#closed || this.#isRefused) return
    if (this.#tail.heldBytes === 0) return
    const {clock, flushBytes, flushMs, pauseMs} = this.#options
    const now = clock.monotonicMs()
    const full = this.#tail.heldBytes >= flushBytes
    const dueAt = full ? Math.max(now, this.#flushedAt + pauseMs) : now + flushMs
    if (this.#timer !== null) {
      if (this.#timer.dueAt <= dueAt) return
      this.#timer.timer.cancel()
    }
    const timer = clock.after(dueAt - now, () => {
      this.#timer = null
      void this.#flush()
    })
    this.#timer = {timer, dueAt}
  }

  async #flush(): Promise<void> {
    const {clock, events, append, key, token, jobName} = this.#options
    const stretch = this.#tail.take()
    this.#flushing = stretch.bytes
    const totalBytes = this.#tail.totalBytes
    try {
      if (await append({key, token, ...stretch})) {
        events.emit('execution_output', {
          job: jobName,
          execution: executionId(key),
          total_bytes: totalBytes,
        })
      } else {
        this.#isRefused = true
      }
    } catch (error) {
      // This stretch of a live view is missing until the store is back; what counts in the end is sent
      // with the finish.
      events.emit('step_failed', {step: 'output', message: String(error)})
      if (!this.#closed) this.#putBack(stretch.bytes)
    }
    this.#flushedAt = clock.monotonicMs()
    this.#flushing = null
    this.#plan()
  }

  /** Bytes that could not be appended go before those that came meanwhile. */
  #putBack(bytes: Uint8Array): void {
    this.#tail.unshift(bytes)
  }
}
