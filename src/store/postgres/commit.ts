/**
 * Carrying out writes: several in one transaction, each heard of only after the commit. One that is at
 * fault is taken out and refused alone; a transaction undone for another's sake is done again, and one that
 * failed is done in pieces, within bounds. When the connection breaks during the commit nobody knows what
 * became of it: writes that may be repeated are, and find out; the others say so.
 */
import type {Clock} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import type {StoreLimits, Transaction} from '../sql/query.ts'
import {
  ANSWER_LIMIT_MS,
  beginTransaction,
  postgresDialect,
  type Session,
  type StoreTime,
} from './connection.ts'
import {
  ConnectionLost,
  NoPrimary,
  sqlState,
  textOf,
  unavailable,
  type ErrorKind,
  classifyError,
} from './errors.ts'
import type {SessionPool} from './pool.ts'
import type {Primary} from './primary.ts'
import type {Statements} from './statements.ts'
import {
  alone,
  resultsOf,
  isRepeatable,
  joined,
  locksFor,
  queryOf,
  type BatchEntry,
  type Write,
  WRITE_PLANS,
} from './write-plan.ts'

/** Tries of one batch, and how long after its beginning a new one may begin. */
const TRIES_MAX = 6
const TRY_AGAIN_WITHIN_MS = 2_500
/** How long after its beginning a batch that failed is still worked through in pieces: others wait behind. */
const PIECES_WITHIN_MS = 6_000
/**
 * A batch that failed is cut into so many, and those that fail again. One at fault among 256 is alone after
 * three cuts; where nearly all are, few tries fail but those of single writes.
 */
const PIECES = 8
/**
 * What a piece waits for a lock: the whole batch waited long already, so that somebody keeps it, and
 * whatever needs it must not use up the time of the others.
 */
const PIECE_LOCK_LIMIT_MS = 50

export type Outcome =
  {readonly ok: true; readonly result: unknown} | {readonly ok: false; readonly error: Error}

export class Committer {
  readonly #parts: TransactParts
  readonly #pool: SessionPool

  constructor(parts: TransactParts, pool: SessionPool) {
    this.#parts = parts
    this.#pool = pool
  }

  /** Answers each write; never throws. All of them are of one lane. */
  async commit(writes: readonly Write[]): Promise<Map<Write, Outcome>> {
    return await new Batch(this.#parts, this.#pool, writes, null).run()
  }
}

/** Of what a piece was cut. */
interface Whole {
  /** Monotonic, of the first of them. */
  readonly beganAt: number
  /** A commit of these writes may have happened. */
  readonly mayBeStored: boolean
}

/** One batch on its way, perhaps through several transactions. */
class Batch {
  readonly #parts: TransactParts
  readonly #pool: SessionPool
  readonly #outcomes = new Map<Write, Outcome>()
  readonly #whole: Whole | null
  readonly #beganAt: number
  #units: readonly BatchEntry[]
  #tries = 0
  /** A commit of these writes may have happened. */
  #mayBeStored: boolean

  constructor(
    parts: TransactParts,
    pool: SessionPool,
    writes: readonly Write[],
    whole: Whole | null,
  ) {
    this.#parts = parts
    this.#pool = pool
    this.#whole = whole
    this.#mayBeStored = whole?.mayBeStored ?? false
    this.#units = joined(writes)
    this.#beganAt = parts.clock.monotonicMs()
  }

  async run(): Promise<Map<Write, Outcome>> {
    while (this.#units.length > 0) {
      const lockLimitMs = this.#whole === null ? null : PIECE_LOCK_LIMIT_MS
      const tried = await transact(this.#parts, this.#pool, this.#units, lockLimitMs)
      this.#tries += 1
      switch (tried.kind) {
        case 'committed':
          this.#settle(this.#units, tried.results)
          break
        case 'refused':
          this.#refuse(tried.unit, tried.error)
          break
        case 'failed':
          await this.#failed(tried.verdict, tried.error)
          break
        case 'unknown':
          this.#mayBeStored = true
          this.#unknown(tried.error)
          break
      }
    }
    return this.#outcomes
  }

  get #mayTryAgain(): boolean {
    const elapsedMs = this.#parts.clock.monotonicMs() - this.#beganAt
    return this.#tries < TRIES_MAX && elapsedMs < TRY_AGAIN_WITHIN_MS && this.#hasTime
  }

  /** Of the whole that this is a piece of. */
  get #hasTime(): boolean {
    const beganAt = this.#whole?.beganAt ?? this.#beganAt
    return this.#parts.clock.monotonicMs() - beganAt < PIECES_WITHIN_MS
  }

