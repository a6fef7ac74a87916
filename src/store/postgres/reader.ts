/**
 * Reads, each on one snapshot of the primary: a read anywhere sees every acknowledged write. A read on a
 * broken connection is repeated on another one, within a short time.
 */
import type {Clock} from '../../ports/runtime.ts'
import type {Query, StoreLimits, Transaction} from '../sql/query.ts'
import type {Session, StoreTime} from './connection.ts'
import {unavailable, classifyError} from './errors.ts'
import type {SessionPool} from './pool.ts'
import type {Primary} from './primary.ts'
import type {Statements} from './statements.ts'
import {PipelinedTransaction} from './transaction.ts'

const TRIES_MAX = 4
const RETRY_WITHIN_MS = 1_500

export interface ReaderParts {
  readonly primary: Primary
  readonly pool: SessionPool
  readonly statements: Statements
  readonly time: StoreTime
  readonly limits: StoreLimits
  readonly clock: Pick<Clock, 'monotonicMs'>
}

export class Reader {
  readonly #parts: ReaderParts

  constructor(parts: ReaderParts) {
    this.#parts = parts
  }

  /** Runs a query that only reads. Throws `StoreUnavailable`. */
  async snapshot<Result>(query: (tx: Transaction) => Query<Result>): Promise<Result> {
    const {pool, primary, clock} = this.#parts
    const startedAt = clock.monotonicMs()
    for (let tries = 1; ; tries += 1) {
      try {
        return await pool.use((session) => this.#transaction(session, query))
      } catch (error) {
        const kind = classifyError(error)
        if (kind === 'permanent') throw error
        if (kind === 'not_primary') primary.doubt()
        const isOver = tries >= TRIES_MAX || clock.monotonicMs() - startedAt > RETRY_WITHIN_MS
        if (kind === 'unavailable' || isOver) throw unavailable(error)
      }
    }
  }

  close(): Promise<void> {
    return this.#parts.pool.close()
  }

  async #transaction<Result>(
    session: Session,
    query: (tx: Transaction) => Query<Result>,
  ): Promise<Result> {
    try {
      const tx = new PipelinedTransaction<null>(session, 'REPEATABLE READ READ ONLY', this.#parts)
      const result = await tx.run(null, query)
      // Nothing depends on its reply; the session's next request follows it.
      void Promise.allSettled([session.run('COMMIT')])
      return result
    } catch (error) {
      session.destroy()
      throw error
    }
  }
}
