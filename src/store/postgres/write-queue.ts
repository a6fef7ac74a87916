/**
 * A queue of writes that follow each other, seen from the callers: what is asked for while a transaction is
 * under way goes together into the next one. Memory is bounded, and a caller hears only of its own write.
 */
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import type {Committer} from './commit.ts'
import {itemsOf, MERGED_ITEMS_MAX, type Write, WRITE_PLANS} from './write-plan.ts'

/** Writes in one transaction at most: one slow batch must not hold up the next for long. */
const BATCH_MAX = 256
/** Beyond this the store cannot keep up, and waiting longer would only cost memory. */
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
  /** Told after each batch was answered; must not throw. */
  committed(items: number, durationMs: number): void
}

export class WriteQueue {
  readonly #options: WriteQueueOptions
  #waiting: Waiting[] = []
  #isUnderWay = false
  #isFlushing = false
  #isClosed = false
  #idle: (() => void) | null = null

  constructor(options: WriteQueueOptions) {
    this.#options = options
  }

  write(write: Write): Promise<unknown> {
    if (this.#isClosed) return Promise.reject(new StoreUnavailable('the store is closed'))
    if (this.#waiting.length >= WAITING_MAX)
      return Promise.reject(new StoreUnavailable('too many writes wait for the store'))
    return new Promise((resolve, reject) => {
      this.#waiting.push({write, resolve, reject})
      this.#flushSoon()
    })
  }

  /** Accepts nothing more; resolves when everything accepted was answered. */
  async drain(): Promise<void> {
    this.#isClosed = true
    if (this.#isUnderWay || this.#waiting.length > 0)
      await new Promise<void>((resolve) => (this.#idle = resolve))
  }

  /** After the current turn, so that writes asked for together are committed together. */
  #flushSoon(): void {
    if (this.#isFlushing || this.#isUnderWay) return
    this.#isFlushing = true
    queueMicrotask(() => {
      this.#isFlushing = false
      if (!this.#isUnderWay) void this.#flush()
    })
  }

  async #flush(): Promise<void> {
    const {committer, clock, committed} = this.#options
    this.#isUnderWay = true
    while (this.#waiting.length > 0) {
      const beganAt = clock.monotonicMs()
      const batch = this.#nextBatch()
      const outcomes = await committer.commit(batch.map(({write}) => write))
      for (const {write, resolve, reject} of batch) {
        const outcome = outcomes.get(write)
        if (outcome?.ok === true) resolve(outcome.result)
        else reject(outcome?.error ?? new StoreUnavailable('the write was not answered'))
      }
      committed(batch.length, clock.monotonicMs() - beganAt)
    }
    this.#isUnderWay = false
    this.#idle?.()
  }

  /** As many of those that wait as may share a transaction, in order; at least one. */
  #nextBatch(): Waiting[] {
    const {batchMax = BATCH_MAX} = this.#options
    let items = 0
    let length = 0
    for (const {write} of this.#waiting) {
      const {isShared} = WRITE_PLANS[write.name]
      items += itemsOf(write.name, write.input)
      const fits = isShared && length < batchMax && items <= MERGED_ITEMS_MAX
      if (length > 0 && !fits) break
      length += 1
      if (!isShared) break
    }
    return this.#waiting.splice(0, length)
  }
}
