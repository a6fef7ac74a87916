/**
 * A queue of writes that run one batch after another: writes requested during a transaction go together into
 * the next one. Memory is bounded, and each caller learns only the result of its own write.
 */
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {WRITES} from '../sql/methods.ts'
import type {Committer} from './commit.ts'
import {itemCount, MERGED_ITEMS_MAX, type Write} from './write-plan.ts'

/** Writes in one transaction at most: one slow batch must not delay the next for long. */
const BATCH_MAX = 256
/** Backpressure: with more than this the store cannot keep up, and waiting longer would only cost memory. */
const WAITING_MAX = 20_000

interface Waiting {
  readonly write: Write
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

export interface WriteQueueOptions {
  readonly committer: Pick<Committer, 'commit'>
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly batchMax?: number
  /** Called after the writes of each batch were resolved or rejected; must not throw. */
  committed(items: number, durationMs: number): void
}

export class WriteQueue {
  readonly #options: WriteQueueOptions
  #waiting: Waiting[] = []
  #isCommitting = false
  #isFlushScheduled = false
  #isClosed = false
  #onIdle: (() => void) | null = null

  constructor(options: WriteQueueOptions) {
    this.#options = options
  }

  write(write: Write): Promise<unknown> {
    if (this.#isClosed) return Promise.reject(new StoreUnavailable('the store is closed'))
    if (this.#waiting.length >= WAITING_MAX)
      return Promise.reject(new StoreUnavailable('too many writes wait for the store'))
    return new Promise((resolve, reject) => {
      this.#waiting.push({write, resolve, reject})
      this.#scheduleFlush()
    })
  }

  /** Accepts no more writes; resolves when every accepted write was resolved or rejected. */
  async drain(): Promise<void> {
    this.#isClosed = true
    if (this.#isCommitting || this.#waiting.length > 0)
      await new Promise<void>((resolve) => (this.#onIdle = resolve))
  }

  /** Flushes in a microtask, so that writes requested in one turn are committed together. */
  #scheduleFlush(): void {
    if (this.#isFlushScheduled || this.#isCommitting) return
    this.#isFlushScheduled = true
    queueMicrotask(() => {
      this.#isFlushScheduled = false
      if (!this.#isCommitting) void this.#flush()
    })
  }

  async #flush(): Promise<void> {
    const {committer, clock, committed} = this.#options
    this.#isCommitting = true
    while (this.#waiting.length > 0) {
      const startedAt = clock.monotonicMs()
      const batch = this.#nextBatch()
      const outcomes = await committer.commit(batch.map(({write}) => write))
      for (const {write, resolve, reject} of batch) {
        const outcome = outcomes.get(write)
        if (outcome?.ok === true) resolve(outcome.result)
        else reject(outcome?.error ?? new StoreUnavailable('the write has no outcome'))
      }
      committed(batch.length, clock.monotonicMs() - startedAt)
    }
    this.#isCommitting = false
    this.#onIdle?.()
  }

  /** Takes as many waiting writes as may share a transaction, in order; at least one. */
  #nextBatch(): Waiting[] {
    const {batchMax = BATCH_MAX} = this.#options
    let items = 0
    let length = 0
    for (const {write} of this.#waiting) {
      const {isShared} = WRITES[write.name]
      items += itemCount(write)
      const fits = isShared && length < batchMax && items <= MERGED_ITEMS_MAX
      if (length > 0 && !fits) break
      length += 1
      if (!isShared) break
    }
    return this.#waiting.splice(0, length)
  }
}
