/**
 * A transaction on one session, in few round trips. `BEGIN` is sent with the first statements unless they
 * depend on the time that it returns, statements whose rows are not needed are not waited for, and `COMMIT`
 * follows at once. Knows neither locks nor retries.
 */
import {assert} from '../../lib/assert.ts'
import type {Query, Statement, StoreLimits, Transaction} from '../sql/query.ts'
import {
  beginTransaction,
  type CommitResult,
  type Isolation,
  postgresDialect,
  type Session,
  type StoreTime,
} from './connection.ts'
import type {Statements} from './statements.ts'

/** A query asked for the time before the server has returned it. */
class TimeUnknown extends Error {
  override readonly name = 'TimeUnknown'
}

export interface TransactionParts {
  readonly statements: Statements
  readonly time: StoreTime
  readonly limits: StoreLimits
}

/** An error of a statement that was not waited for. Statements after it fail because of it. */
export interface UnawaitedError<Owner> {
  readonly owner: Owner
  readonly error: unknown
}

/** `Owner`: what a query is run for. */
export class PipelinedTransaction<Owner> implements Transaction {
  readonly dialect = postgresDialect
  readonly limits: StoreLimits
  readonly #session: Session
  readonly #statements: Statements
  readonly #beginning: Promise<void>
  /** Settled replies that were not waited for; never reject. */
  readonly #unawaited: Promise<void>[] = []
  #now: number | null = null
  #unawaitedError: UnawaitedError<Owner> | null = null

  /** Sends `BEGIN`; its errors are thrown by the first statement that is waited for. */
  constructor(
    session: Session,
    isolation: Isolation,
    {statements, time, limits}: TransactionParts,
  ) {
    this.#session = session
    this.#statements = statements
    this.limits = limits
    this.#beginning = beginTransaction(session, isolation, time).then((now) => {
      this.#now = now
    })
    // A caller that waits for it gets its error.
    void Promise.allSettled([this.#beginning])
  }

  get now(): number {
    if (this.#now === null) throw new TimeUnknown('the server has not returned its time yet')
    return this.#now
  }

  /** Runs a query of `owner`. Replies that it does not need are not waited for. */
  async run<Given extends Owner, Result>(
    owner: Given,
    queryOf: (tx: Transaction, owner: Given) => Query<Result>,
  ): Promise<Result> {
    let query = queryOf(this, owner)
    let next = this.#firstOf(query)
    if (next === null) {
      await this.#beginning
      query = queryOf(this, owner)
      next = query.next()
    }
    while (next.done !== true) {
      const answer = this.#statements.answer(this.#session, next.value, (reply) =>
        this.#add(owner, reply),
      )
      void Promise.allSettled([answer])
      await this.#beginning
      next = query.next(await answer)
    }
    return next.value
  }

  /** Sends statements whose rows are not needed, before the time is known. */
  async send(owner: Owner, query: Query<void>): Promise<void> {
    for (let next = query.next(); next.done !== true; next = query.next()) {
      assert(next.value.kind === 'send', 'the rows of the statement are not needed')
      await this.#statements.answer(this.#session, next.value, (reply) => this.#add(owner, reply))
    }
  }

  /** Sends `Session.commit` behind all statements. */
  commit(limitMs: number): Promise<CommitResult> {
    return this.#session.commit(limitMs)
  }

  /** The first error of a statement that was not waited for; resolves after all their replies. */
  async unawaitedError(): Promise<UnawaitedError<Owner> | null> {
    await Promise.all(this.#unawaited)
    return this.#unawaitedError
  }

  /** The first step of a query; `null` = it needs the time. It has no effect, so it can be repeated. */
  #firstOf<Result>(query: Query<Result>): IteratorResult<Statement, Result> | null {
    try {
      return query.next()
    } catch (error) {
      if (error instanceof TimeUnknown) return null
      throw error
    }
  }

  #add(owner: Owner, reply: Promise<unknown>): void {
    const settled = reply.then(
      () => {},
      (error: unknown) => {
        this.#unawaitedError ??= {owner, error}
      },
    )
    this.#unawaited.push(settled)
  }
}
