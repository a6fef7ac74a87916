/**
 * Reads: each one snapshot of the primary, so that what was acknowledged is seen by the next read anywhere.
 * A read that met a broken connection is done again on another; it never waits long.
 */
import type {Clock} from '../../ports/runtime.ts'
import {type ReadName, readQuery} from '../sql/methods.ts'
import type {Query, StoreLimits, Transaction} from '../sql/query.ts'
import {beginTransaction, postgresDialect, type Session, type StoreTime} from './connection.ts'
import {unavailable, classifyError} from './errors.ts'
import type {SessionPool} from './pool.ts'
import type {Primary} from './primary.ts'
import type {Statements} from './statements.ts'

const TRIES_MAX = 4
const TRY_AGAIN_WITHIN_MS = 1_500

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

  /** Throws `StoreUnavailable`. */
  async read(name: ReadName, input: readonly unknown[]): Promise<unknown> {
    return await this.snapshot((tx) => readQuery(name)(tx, ...input))
  }

  /** Any step that only reads. */
  async snapshot<Result>(step: (tx: Transaction) => Query<Result>): Promise<Result> {
    const {pool, primary, clock} = this.#parts
    const beganAt = clock.monotonicMs()
    for (let tries = 1; ; tries += 1) {
      try {
        return await pool.use((session) => this.#transaction(session, step))
      } catch (error) {
        const verdict = classifyError(error)
        if (verdict === 'fault') throw error
        if (verdict === 'moved') primary.doubt()
        const isOver = tries >= TRIES_MAX || clock.monotonicMs() - beganAt > TRY_AGAIN_WITHIN_MS
        if (verdict === 'unavailable' || isOver) throw unavailable(error)
      }
    }
  }

  async #transaction<Result>(
    session: Session,
    step: (tx: Transaction) => Query<Result>,
  ): Promise<Result> {
    const {statements, time, limits} = this.#parts
    try {
      const now = await beginTransaction(session, 'REPEATABLE READ READ ONLY', time)
      const result = await statements.run(session, step({now, dialect: postgresDialect, limits}))
      await session.run('COMMIT')
      return result
    } catch (error) {
      session.destroy()
      throw error
    }
  }
}
