/** Thread of the writer, which commits batches of writes in order. Queues and repeats nothing. */
import {Worker} from 'node:worker_threads'
import {asError} from '../../lib/error.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import {decodeAnswers, type WriteAnswer, type WriteRequest} from './engine.ts'
import type {SchemaResult} from './schema.ts'
import type {FromWriter, ToWriter, WriterData} from './writer-worker.ts'

/** Commits batches in order. Rejects if the writer died: the outcome of the batch is unknown. */
export interface Committer {
  commit(batch: readonly WriteRequest[]): Promise<readonly WriteAnswer[]>
  close(): Promise<void>
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
   * Ends the thread without another write. Uncommitted writes are undone, and open readers keep SQLite from
   * writing the log back into the file.
   */
  abandon(): void {
    this.#died(new Error('the store is damaged'))
    void this.#worker.terminate()
  }

  #died(error: unknown): void {
    const cause = asError(error)
    this.#death ??= cause
    for (const {reject} of this.#sent.splice(0))
      reject(
        new OutcomeUnknown(`the store's writer ended while writing: ${cause.message}`, {cause}),
      )
  }
}
