/**
 * Queue of items that run in batches: items that arrive while a batch runs go together into the next one.
 * Order is kept but for urgent items, each caller gets the result of its own item, and nothing is run twice.
 */
import {pause} from './pause.ts'

export interface BatchQueueOptions<Item, Result> {
  readonly itemsMax: number
  /** Returns a result per item, in order. An `Error` as a result rejects its item; a rejection all. */
  readonly flush: (items: readonly Item[]) => Promise<readonly (Result | Error)[]>
  /**
   * Called before each flush. It returns a function that is called when the flush ends, also if it fails,
   * before its callers get their results.
   */
  readonly onFlush?: (items: number) => () => void
  /** Needed for `waitMs` and `pauseMs`. */
  readonly clock?: {after(delayMs: number, callback: () => void): {cancel(): void}}
  /** How long a batch that is not full waits for more items. Default: until the end of the turn. */
  readonly waitMs?: number
  /** Pause after a flush under load: few large flushes cost less than many small ones. Default: none. */
  readonly pauseMs?: number
  /** Batches that run at the same time; default 1. */
  readonly flushesMax?: number
  /** Items that wait, at most; default unlimited. */
  readonly waitingMax?: number
  /** How many of the first waiting items share the next batch, at least 1; default all, up to `itemsMax`. */
  readonly shared?: (items: readonly Item[]) => number
  /** Items that overtake the others if more wait than a batch takes. */
  readonly isUrgent?: (item: Item) => boolean
  /** The error of an item that is not accepted; `closed`: after `drain`. */
  readonly refusal?: (why: 'closed' | 'full') => Error
}

/** Part of a batch for urgent items. The rest is for those that wait longest, so that none waits for ever. */
const URGENT_SHARE = 3 / 4
/** A flush of this many items shows load: a pause then delays results by less than it saves. */
const LOADED_ITEMS = 2

interface Waiting<Item, Result> {
  readonly item: Item
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
}

export class BatchQueue<Item, Result> {
  readonly #options: BatchQueueOptions<Item, Result>
  #waiting: Waiting<Item, Result>[] = []
  #flushes = 0
  /** The next flush, if no running batch leads to it. */
  #scheduled: {cancel(): void} | null = null
  #isClosed = false
  #onIdle: (() => void) | null = null

  constructor(options: BatchQueueOptions<Item, Result>) {
    this.#options = options
  }

  /** Resolves with the item's own result when its batch is done. */
  add(item: Item): Promise<Result> {
    const {waitingMax = Infinity} = this.#options
    if (this.#isClosed) return Promise.reject(this.#refusal('closed'))
    if (this.#waiting.length >= waitingMax) return Promise.reject(this.#refusal('full'))
    return new Promise((resolve, reject) => {
      this.#waiting.push({item, resolve, reject})
      this.#schedule()
    })
  }

  /** Accepts no more items; resolves when each accepted one was resolved or rejected. */
  async drain(): Promise<void> {
    this.#isClosed = true
    if (this.#flushes > 0 || this.#waiting.length > 0)
      await new Promise<void>((resolve) => (this.#onIdle = resolve))
  }

  #refusal(why: 'closed' | 'full'): Error {
    return this.#options.refusal?.(why) ?? new Error(`the queue is ${why}`)
  }

  #schedule(): void {
    const {clock, waitMs, itemsMax, flushesMax = 1} = this.#options
    if (this.#flushes >= flushesMax) return
    if (clock === undefined || waitMs === undefined) {
      if (this.#scheduled !== null) return
      this.#scheduled = {cancel: () => undefined}
      void Promise.resolve().then(() => this.#flush())
    } else if (this.#waiting.length >= itemsMax) this.#flush()
    else this.#scheduled ??= clock.after(waitMs, () => this.#flush())
  }

  #flush(): void {
    const {flushesMax = 1} = this.#options
    this.#scheduled?.cancel()
    this.#scheduled = null
    while (this.#flushes < flushesMax && this.#waiting.length > 0) void this.#run(this.#nextBatch())
    if (this.#flushes === 0 && this.#waiting.length === 0) this.#onIdle?.()
  }

  #nextBatch(): readonly Waiting<Item, Result>[] {
    const {itemsMax, shared, isUrgent} = this.#options
    if (isUrgent !== undefined && this.#waiting.length > itemsMax) return this.#overtaken(isUrgent)
    if (shared === undefined) return this.#waiting.splice(0, itemsMax)
    const first = this.#waiting.slice(0, itemsMax).map(({item}) => item)
    return this.#waiting.splice(0, shared(first))
  }

  /** A batch with urgent items in their share, in the order of the calls. */
  #overtaken(isUrgent: (item: Item) => boolean): readonly Waiting<Item, Result>[] {
    const {itemsMax} = this.#options
    const urgent = this.#waiting.filter(({item}) => isUrgent(item))
    const chosen = new Set(urgent.slice(0, Math.ceil(itemsMax * URGENT_SHARE)))
    for (const each of this.#waiting) {
      if (chosen.size === itemsMax) break
      chosen.add(each)
    }
    const batch = this.#waiting.filter((each) => chosen.has(each))
    this.#waiting = this.#waiting.filter((each) => !chosen.has(each))
    return batch
  }

  async #run(batch: readonly Waiting<Item, Result>[]): Promise<void> {
    const {flush, onFlush, itemsMax, pauseMs, clock} = this.#options
    this.#flushes += 1
    const onEnd = onFlush?.(batch.length)
    try {
      const results = await flush(batch.map(({item}) => item)).finally(onEnd)
      batch.forEach(({resolve, reject}, index) => {
        const result = results[index]!
        if (result instanceof Error) reject(result)
        else resolve(result)
      })
    } catch (error) {
      for (const {reject} of batch) reject(error)
    }
    const isLoaded = batch.length >= LOADED_ITEMS && this.#waiting.length < itemsMax
    if (isLoaded && clock !== undefined && pauseMs !== undefined) await pause(clock, pauseMs)
    this.#flushes -= 1
    this.#flush()
  }
}
