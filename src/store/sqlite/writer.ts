/** Thread of the writer, which commits batches of writes in order. Queues and repeats nothing. */
import {Worker} from 'node:worker_threads'
import {asError} from '../../lib/error.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import type {DamageGuard} from './damage-guard.ts'
import {decodeAnswers, type WriteRequest} from './engine.ts'
import type {SchemaResult} from './schema.ts'
import type {FromWriter, ToWriter, WriterData} from './writer-worker.ts'

/** Worker beside this file, with the same extension: from source or compiled. */
const ENTRY = new URL(
  `./writer-worker${import.meta.url.slice(import.meta.url.lastIndexOf('.'))}`,
  import.meta.url,
)

interface SentBatch {
  readonly resolve: (results: readonly unknown[]) => void
  readonly reject: (error: Error) => void
}

/**
 * The writer's thread. If it dies, the outcome of each batch sent is unknown, and every later batch is
 * rejected as unavailable.
 */
export class WriterThread {
  readonly #worker: Worker
  readonly #guard: DamageGuard
  readonly #sent: SentBatch[] = []
  readonly #ended: Promise<void>
  #death: Error | null = null
  #isClosing = false

  private constructor(worker: Worker, guard: DamageGuard) {
    this.#worker = worker
    this.#guard = guard
    this.#ended = new Promise((resolve) => {
      worker.on('error', (error) => this.#died(error))
      worker.on('exit', () => {
        this.#died(new Error('the writer has ended'))
        resolve()
      })
    })
    worker.on('message', (message: FromWriter) => {
      if (message.kind !== 'answers') return
      const results = decodeAnswers(message.answers)
      this.#sent.shift()?.resolve(results)
      for (const result of results) guard.note(result)
    })
  }

  /**
   * Starts the thread, which opens, checks and migrates the store. `onChange` is called before the schema is
   * changed.
   */
  static async open(
    data: WriterData,
    guard: DamageGuard,
    onChange: () => void,
  ): Promise<{readonly thread: WriterThread; readonly result: SchemaResult}> {
    const worker = new Worker(ENTRY, {workerData: data})
    const opened = new Promise<SchemaResult>((resolve) => {
      const refuse = (why: string) => resolve({ok: false, problem: `cannot be opened: ${why}`})
      worker.on('message', (message: FromWriter) => {
        if (message.kind === 'changing') onChange()
        if (message.kind === 'opened') resolve(message.result)
      })
      worker.once('error', (error) => refuse(String(error)))
      worker.once('exit', () => refuse('the writer ended'))
    })
    const thread = new WriterThread(worker, guard)
    const result = await opened
    if (!result.ok) await thread.#ended
    return {thread, result}
  }

  /**
   * Returns one result per write, in order; an `Error` rejects its write. Rejects if the writer died: the
   * outcome of the batch is unknown.
   */
  async commit(batch: readonly WriteRequest[]): Promise<readonly unknown[]> {
    this.#guard.check()
    if (this.#death !== null) {
      const message = `the store's writer has ended: ${this.#death.message}`
      throw new StoreUnavailable(message, {cause: this.#death})
    }
    return await new Promise((resolve, reject) => {
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
