/**
 * Reader of one command's output, with flow control. The output is over when its pipe ends. After the exit of
 * the command, other processes may hold the pipe open for a short drain only; then it is closed.
 *
 * The output of a command that ends at once is read when it has exited, without a stream: a stream costs more
 * processor time than all else that the helper does for such a command.
 */
import {closeSync, readSync} from 'node:fs'
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

/** A command that runs for longer gets a stream. Until then its output waits in the pipe. */
const STREAM_AFTER_MS = 20

/** Resolution of the drain timeout. */
const DRAIN_TICK_MS = 50

/**
 * Read buffer of all commands: its bytes are consumed before the next read. New buffers for each read would
 * accumulate to tens of megabytes before they are garbage-collected.
 */
const READ_BUFFER = Buffer.alloc(READ_BYTES)

export class CommandOutput {
  readonly #pipe: Pipe
  readonly #deliver: (bytes: Buffer) => void
  readonly #onOver: () => void
  /** `null` until the command has run for a while. */
  #source: Socket | null = null
  #unacknowledged = 0
  #exited = false
  #forced = false
  #afterExitBytes = 0
  #drainedMs = 0
  #timer: NodeJS.Timeout | null = null
  #state: 'open' | 'ended' | 'cut' = 'open'

  /** `deliver` consumes the bytes before it returns. `onOver` is called once, after the last `deliver`. */
  constructor(pipe: Pipe, deliver: (bytes: Buffer) => void, onOver: () => void) {
    this.#pipe = pipe
    this.#deliver = deliver
    this.#onOver = onOver
    this.#timer = setTimeout(() => this.#stream(), STREAM_AFTER_MS)
  }

  #stream(): void {
    const onread = {
      buffer: READ_BUFFER,
      callback: (length: number) => {
        this.#onData(READ_BUFFER.subarray(0, length))
        return true
      },
    }
    const source = new Socket({fd: this.#pipe.reader, readable: true, writable: false, onread})
    source.once('end', () => this.#finish('ended'))
    source.once('error', () => this.#finish('cut'))
    source.once('close', () => this.#pipe.release(this.#state === 'ended'))
    source.resume()
    this.#source = source
  }

  /** Reads what an ended command left in its pipe. False = another process holds the pipe open. */
  #readRest(): boolean {
    try {
      while (this.#unacknowledged < OUTPUT_WINDOW_BYTES) {
        const length = readSync(this.#pipe.reader, READ_BUFFER)
        if (length === 0) return true
        this.#unacknowledged += length
        this.#deliver(READ_BUFFER.subarray(0, length))
      }
    } catch {
      // EAGAIN. Any other error occurs again in the stream, which handles it.
    }
    return false
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
    if (this.#unacknowledged >= OUTPUT_WINDOW_BYTES) this.#source?.pause()
    if (!this.#exited) return
    this.#afterExitBytes += bytes.length
    if (this.#afterExitBytes > AFTER_EXIT_BYTES_MAX) this.cut()
  }

  /**
   * Acknowledges `bytes`. `Infinity` = there is no receiver: reading continues, so the command never blocks.
   */
  credit(bytes: number): void {
    this.#unacknowledged -= bytes
    if (this.#unacknowledged < OUTPUT_WINDOW_BYTES) this.#source?.resume()
  }

  /** The command has exited: its output is closed after `drainMs`. */
  exited(drainMs: number): void {
    this.#exited = true
    if (this.#state !== 'open') return
    if (this.#source === null) {
      if (this.#readRest()) return this.#finish('ended')
      this.#disarm()
      this.#stream()
    }
    this.#wait(drainMs)
  }

  /** Counts time spent waiting for a slow receiver towards the drain timeout from now on. */
  forceStop(): void {
    this.#forced = true
  }

  /** Only time spent reading counts, so a slow receiver does not lose the last lines. */
  #wait(leftMs: number): void {
    if (this.#drainedMs >= leftMs) return this.cut()
    this.#timer = setTimeout(() => {
      if (this.#forced || this.#source?.isPaused() === false) this.#drainedMs += DRAIN_TICK_MS
      this.#wait(leftMs)
    }, DRAIN_TICK_MS)
  }

  cut(): void {
    this.#finish('cut')
  }

  #finish(state: 'ended' | 'cut'): void {
    if (this.#state !== 'open') return
    this.#state = state
    this.#disarm()
    if (this.#source === null) {
      closeSync(this.#pipe.reader)
      this.#pipe.release(state === 'ended')
    } else this.#source.destroy()
    this.#onOver()
  }

  #disarm(): void {
    if (this.#timer !== null) clearTimeout(this.#timer)
    this.#timer = null
  }
}
