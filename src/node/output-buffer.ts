/**
 * Output buffer of one running execution, flushed to the store at a limited rate. Only the first and the last
 * bytes of the output are kept, so the unflushed bytes are a tail buffer of that length. Older bytes are
 * dropped: memory is bounded without backpressure on the command. The first bytes stay in memory until the
 * store has them; they are sent by themselves only if the tail buffer has dropped them.
 */
import type {Limits} from '../config/limits.ts'
import {executionId, type ExecutionKey} from '../core/execution.ts'
import type {Clock, Timer} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {FinishItem, OutputAppend} from '../ports/node-store.ts'
import type {BatchQueue} from '../lib/batch-queue.ts'
import {StartBuffer, TailBuffer} from '../lib/tail-buffer.ts'

export interface OutputBufferOptions {
  readonly clock: Clock
  readonly events: Events
  readonly jobName: string
  readonly key: ExecutionKey
  readonly token: string
  readonly limits: OutputLimits
  readonly appends: Appends
}

/**
 * `outputFlushBytes` new bytes are flushed, or all after `outputFlushMs`, but `outputPauseMs` after the last
 * flush at the earliest: limits the rate of writes to the store.
 */
export type OutputLimits = Pick<
  Limits,
  'outputTailBytes' | 'outputStartBytes' | 'outputFlushBytes' | 'outputFlushMs' | 'outputPauseMs'
>

/** Sends output to the store. False = the claim is no longer active. */
export type Appends = Pick<BatchQueue<OutputAppend, boolean>, 'add'>

const NEWLINE = 0x0a

export class OutputBuffer {
  readonly #options: OutputBufferOptions
  readonly #tail: TailBuffer
  /** `null` = the store has the first bytes. */
  #start: StartBuffer | null
  readonly #startBytes: number
  /** The store has all bytes before this position, as far as this node knows. */
  #storedTo = 0
  #timer: {timer: Timer; dueAt: number} | null = null
  /** Bytes of the append in flight. */
  #flushing: Uint8Array | null = null
  #flushedAt = -Infinity
  #closed = false
  /** The claim is no longer active, for good: the store takes no more output. */
  #isRefused = false
  #endsLine = true

  constructor(options: OutputBufferOptions) {
    this.#options = options
    const {outputTailBytes, outputStartBytes} = options.limits
    this.#tail = new TailBuffer(outputTailBytes)
    this.#startBytes = Math.min(outputStartBytes, outputTailBytes)
    this.#start = new StartBuffer(this.#startBytes)
  }

  write(bytes: Uint8Array): void {
    if (this.#closed || bytes.length === 0) return
    this.#tail.push(bytes)
    this.#start?.push(bytes)
    this.#endsLine = bytes.at(-1) === NEWLINE
    this.#scheduleFlush()
  }

  /** The output ends with a newline, or is empty. */
  get endsLine(): boolean {
    return this.#endsLine
  }

  /**
   * Stops flushing and returns the unflushed bytes for the finish. Does not wait for a flush in flight, which
   * may take as long as an outage of the store. Its bytes are returned too; the store keeps them once.
   */
  close(): FinishItem['output'] {
    this.#closed = true
    this.#timer?.timer.cancel()
    if (this.#flushing !== null) this.#putBack(this.#flushing)
    return {...this.#take(), totalBytes: this.#tail.totalBytes}
  }

  /** The unflushed bytes, with the first bytes of the output if the store would never get them. */
  #take(): Pick<OutputAppend, 'offset' | 'bytes' | 'start'> {
    const chunk = this.#tail.take()
    if (this.#start === null || chunk.offset <= this.#storedTo) return chunk
    return {...chunk, start: this.#start.bytes}
  }

  #noteStored({offset, bytes, start}: Pick<OutputAppend, 'offset' | 'bytes' | 'start'>): void {
    if (offset <= this.#storedTo) this.#storedTo = offset + bytes.length
    if (start !== undefined || this.#storedTo >= this.#startBytes) this.#start = null
  }

  #scheduleFlush(): void {
    if (this.#flushing !== null || this.#closed || this.#isRefused) return
    if (this.#tail.heldBytes === 0) return
    const {clock, limits} = this.#options
    const now = clock.monotonicMs()
    const isFull = this.#tail.heldBytes >= limits.outputFlushBytes
    const dueAt = isFull
      ? Math.max(now, this.#flushedAt + limits.outputPauseMs)
      : now + limits.outputFlushMs
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
    const {clock, events, appends, key, token, jobName} = this.#options
    const chunk = this.#take()
    this.#flushing = chunk.bytes
    const totalBytes = this.#tail.totalBytes
    try {
      if (await appends.add({key, token, ...chunk})) {
        this.#noteStored(chunk)
        events.emit('execution_output', {
          job: jobName,
          execution: executionId(key),
          total_bytes: totalBytes,
        })
      } else {
        this.#isRefused = true
      }
    } catch (error) {
      // A live view lacks these bytes until the store is back. The finish sends the final tail.
      events.emit('step_failed', {step: 'output', message: String(error)})
      if (!this.#closed) this.#putBack(chunk.bytes)
    }
    this.#flushedAt = clock.monotonicMs()
    this.#flushing = null
    this.#scheduleFlush()
  }

  /** Puts bytes whose append failed before those written since. */
  #putBack(bytes: Uint8Array): void {
    this.#tail.unshift(bytes)
  }
}
