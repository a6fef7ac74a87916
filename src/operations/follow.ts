/**
 * Following the output of a run while it is written. The store is asked for what is new; an event only makes
 * the asking sooner, so a follower on another node than the run's sees the same. It holds one stretch at a
 * time, whatever is written.
 */
import {parseExecutionId, type ExecutionRecord} from '../core/execution.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {OutputStretch} from '../ports/history-store.ts'
import {decodeOutput, unfinishedBytes} from '../wire/execution.ts'
import {executionUnknown} from './jobs.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

/** Bytes read and sent at once. */
const STRETCH_BYTES = 64 * 1024
/** How long nothing may be asked for while nothing is heard; output is stored at least this often. */
const LOOK_AGAIN_MS = 1_000

export type Followed =
  /** `from` = absolute position of the text's first byte, `next` = of the byte after it: where to resume. */
  | {readonly kind: 'output'; readonly from: number; readonly next: number; readonly text: string}
  /** Nothing new for a while; keeps the connection in use. */
  | {readonly kind: 'quiet'}
  | {readonly kind: 'end'; readonly execution: ExecutionRecord}

interface FollowDependencies {
  readonly clock: Clock
  readonly events: Events
}

/** How many quiet looks make one sign of life. */
const QUIET_LOOKS = 15

export function createFollow({clock, events}: FollowDependencies, store: StoreWithDeadlines) {
  /**
   * Checks that the execution is there, then answers what is written from byte `from` on and, as the last
   * item, its end. Throws `job_unknown`, `execution_unknown` before the first item.
   */
  async function follow(name: string, id: string, from: number): Promise<AsyncGenerator<Followed>> {
    const key = parseExecutionId(id)
    const read = (position: number) =>
      key === null ? Promise.resolve(null) : store.outputSince(name, key, position, STRETCH_BYTES)
    if ((await read(from)) === null) throw await executionUnknown(store, name, id)
    return stretches(read, from, (heard) => listen(id, heard))
  }

  async function* stretches(
    read: (from: number) => Promise<OutputStretch | null>,
    from: number,
    listening: (heard: () => void) => () => void,
  ): AsyncGenerator<Followed> {
    let position = from
    let quiet = 0
    const bell = new Bell(clock)
    const stop = listening(() => bell.ring())
    try {
      for (;;) {
        const stretch = await read(position)
        // The job was deleted, and its history with it: there is nothing more to say.
        if (stretch === null) return
        const over = isOver(stretch.execution)
        const held = over ? 0 : unfinishedBytes(stretch.bytes)
        const bytes = stretch.bytes.subarray(0, stretch.bytes.length - held)
        if (bytes.length > 0) {
          const next = stretch.offset + bytes.length
          yield {kind: 'output', from: stretch.offset, next, text: decodeOutput(bytes)}
          position = next
          quiet = 0
          continue
        }
        if (over) {
          yield {kind: 'end', execution: stretch.execution}
          return
        }
        await bell.within(LOOK_AGAIN_MS)
        quiet += 1
        if (quiet % QUIET_LOOKS === 0) yield {kind: 'quiet'}
      }
    } finally {
      stop()
      bell.close()
    }
  }

  function listen(id: string, heard: () => void): () => void {
    return events.listen((event) => {
      if (event.name !== 'execution_output' && event.name !== 'execution_finished') return
      if (event.data.execution === id) heard()
    })
  }

  return {follow}
}

/** One waiting at a time; a ring before the waiting begins is not lost. */
class Bell {
  readonly #clock: Clock
  #rung = false
  #wake: (() => void) | null = null

  constructor(clock: Clock) {
    this.#clock = clock
  }

  ring(): void {
    this.#rung = true
    this.#wake?.()
  }

  /** Resolves at a ring, or after `ms`. */
  async within(ms: number): Promise<void> {
    if (!this.#rung) {
      await new Promise<void>((resolve) => {
        const timer = this.#clock.after(ms, resolve)
        this.#wake = () => {
          timer.cancel()
          resolve()
        }
      })
    }
    this.#wake = null
    this.#rung = false
  }

  close(): void {
    this.#wake?.()
  }
}

function isOver(execution: ExecutionRecord): boolean {
  return execution.status !== 'pending' && execution.status !== 'running'
}
