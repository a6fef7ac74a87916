/**
 * Reads on the calling thread, each one snapshot that ends with its call. Short reads share one connection
 * and finish at once; lists may pause between pieces, so each takes a connection of its own for as long.
 */
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {type ReadName, readQuery} from '../sql/methods.ts'
import type {Query, StoreLimits} from '../sql/query.ts'
import {Connection, sqliteDialect} from './connection.ts'
import {errorOf, failureOf} from './errors.ts'

export interface Reader {
  read(name: ReadName, input: readonly unknown[]): Promise<unknown>
  close(): void
}

function queryOf(name: ReadName, input: readonly unknown[], now: number, limits: StoreLimits) {
  return readQuery(name)({now, dialect: sqliteDialect, limits}, ...input)
}

/** Reads on the writer's own connection, for a store in memory: never while a transaction is open. */
export class SharedReader implements Reader {
  readonly #connection: Connection
  readonly #clock: Pick<Clock, 'now'>
  readonly #limits: StoreLimits

  constructor(connection: Connection, clock: Pick<Clock, 'now'>, limits: StoreLimits) {
    this.#connection = connection
    this.#clock = clock
    this.#limits = limits
  }

  async read(name: ReadName, input: readonly unknown[]): Promise<unknown> {
    if (!this.#connection.database.isOpen) throw new StoreUnavailable('the store is closed')
    try {
      return this.#connection.snapshot(queryOf(name, input, this.#clock.now(), this.#limits))
    } catch (error) {
      throw errorOf(failureOf(error))
    }
  }

  close(): void {}
}

/** Lists at the same time at most; each holds back the trimming of the log while it is read. */
const LISTS_MAX = 4
/** Reads that may be long. */
const LISTS: ReadonlySet<ReadName> = new Set(['jobs', 'executions', 'busy'])

export class FileReader implements Reader {
  readonly #file: string
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #limits: StoreLimits
  readonly #connection: Connection
  readonly #free: Connection[] = []
  readonly #waiting: ((connection: Connection) => void)[] = []
  #lists = 0
  #closed = false

  constructor(file: string, clock: Pick<Clock, 'now' | 'after'>, limits: StoreLimits) {
    this.#file = file
    this.#clock = clock
    this.#limits = limits
    this.#connection = new Connection(file, {readOnly: true})
  }

  async read(name: ReadName, input: readonly unknown[]): Promise<unknown> {
    if (this.#closed) throw new StoreUnavailable('the store is closed')
    try {
      const step = queryOf(name, input, this.#clock.now(), this.#limits)
      return LISTS.has(name) ? await this.#list(step) : this.#connection.snapshot(step)
    } catch (error) {
      throw errorOf(failureOf(error))
    }
  }

  /** Lists under way end by themselves and close what they hold. */
  close(): void {
    this.#closed = true
    this.#connection.close()
    for (const connection of this.#free.splice(0)) connection.close()
  }

  async #list(step: Query<unknown>): Promise<unknown> {
    const connection = this.#free.pop() ?? (await this.#another())
    try {
      connection.execute('BEGIN')
      let next = step.next()
      while (next.done !== true) {
        if (next.value.kind === 'breathe') await this.#breath()
        next = step.next(connection.answer(next.value))
      }
      return next.value
    } finally {
      if (connection.database.isTransaction) connection.execute('COMMIT')
      this.#giveBack(connection)
    }
  }

  #another(): Promise<Connection> {
    if (this.#lists === LISTS_MAX) return new Promise((resolve) => this.#waiting.push(resolve))
    this.#lists += 1
    return Promise.resolve(new Connection(this.#file, {readOnly: true}))
  }

  #giveBack(connection: Connection): void {
    const next = this.#waiting.shift()
    if (next !== undefined) next(connection)
    else if (this.#closed) connection.close()
    else this.#free.push(connection)
  }

  #breath(): Promise<void> {
    return new Promise((resolve) => this.#clock.after(0, () => resolve()))
  }
}
