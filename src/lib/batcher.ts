/**
 * Collects single items of many callers into batches. A batch is flushed after a short wait or when it is
 * full. The next batch collects during a flush and, under load, during a pause after it: few large flushes
 * cost less than many small ones.
 */

export interface BatcherOptions<Item, Result> {
  readonly clock: {after(delayMs: number, callback: () => void): {cancel(): void}}
  readonly waitMs: number
  /** Pause after a flush under load; default none. */
  readonly pauseMs?: number
  readonly itemsMax: number
  /** Returns one result per item, in order. A rejection rejects every item of the batch. */
  readonly flush: (items: readonly Item[]) => Promise<readonly Result[]>
}

/** A flush of this many items shows load: a pause then delays results by less than it saves. */
const LOADED_ITEMS = 2

interface QueuedItem<Item, Result> {
  readonly item: Item
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
}

export class Batcher<Item, Result> {
  readonly #options: BatcherOptions<Item, Result>
  #queue: QueuedItem<Item, Result>[] = []
  #timer: {cancel(): void} | null = null
  #flushing = false

  constructor(options: BatcherOptions<Item, Result>) {
    this.#options = options
  }

  /** Resolves with the item's own result when its batch is done. */
  add(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#queue.push({item, resolve, reject})
      if (this.#flushing) return
      if (this.#queue.length >= this.#options.itemsMax) void this.#flush()
      else this.#timer ??= this.#options.clock.after(this.#options.waitMs, () => void this.#flush())
    })
  }

  async #flush(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    this.#flushing = true
    while (this.#queue.length > 0) {
      const batch = this.#queue.splice(0, this.#options.itemsMax)
      try {
        const results = await this.#options.flush(batch.map(({item}) => item))
        batch.forEach(({resolve}, index) => resolve(results[index]!))
      } catch (error) {
        for (const {reject} of batch) reject(error)
      }
      if (batch.length >= LOADED_ITEMS && this.#queue.length < this.#options.itemsMax)
        await this.#pause()
    }
    this.#flushing = false
  }

  async #pause(): Promise<void> {
    const {clock, pauseMs} = this.#options
    if (pauseMs !== undefined) await new Promise<void>((resolve) => clock.after(pauseMs, resolve))
  }
}
