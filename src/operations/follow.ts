/**
 * Follows the output of an execution while it runs. It polls the store; an event only triggers the next poll
 * earlier, so followers on other nodes see the same output. Memory is bounded: one chunk at a time.
 */
import {parseExecutionId, type ExecutionRecord} from '../core/execution.ts'
import type {OutputStretch} from '../ports/history-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {decodeOutput, unfinishedBytes} from '../wire/output.ts'
import type {OperationsContext} from './context.ts'
import {executionUnknown} from './jobs.ts'

/** Bytes of output in one chunk. */
const CHUNK_BYTES = 64 * 1024
/** The poll interval without an event. Nodes store output at least this often. */
const POLL_MS = 1_000
/** Polls without output before an `idle` item. */
const IDLE_POLLS = 15

export type Followed =
  /** `from` = absolute position of the first byte; `next` = position after the last one, to resume from. */
  | {
      readonly kind: 'output'
      readonly from: number
      readonly next: number
      readonly text: string
      /** Bytes before `from` that are not kept. */
      readonly omitted: number
    }
  /** No output for a while. Sent to keep the connection alive. */
  | {readonly kind: 'idle'}
  | {readonly kind: 'end'; readonly execution: ExecutionRecord}

export function createFollow({clock, events, store}: OperationsContext) {
  /**
   * Yields the output from byte `from` on; the last item is the end of the execution. Throws `job_unknown`,
   * `execution_unknown` before the first item.
   */
  async function follow(name: string, id: string, from: number): Promise<AsyncGenerator<Followed>> {
    const key = parseExecutionId(id)
    const read = (position: number) =>
      key === null ? Promise.resolve(null) : store.outputSince(name, key, position, CHUNK_BYTES)
    if ((await read(from)) === null) throw await executionUnknown(store, name, id)
    return outputFrom(read, from, (notify) => subscribe(id, notify))
  }

  async function* outputFrom(
    read: (from: number) => Promise<OutputStretch | null>,
    from: number,
    subscribeTo: (notify: () => void) => () => void,
  ): AsyncGenerator<Followed> {
    let position = from
    let idlePolls = 0
    const signal = new Signal(clock)
    const unsubscribe = subscribeTo(() => signal.notify())
    try {
      for (;;) {
        const chunk = await read(position)
        // The job and its history were deleted.
        if (chunk === null) return
        const hasEnded = isFinal(chunk.execution)
        // An incomplete character waits for the rest of its bytes, which only come before the end.
        const incomplete = hasEnded ? 0 : unfinishedBytes(chunk.bytes)
        const bytes = chunk.bytes.subarray(0, chunk.bytes.length - incomplete)
        if (bytes.length > 0) {
          const next = chunk.offset + bytes.length
          const omitted = Math.max(0, chunk.offset - position)
          yield {kind: 'output', from: chunk.offset, next, text: decodeOutput(bytes), omitted}
          position = next
          idlePolls = 0
          continue
        }
        if (hasEnded) {
          yield {kind: 'end', execution: chunk.execution}
          return
        }
        await signal.wait(POLL_MS)
        idlePolls += 1
        if (idlePolls % IDLE_POLLS === 0) yield {kind: 'idle'}
      }
    } finally {
      unsubscribe()
      signal.close()
    }
  }

  function subscribe(id: string, notify: () => void): () => void {
    return events.listen((event) => {
      if (event.name !== 'execution_output' && event.name !== 'execution_finished') return
      if (event.data.execution === id) notify()
    })
  }

  return {follow}
}

/** A notification with memory: one that comes before `wait` ends that wait at once. One waiter at a time. */
class Signal {
  readonly #clock: Clock
  #isPending = false
  #wake: (() => void) | null = null

  constructor(clock: Clock) {
    this.#clock = clock
  }

  notify(): void {
    this.#isPending = true
    this.#wake?.()
  }

  /** Resolves at a notification, or after `timeoutMs`. */
  async wait(timeoutMs: number): Promise<void> {
    if (!this.#isPending) {
      await new Promise<void>((resolve) => {
        const timer = this.#clock.after(timeoutMs, resolve)
        this.#wake = () => {
          timer.cancel()
          resolve()
        }
      })
    }
    this.#wake = null
    this.#isPending = false
  }

  close(): void {
    this.#wake?.()
  }
}

function isFinal(execution: ExecutionRecord): boolean {
  return execution.status !== 'pending' && execution.status !== 'running'
}
