/**
 * Write queue with group commit: writes requested while the writer is busy go together, as one message, into
 * its next transaction. Order is kept and memory is bounded. Each caller learns only the result of its own
 * write, after the commit.
 */
import {Worker} from 'node:worker_threads'
import type {Clock} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import {decodeAnswers, type WriteAnswer, type WriteRequest} from './engine.ts'
import {errorOf} from './errors.ts'
import type {SchemaResult} from './schema.ts'
import type {FromWriter, ToWriter, WriterData} from './writer-worker.ts'

/** Writes in one transaction at most: one slow batch must not delay the next for long. */
const BATCH_MAX = 256
/** Batches sent to the writer. The second waits there, so that the writer never idles between messages. */
const BATCHES_SENT_MAX = 2
/** Backpressure: with more than this the store cannot keep up, and waiting longer would only cost memory. */
const WAITING_MAX = 20_000

/** Commits batches in order. Rejects if the writer died: the outcome of the batch is unknown. */
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
  /** Called after the writes of each batch were resolved or rejected; must not throw. */
  committed(items: number, durationMs: number): void
}

export class WriteQueue {
  readonly #committer: Committer
  readonly #options: WriteQueueOptions
  #waiting: Waiting[] = []
  /** Batches sent to the writer and not answered. */
  #sent = 0
  #isFlushScheduled = false
  #isClosed = false
  #onIdle: (() => void) | null = null

  constructor(committer: Committer, options: WriteQueueOptions) {
    this.#committer = committer
    this.#options = options
  }

  write(request: WriteRequest): Promise<unknown> {
    if (this.#isClosed) return Promise.reject(new StoreUnavailable('the store is closed'))
    if (this.#waiting.length >= WAITING_MAX)
      return Promise.reject(new StoreUnavailable('too many writes wait for the store'))
    return new Promise((resolve, reject) => {
      this.#waiting.push({request, resolve, reject})
      this.#scheduleFlush()
    })
  }

  /** Accepts no more writes; resolves when each accepted one was resolved or rejected. Closes no writer. */
  async drain(): Promise<void> {
    this.#isClosed = true
    if (this.#sent > 0 || this.#waiting.length > 0)
      await new Promise<void>((resolve) => (this.#onIdle = resolve))
  }

  /** Flushes in a microtask, so that writes requested in one turn are committed together. */
  #scheduleFlush(): void {
    if (this.#isFlushScheduled || this.#sent >= BATCHES_SENT_MAX) return
    this.#isFlushScheduled = true
    queueMicrotask(() => {
      this.#isFlushScheduled = false
      this.#flush()
    })
  }

  #flush(): void {
    while (this.#sent < BATCHES_SENT_MAX && this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, this.#options.batchMax ?? BATCH_MAX)
      this.#sent += 1
      void this.#commit(batch)
    }
    if (this.#sent === 0 && this.#waiting.length === 0) this.#onIdle?.()
  }

  async #commit(batch: readonly Waiting[]): Promise<void> {
    const {clock, committed} = this.#options
    const startedAt = clock.monotonicMs()
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
    this.#sent -= 1
    this.#flush()
    committed(batch.length, clock.monotonicMs() - startedAt)
  }
}

/** Beside this file, with the same extension: it runs from source or compiled. */
const ENTRY = new URL(
  `./writer-worker${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`,
  import.meta.url,
)

interface SentBatch {
  readonly resolve: (answers: readonly WriteAnswer[]) => void
  readonly reject: (error: Error) => void
}

/**
 * The writer's thread. If it dies, the outcome of each batch sent is unknown, and every later batch is
 * rejected as unavailable.
 */
export class WriterThread implements Committer {
  readonly #worker: Worker
  readonly #sent: SentBatch[] = []
  readonly #ended: Promise<void>
  #death: Error | null = null
  #isClosing = false

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
      if (message.kind === 'answers') this.#sent.shift()?.resolve(decodeAnswers(message.answers))
    })
  }

  /** Starts the thread, which opens, checks and migrates the store. */
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
      this.#sent.push({resolve, reject})
      this.#worker.postMessage(batch satisfies ToWriter, [])
    })
  }

  /** False if the thread ended other than by `close`. */
  get isSound(): boolean {
    return this.#isClosing || this.#death === null
  }

  async close(): Promise<void> {
    this.#isClosing = this.#death === null
    if (this.#death === null) this.#worker.postMessage(null satisfies ToWriter, [])
    await this.#ended
  }

  /**
   * Ends the thread without another write. What it has not committed is undone, and open readers keep SQLite
   * from writing the log back into the file.
   */
  abandon(): void {
    this.#died(new Error('the store is damaged'))
    void this.#worker.terminate()
  }

  #died(error: unknown): void {
    const cause = error instanceof Error ? error : new Error(String(error))
    this.#death ??= cause
    for (const {reject} of this.#sent.splice(0))
      reject(
        new OutcomeUnknown(`the store's writer ended while writing: ${cause.message}`, {cause}),
      )
  }
}
