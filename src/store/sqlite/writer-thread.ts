/**
 * The writer's thread seen from outside. When it dies, what was under way has an unknown outcome and
 * nothing works after.
 */
import {Worker} from 'node:worker_threads'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import type {WriteAnswer, WriteRequest} from './engine.ts'
import type {SchemaResult} from './schema.ts'
import type {Committer} from './writer.ts'
import type {FromWriter, ToWriter, WriterData} from './writer-worker.ts'

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