  #settle(units: readonly BatchEntry[], results: readonly unknown[]): void {
    units.forEach((unit, index) => {
      const answers = resultsOf(unit, results[index])
      unit.writes.forEach((write, at) => {
        this.#outcomes.set(write, {ok: true, result: answers[at]})
      })
    })
    this.#units = []
  }

  /** The others go on without it; joined writes are tried one by one: only one of them may be at fault. */
  #refuse(unit: BatchEntry, error: Error): void {
    if (unit.writes.length === 1) this.#outcomes.set(unit.writes[0]!, {ok: false, error})
    const parts = unit.writes.length === 1 ? [] : unit.writes.map((write) => alone(write))
    this.#units = this.#units.flatMap((other) => (other === unit ? parts : [other]))
  }

  async #failed(verdict: ErrorKind, error: unknown): Promise<void> {
    if ((verdict === 'again' || verdict === 'moved') && this.#mayTryAgain) return
    const writes = this.#units.flatMap((unit) => unit.writes)
    const isOfTheServer =
      verdict === 'moved' || error instanceof StoreUnavailable || error instanceof NoPrimary
    const isFault = verdict === 'fault'
    const told = isFault ? faultOf(error) : unavailable(error)
    if (writes.length > 1 && !isOfTheServer) await this.#tryPieces(writes)
    this.#giveUp(this.#mayBeStored ? unknownOf(error) : told)
  }

  /**
   * One of them may be too much for the store, or need what somebody keeps; it must not take the others with
   * it. In their order, while there is time; what is left stays to be given up.
   */
  async #tryPieces(writes: readonly Write[]): Promise<void> {
    const whole = {beganAt: this.#whole?.beganAt ?? this.#beganAt, mayBeStored: this.#mayBeStored}
    const length = Math.ceil(writes.length / PIECES)
    let from = 0
    for (; from < writes.length && this.#hasTime; from += length) {
      const piece = new Batch(this.#parts, this.#pool, writes.slice(from, from + length), whole)
      for (const [write, outcome] of await piece.run()) this.#outcomes.set(write, outcome)
    }
    this.#units = joined(writes.slice(from))
  }

  #unknown(error: unknown): void {
    const repeated = this.#mayTryAgain ? this.#units.filter(isRepeatable) : []
    this.#units = this.#units.filter((unit) => !repeated.includes(unit))
    this.#giveUp(unknownOf(error))
    this.#units = repeated
  }

  #giveUp(error: Error): void {
    for (const {writes} of this.#units)
      for (const write of writes) this.#outcomes.set(write, {ok: false, error})
    this.#units = []
  }
}

function unknownOf(error: unknown): OutcomeUnknown {
  return new OutcomeUnknown(`whether it was stored is unknown: ${textOf(error)}`, {cause: error})
}

/*
 * One try of one transaction: begun on the primary, its locks and steps, its commit; and what came of it.
 * Decides nothing about trying again.
 */

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

export type TransactResult =
  | {readonly kind: 'committed'; readonly results: readonly unknown[]}
  /** The unit is at fault; nothing was changed. */
  | {readonly kind: 'refused'; readonly unit: BatchEntry; readonly error: Error}
  /** Nothing was changed. */
  | {readonly kind: 'failed'; readonly verdict: ErrorKind; readonly error: unknown}
  | {readonly kind: 'unknown'; readonly error: unknown}

export interface TransactParts {
  readonly primary: Primary
  readonly statements: Statements
  readonly time: StoreTime
  readonly limits: StoreLimits
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/** Never throws. `lockLimitMs`: the longest wait for a lock; `null` = as the session has it. */
export async function transact(
  parts: TransactParts,
  pool: SessionPool,
  units: readonly BatchEntry[],
  lockLimitMs: number | null,
): Promise<TransactResult> {
  try {
    return await pool.use((session) => transactOn(parts, session, units, lockLimitMs))
  } catch (error) {
    const verdict = classifyError(error)
    if (verdict === 'moved') parts.primary.doubt()
    return {kind: 'failed', verdict, error}
  }
}

/** Throws when the fault is nobody's, with the session given up. */
async function transactOn(
  parts: TransactParts,
  session: Session,
  units: readonly BatchEntry[],
  lockLimitMs: number | null,
): Promise<TransactResult> {
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
  {statements}: TransactParts,
  session: Session,
  tx: Transaction,
  unit: BatchEntry,
  results: unknown[],
): Promise<TransactResult | null> {
  try {
    results.push(await statements.run(session, queryOf(tx, unit)))
    return null
  } catch (error) {
    if (isOfTheDatabase(error) && classifyError(error) !== 'fault') throw error
    return {kind: 'refused', unit, error: faultOf(error)}
  }
}

/** A commit that was refused changed nothing; one that was not answered, nobody knows. */
async function end(
  {primary}: TransactParts,
  session: Session,
  results: readonly unknown[],
): Promise<TransactResult> {
  try {
    if (await session.commit(COMMIT_LIMIT_MS)) return {kind: 'committed', results}
    const error = new Error('the server committed without waiting for its standbys')
    return {kind: 'unknown', error}
  } catch (error) {
    if (!(error instanceof ConnectionLost) && classifyError(error) !== 'moved') throw error
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
