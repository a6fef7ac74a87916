/**
 * One try of one transaction: begun on the primary, its locks and steps, its commit; and what came of it.
 * Decides nothing about trying again.
 */
import type {Clock} from '../../ports/runtime.ts'
import type {StoreLimits, Transaction} from '../sql/transaction.ts'
import {postgresDialect} from './dialect.ts'
import {ConnectionLost, sqlState, textOf, verdictOf, type Verdict} from './errors.ts'
import type {Primary} from './primary.ts'
import {ANSWER_LIMIT_MS, type Session} from './connection.ts'
import type {SessionPool} from './pool.ts'
import type {Statements} from './statements.ts'
import {beginTransaction, type StoreTime} from './transaction.ts'
import {locksFor, stepOf, type Unit} from './unit.ts'
import {WRITE_PLANS} from './write-plan.ts'

/** A commit waits for the disk and for synchronous standbys, which may be far away; then it is given up. */
const COMMIT_LIMIT_MS = 8_000
/** For the few writes that touch as much as a job's whole history. */
const LONG_STATEMENT_MS = 30_000
const LONG_STATEMENTS = `SET LOCAL statement_timeout TO ${LONG_STATEMENT_MS}`
/**
 * Only a restore thinks for long between two statements, about each of its jobs. Whatever else is cut off in
 * the middle of its transaction must let go soon of what it has locked: the leader may want it.
 */
const LONG_THOUGHTS = `SET LOCAL idle_in_transaction_session_timeout TO ${LONG_STATEMENT_MS}`

export type Attempt =
  | {readonly kind: 'committed'; readonly results: readonly unknown[]}
  /** The unit is at fault; nothing was changed. */
  | {readonly kind: 'refused'; readonly unit: Unit; readonly error: Error}
  /** Nothing was changed. */
  | {readonly kind: 'failed'; readonly verdict: Verdict; readonly error: unknown}
  | {readonly kind: 'unknown'; readonly error: unknown}

export interface AttemptParts {
  readonly primary: Primary
  readonly statements: Statements
  readonly time: StoreTime
  readonly limits: StoreLimits
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** Never throws. `lockLimitMs`: the longest wait for a lock; `null` = as the session has it. */
export async function attempt(
  parts: AttemptParts,
  pool: SessionPool,
  units: readonly Unit[],
  lockLimitMs: number | null,
): Promise<Attempt> {
  try {
    return await pool.use((session) => transact(parts, session, units, lockLimitMs))
  } catch (error) {
    const verdict = verdictOf(error)
    if (verdict === 'moved') parts.primary.doubt()
    return {kind: 'failed', verdict, error}
  }
}

/** Throws when the fault is nobody's, with the session given up. */
async function transact(
  parts: AttemptParts,
  session: Session,
  units: readonly Unit[],
  lockLimitMs: number | null,
): Promise<Attempt> {
  const {statements, limits, time} = parts
  try {
    const now = await beginTransaction(session, 'READ COMMITTED', time)
    const tx = {now, dialect: postgresDialect, limits}
    const isLong = units.some(({name}) => WRITE_PLANS[name].isLong)
    if (isLong) await session.run(LONG_STATEMENTS)
    if (lockLimitMs !== null) await session.run(`SET LOCAL lock_timeout TO ${lockLimitMs}`)
    if (units.some(({name}) => name === 'restore')) await session.run(LONG_THOUGHTS)
    session.answerLimitMs = isLong ? LONG_STATEMENT_MS + ANSWER_LIMIT_MS : ANSWER_LIMIT_MS
    await statements.run(session, locksFor(units))
    const results: unknown[] = []
    for (const unit of units) {
      const refused = await carryOut(parts, session, tx, unit, results)
      if (refused !== null) {
        await session.run('ROLLBACK')
        return refused
      }
    }
    return await end(parts, session, results)
  } catch (error) {
    session.destroy()
    throw error
  }
}

/** Runs a step; `null` and one more result, or why it is refused. */
async function carryOut(
  {statements}: AttemptParts,
  session: Session,
  tx: Transaction,
  unit: Unit,
  results: unknown[],
): Promise<Attempt | null> {
  try {
    results.push(await statements.run(session, stepOf(tx, unit)))
    return null
  } catch (error) {
    if (isOfTheDatabase(error) && verdictOf(error) !== 'fault') throw error
    return {kind: 'refused', unit, error: faultOf(error)}
  }
}

/** A commit that was refused changed nothing; one that was not answered, nobody knows. */
async function end(
  {primary}: AttemptParts,
  session: Session,
  results: readonly unknown[],
): Promise<Attempt> {
  try {
    if (await session.commit(COMMIT_LIMIT_MS)) return {kind: 'committed', results}
    const error = new Error('the server committed without waiting for its standbys')
    return {kind: 'unknown', error}
  } catch (error) {
    if (!(error instanceof ConnectionLost) && verdictOf(error) !== 'moved') throw error
    session.destroy()
    primary.doubt()
    return {kind: 'unknown', error}
  }
}

function isOfTheDatabase(error: unknown): boolean {
  return error instanceof ConnectionLost || sqlState(error) !== ''
}

/** A broken invariant or an expected refusal stays what it is; PostgreSQL's own errors get a sentence. */
export function faultOf(error: unknown): Error {
  if (error instanceof Error && !isOfTheDatabase(error)) return error
  return new Error(`the store failed: ${textOf(error)}`, {cause: error})
}
