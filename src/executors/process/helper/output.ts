/**
 * Reader of one command's output, with flow control. The output is over when its pipe ends. After the exit of
 * the command, other processes may hold the pipe open for a short drain only; then it is closed.
 */
import {Socket} from 'node:net'
import {OUTPUT_WINDOW_BYTES} from '../protocol.ts'
import type {Pipe} from './pipes.ts'

/**
 * A pipe holds at most this much of what the command wrote before its exit. Further output comes from another
 * process, which may never stop.
 */
const AFTER_EXIT_BYTES_MAX = 1024 * 1024

/** Read size: the capacity of a pipe. */
export const READ_BYTES = 64 * 1024

/** Resolution of the drain timeout. */
const DRAIN_TICK_MS = 50

/**
 * One read buffer for all commands: its bytes are consumed before the next read. New buffers for each read
 * would accumulate to tens of megabytes before they are garbage-collected.
 */
const READ_BUFFER = Buffer.alloc(READ_BYTES)

export class CommandOutput {
  readonly #source: Socket
  readonly #deliver: (bytes: Buffer) => void
  readonly #onOver: () => void
  #unacknowledged = 0
  #exited = false
  #forced = false
  #afterExitBytes = 0
  #drainedMs = 0
  #timer: NodeJS.Timeout | null = null
  #state: 'open' | 'ended' | 'cut' = 'open'

  /** `deliver` consumes the bytes before it returns. `onOver` is called once, after the last `deliver`. */
  constructor(pipe: Pipe, deliver: (bytes: Buffer) => void, onOver: () => void) {
    this.#deliver = deliver
    this.#onOver = onOver
    const onread = {
      buffer: READ_BUFFER,
      callback: (length: number) => {
        this.#onData(READ_BUFFER.subarray(0, length))
        return true
      },
    }
    this.#source = new Socket({fd: pipe.reader, readable: true, writable: false, onread})
    this.#source.once('end', () => this.#finish('ended'))
    this.#source.once('error', () => this.#finish('cut'))
    this.#source.once('close', () => pipe.release(this.#state === 'ended'))
    this.#source.resume()
  }

  get isOver(): boolean {
    return this.#state !== 'open'
  }

  /** The output was closed while another process still held it open. */
  get wasCut(): boolean {
    return this.#state === 'cut'
  }

  #onData(bytes: Buffer): void {
    if (this.#state !== 'open') return
    this.#deliver(bytes)
    this.#unacknowledged += bytes.length
    if (this.#unacknowledged >= OUTPUT_WINDOW_BYTES) this.#source.pause()
    if (!this.#exited) return
    this.#afterExitBytes += bytes.length
    if (this.#afterExitBytes > AFTER_EXIT_BYTES_MAX) this.cut()
  }

  /**
   * Acknowledges `bytes`. `Infinity` = there is no receiver: reading continues, so the command never blocks.
   */
  credit(bytes: number): void {
    this.#unacknowledged -= bytes
    if (this.#unacknowledged < OUTPUT_WINDOW_BYTES) this.#source.resume()
  }

  /** The command has exited: its output is closed after `drainMs`. */
  exited(drainMs: number): void {
    this.#exited = true
    if (this.#state === 'open') this.#wait(drainMs)
  }

  /** From now on, time spent waiting for a slow receiver counts towards the drain timeout. */
  forceStop(): void {
    this.#forced = true
  }

  /** Only time spent reading counts, so a slow receiver does not lose the last lines. */
  #wait(leftMs: number): void {
    if (this.#drainedMs >= leftMs) return this.cut()
    this.#timer = setTimeout(() => {
      if (this.#forced || !this.#source.isPaused()) this.#drainedMs += DRAIN_TICK_MS
      this.#wait(leftMs)
    }, DRAIN_TICK_MS)
  }

  cut(): void {
    this.#finish('cut')
  }

  #finish(state: 'ended' | 'cut'): void {
    if (this.#state !== 'open') return
    this.#state = state
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#source.destroy()
    this.#onOver()
  }
}
