/**
 * Group commit seen from the callers: writes asked for while the writer is busy go together into its next
 * transaction. Order is kept; memory is bounded; a caller hears only of its own write, and only after the
 * commit.
 */
import {Worker} from 'node:worker_threads'
import type {Clock} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import type {WriteAnswer, WriteRequest} from './engine.ts'
import {errorOf} from './errors.ts'
import type {SchemaResult} from './schema.ts'
import type {FromWriter, ToWriter, WriterData} from './writer-worker.ts'

/** Writes in one transaction at most: one slow batch must not hold up the next for long. */
const BATCH_MAX = 256
/**
 * Batches given to the writer: the second waits there, so that it never idles for want of the first's
 * answer.
 */
const BATCHES_UNDER_WAY_MAX = 2
/** Beyond this the store cannot keep up, and waiting longer would only cost memory. */
const WAITING_MAX = 20_000

/** Commits batches in the order given. Rejects when it died; then nobody knows what became of the batch. */
export interface Committer {
  commit(batch: readonly WriteRequest[]): Promise<readonly WriteAnswer[]>
  close(): Promise<void>
}

interface Waiting {
  readonly request: WriteRequest
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

export interface WriteQueueOptions {
  readonly clock: Pick<Clock, 'monotonicMs'>
  readonly batchMax?: number
  /** Told after each batch was answered; must not throw. */
  committed(items: number, durationMs: number): void
}

export class WriteQueue {
  readonly #committer: Committer
  readonly #options: WriteQueueOptions
  #waiting: Waiting[] = []
  #underWay = 0
  #flushing = false
  #closed = false
  #idle: (() => void) | null = null

  constructor(committer: Committer, options: WriteQueueOptions) {
    this.#committer = committer
    this.#options = options
  }

  write(request: WriteRequest): Promise<unknown> {
    if (this.#closed) return Promise.reject(new StoreUnavailable('the store is closed'))
    if (this.#waiting.length >= WAITING_MAX)
      return Promise.reject(new StoreUnavailable('too many writes wait for the store'))
    return new Promise((resolve, reject) => {
      this.#waiting.push({request, resolve, reject})
      this.#flushSoon()
    })
  }

  /** Accepts nothing more; resolves when everything accepted was answered. The writer stays open. */
  async drain(): Promise<void> {
    this.#closed = true
    if (this.#underWay > 0 || this.#waiting.length > 0)
      await new Promise<void>((resolve) => (this.#idle = resolve))
  }

  /** After the current turn, so that writes asked for together are committed together. */
  #flushSoon(): void {
    if (this.#flushing || this.#underWay >= BATCHES_UNDER_WAY_MAX) return
    this.#flushing = true
    queueMicrotask(() => {
      this.#flushing = false
      this.#flush()
    })
  }

  #flush(): void {
    while (this.#underWay < BATCHES_UNDER_WAY_MAX && this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.#options.batchMax ?? BATCH_MAX)
      this.#underWay += 1
      void this.#commit(batch)
    }
    if (this.#underWay === 0 && this.#waiting.length === 0) this.#idle?.()
  }

  async #commit(batch: readonly Waiting[]): Promise<void> {
    const {clock, committed} = this.#options
    const beganAt = clock.monotonicMs()
    try {
      const answers = await this.#committer.commit(batch.map(({request}) => request))
      batch.forEach(({resolve, reject}, index) => {
        const answer = answers[index]!
        if (answer.ok) resolve(answer.result)
        else reject(errorOf(answer.failure))
      })
    } catch (error) {
      for (const {reject} of batch) reject(error)
    }
    this.#underWay -= 1
    this.#flush()
    committed(batch.length, clock.monotonicMs() - beganAt)
  }
}

/*
 * The writer's thread seen from outside. When it dies, what was under way has an unknown outcome and
 * nothing works after.
 */

/** Beside this file, with the same ending: it may run from source or compiled. */
const ENTRY = new URL(
  `./writer-worker${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`,
  import.meta.url,
)

interface UnderWay {
  readonly resolve: (answers: readonly WriteAnswer[]) => void
  readonly reject: (error: Error) => void
}

export class WriterThread implements Committer {
  readonly #worker: Worker
  readonly #underWay: UnderWay[] = []
  readonly #ended: Promise<void>
  #death: Error | null = null
  #closing = false

  private constructor(worker: Worker) {
    this.#worker = worker
    this.#ended = new Promise((resolve) => {
      worker.on('error', (error) => this.#died(error))
      worker.on('exit', () => {
        this.#died(new Error('the writer has ended'))
        resolve()
      })
    })
    worker.on('message', (message: FromWriter) => {
      if (message.kind === 'answers') this.#underWay.shift()?.resolve(message.answers)
    })
  }

  /** Starts the thread; it opens, checks and migrates the store. */
  static async open(
    data: WriterData,
  ): Promise<{readonly thread: WriterThread; readonly result: SchemaResult}> {
    const worker = new Worker(ENTRY, {workerData: data})
    const opened = new Promise<SchemaResult>((resolve) => {
      const refuse = (why: string) => resolve({ok: false, problem: `cannot be opened: ${why}`})
      worker.once('message', (message: FromWriter) => {
        if (message.kind === 'opened') resolve(message.result)
      })
      worker.once('error', (error) => refuse(String(error)))
      worker.once('exit', () => refuse('the writer ended'))
    })
    const thread = new WriterThread(worker)
    const result = await opened
    if (!result.ok) await thread.#ended
    return {thread, result}
  }

  commit(batch: readonly WriteRequest[]): Promise<readonly WriteAnswer[]> {
    if (this.#death !== null) {
      const message = `the store's writer has ended: ${this.#death.message}`
      return Promise.reject(new StoreUnavailable(message, {cause: this.#death}))
    }
    return new Promise((resolve, reject) => {
      this.#underWay.push({resolve, reject})
      this.#worker.postMessage(batch satisfies ToWriter, [])
    })
  }

  /** False once it ended other than by `close`. */
  get isSound(): boolean {
    return this.#closing || this.#death === null
  }

  async close(): Promise<void> {
    this.#closing = this.#death === null
    if (this.#death === null) this.#worker.postMessage(null satisfies ToWriter, [])
    await this.#ended
  }

  #died(error: unknown): void {
    const cause = error instanceof Error ? error : new Error(String(error))
    this.#death ??= cause
    for (const {reject} of this.#underWay.splice(0))
      reject(
        new OutcomeUnknown(`the store's writer ended while writing: ${cause.message}`, {cause}),
      )
  }
}
