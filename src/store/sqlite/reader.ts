/**
 * Reads on the calling thread, each on one snapshot that ends with the call. Short reads share one connection
 * and run to their end synchronously. Long reads yield to the event loop, so each takes its own connection.
 */
import type {Clock} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import type {Query, StoreLimits, Transaction} from '../sql/query.ts'
import {Connection, sqliteDialect} from './connection.ts'
import type {DamageGuard} from './damage-guard.ts'
import {errorOf, failureOf} from './errors.ts'

export interface Reader {
  /** Runs a query that only reads. `isLong`: it may yield to the event loop. */
  read<Result>(query: (tx: Transaction) => Query<Result>, isLong: boolean): Promise<Result>
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

  async read<Result>(query: (tx: Transaction) => Query<Result>): Promise<Result> {
    if (!this.#connection.database.isOpen) throw new StoreUnavailable('the store is closed')
    try {
      return this.#connection.snapshot(query(transaction(this.#clock, this.#limits)))
    } catch (error) {
      throw errorOf(failureOf(error))
    }
  }
}

/** Long reads at the same time; each prevents checkpoints from trimming the log while it runs. */
const LONG_READS_MAX = 4

export class FileReader implements Reader {
  readonly #file: string
  readonly #clock: Pick<Clock, 'now' | 'after'>
  readonly #limits: StoreLimits
  readonly #guard: DamageGuard
  /** Connection of the short reads. */
  readonly #connection: Connection
  readonly #idle: Connection[] = []
  readonly #waiting: ((connection: Connection) => void)[] = []
  /** Connections opened for long reads. */
  #opened = 0
  #isClosed = false

  constructor(
    file: string,
    clock: Pick<Clock, 'now' | 'after'>,
    limits: StoreLimits,
    guard: DamageGuard,
  ) {
    this.#file = file
    this.#clock = clock
    this.#limits = limits
    this.#guard = guard
    this.#connection = new Connection(file, {readOnly: true})
  }

  async read<Result>(query: (tx: Transaction) => Query<Result>, isLong: boolean): Promise<Result> {
    if (this.#isClosed) throw new StoreUnavailable('the store is closed')
    this.#guard.check()
    try {
      const started = query(transaction(this.#clock, this.#limits))
      return isLong ? await this.#longRead(started) : this.#connection.snapshot(started)
    } catch (error) {
      const known = errorOf(failureOf(error))
      this.#guard.note(known)
      throw known
    }
  }

  /** Long reads in progress run to their end and then close their connections. */
  close(): void {
    this.#isClosed = true
    this.#connection.close()
    for (const connection of this.#idle.splice(0)) connection.close()
  }

  async #longRead<Result>(query: Query<Result>): Promise<Result> {
    const connection = this.#idle.pop() ?? (await this.#openOrWait())
    try {
      connection.execute('BEGIN')
      let next = query.next()
      while (next.done !== true) {
        if (next.value.kind === 'yield') await this.#yieldToEventLoop()
        next = query.next(connection.answer(next.value))
      }
      return next.value
    } finally {
      this.#end(connection)
    }
  }

  #end(connection: Connection): void {
    try {
      if (connection.database.isTransaction) connection.execute('COMMIT')
    } finally {
      this.#release(connection)
    }
  }

  #openOrWait(): Promise<Connection> {
    if (this.#opened === LONG_READS_MAX)
      return new Promise((resolve) => this.#waiting.push(resolve))
    const connection = new Connection(this.#file, {readOnly: true})
    // Counted after the open: one that fails, as without file descriptors, must not take a place.
    this.#opened += 1
    return Promise.resolve(connection)
  }

  #release(connection: Connection): void {
    const next = this.#waiting.shift()
    if (next !== undefined) next(connection)
    else if (this.#isClosed) connection.close()
    else this.#idle.push(connection)
  }

  #yieldToEventLoop(): Promise<void> {
    return new Promise((resolve) => this.#clock.after(0, () => resolve()))
  }
}

function transaction(clock: Pick<Clock, 'now'>, limits: StoreLimits): Transaction {
  return {now: clock.now(), dialect: sqliteDialect, limits}
}
