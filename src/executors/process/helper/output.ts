/**
 * The reading end of one command's output: passes bytes on no faster than they are taken, and decides when
 * the output is over. That is its true end, or, after the command's exit, a short while: whatever else
 * still holds it open is cut off. Knows nothing of the command but that it has exited.
 */
import {Socket} from 'node:net'

import {OUTPUT_WINDOW_BYTES} from '../protocol.ts'
import type {Pipe} from './pipes.ts'

/**
 * What a command wrote before its exit lies in the pipe, at most this much of it. More after the exit is
 * another process's, which may go on for ever.
 */
const AFTER_EXIT_BYTES_MAX = 1024 * 1024

/** So much is read at a time: what a pipe holds. */
export const READ_BYTES = 64 * 1024

/** How often the wait for the end of the output is looked at. */
const DRAIN_TICK_MS = 50

/**
 * What is read goes through one buffer, for all commands: it is taken before the next read. Fresh memory
 * for each read would pile up by the tens of megabytes before it is collected.
 */
const READ_BUFFER = Buffer.alloc(READ_BYTES)

export class CommandOutput {
  readonly #source: Socket
  readonly #deliver: (bytes: Buffer) => void
  readonly #over: () => void
  #unacknowledged = 0
  #exited = false
  #hurried = false
  #afterExitBytes = 0
  #drainedMs = 0
  #timer: NodeJS.Timeout | null = null
  #state: 'open' | 'ended' | 'cut' = 'open'

  /** `deliver` takes the bytes before it returns. `over` is called once, when no more will be delivered. */
  constructor(pipe: Pipe, deliver: (bytes: Buffer) => void, over: () => void) {
    this.#deliver = deliver
    this.#over = over
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

  /** True when it was closed while someone else still held it open. */
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
   * So much was taken. `Infinity` = nobody listens any more: read on, so that the command never hangs, and
   * forget.
   */
  credit(bytes: number): void {
    this.#unacknowledged -= bytes
    if (this.#unacknowledged < OUTPUT_WINDOW_BYTES) this.#source.resume()
  }

  /** The command is gone: its output may take `drainMs` more. */
  exited(drainMs: number): void {
    this.#exited = true
    if (this.#state === 'open') this.#wait(drainMs)
  }

  /** From now on a slow taker is not waited for. */
  forceStop(): void {
    this.#hurried = true
  }

  /** Counts only the time in which we were reading: a slow taker must not cost the command its last lines. */
  #wait(leftMs: number): void {
    if (this.#drainedMs >= leftMs) return this.cut()
    this.#timer = setTimeout(() => {
      if (this.#hurried || !this.#source.isPaused()) this.#drainedMs += DRAIN_TICK_MS
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
    this.#over()
  }
}
