/**
 * Commits batches of writes, several in one transaction; each caller learns its result after the commit.
 * Writes that fail on their own are removed and rejected. Deadlocks and serialization failures are retried.
 * Batches that still fail are split, up to a time limit.
 *
 * Crash point: if the connection breaks during the commit, its outcome is unknown. Idempotent writes and
 * those with a receipt are repeated, which finds out. All others throw `OutcomeUnknown`.
 */
import type {Clock} from '../../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../ports/store-errors.ts'
import {assert} from '../../lib/assert.ts'
import {WRITES} from '../sql/methods.ts'
import {type Query, send, type StoreLimits} from '../sql/query.ts'
import {ANSWER_LIMIT_MS, type Session, type StoreTime} from './connection.ts'
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
import {PipelinedTransaction, type UnawaitedError} from './transaction.ts'
import {
  type BatchEntry,
  entriesOf,
  isRepeatable,
  locksFor,
  queryOf,
  resultsOf,
  singleEntry,
  type Write,
} from './write-plan.ts'

/** Tries of one batch, and how long after its start a new try may begin. */
const TRIES_MAX = 6
const RETRY_WITHIN_MS = 2_500
/** How long after its start the pieces of a failed batch are still tried: other batches wait behind it. */
const PIECES_WITHIN_MS = 6_000
/**
 * Pieces of a failed batch, and of a failed piece. Three splits isolate one bad write among 256; if nearly
 * all of them are bad, few tries fail beside those of single writes.
 */
const PIECES = 8
/**
 * Lock timeout of a piece. The whole batch has waited long already, so another transaction keeps the lock;
 * the writes that need it must not use up the time of the others.
 */
const PIECE_LOCK_TIMEOUT_MS = 50

/**
 * Commits the batches of one queue. A batch has one result per write, in order, or its `Error`; it never
 * rejects.
 */
export function committer(
  parts: CommitParts,
  pool: SessionPool,
): (writes: readonly Write[]) => Promise<readonly unknown[]> {
  return async (writes) => {
    const results = await new Batch(parts, pool, writes, null).run()
    return writes.map((write) => results.get(write))
  }
}

/** The batch that a piece was split from. */
interface WholeBatch {
  /** Monotonic. */
  readonly startedAt: number
  /** A commit of these writes may have happened. */
  readonly mayBeStored: boolean
}

/** Batch, or a piece of one; it may take several transactions. */
class Batch {
  readonly #parts: CommitParts
  readonly #pool: SessionPool
  /** Result of each write, or the `Error` that rejects it. */
  readonly #results = new Map<Write, unknown>()
  readonly #whole: WholeBatch | null
  readonly #startedAt: number
  /** Entries without a result. */
  #entries: readonly BatchEntry[]
  #tries = 0
  /** A commit of these writes may have happened. */
  #mayBeStored: boolean

  constructor(
    parts: CommitParts,
    pool: SessionPool,
    writes: readonly Write[],
    whole: WholeBatch | null,
  ) {
    this.#parts = parts
    this.#pool = pool
    this.#whole = whole
    this.#mayBeStored = whole?.mayBeStored ?? false
    this.#entries = entriesOf(writes)
    this.#startedAt = parts.clock.monotonicMs()
  }

  async run(): Promise<ReadonlyMap<Write, unknown>> {
    while (this.#entries.length > 0) {
      const lockTimeoutMs = this.#whole === null ? null : PIECE_LOCK_TIMEOUT_MS
      const end = await transact(this.#parts, this.#pool, this.#entries, lockTimeoutMs)
      this.#tries += 1
      switch (end.kind) {
        case 'committed':
          this.#resolve(this.#entries, end.results)
          break
        case 'refused':
          this.#remove(end.entry, end.error)
          break
        case 'failed':
          await this.#failed(end.errorKind, end.error)
          break
        case 'unknown':
          this.#mayBeStored = true
          this.#repeatIdempotent(end.error)
          break
      }
    }
    return this.#results
  }

  get #mayRetry(): boolean {
    const elapsedMs = this.#parts.clock.monotonicMs() - this.#startedAt
    return this.#tries < TRIES_MAX && elapsedMs < RETRY_WITHIN_MS && this.#hasTime
  }

  /** Measured from the start of the whole batch. */
  get #hasTime(): boolean {
    const startedAt = this.#whole?.startedAt ?? this.#startedAt
    return this.#parts.clock.monotonicMs() - startedAt < PIECES_WITHIN_MS
  }

  #resolve(entries: readonly BatchEntry[], results: readonly unknown[]): void {
    entries.forEach((entry, index) => {
      const ofWrites = resultsOf(entry, results[index])
      entry.writes.forEach((write, at) => {
        this.#results.set(write, ofWrites[at])
      })
    })
    this.#entries = []
  }

  /** Rejects the entry's write; the others are tried again. Merged writes are split: one of them is bad. */
  #remove(entry: BatchEntry, error: Error): void {
    const isSingle = entry.writes.length === 1
    if (isSingle) this.#results.set(entry.writes[0]!, error)
    const singles = isSingle ? [] : entry.writes.map((write) => singleEntry(write))
    this.#entries = this.#entries.flatMap((other) => (other === entry ? singles : [other]))
  }

  async #failed(errorKind: ErrorKind, error: unknown): Promise<void> {
    if ((errorKind === 'retry' || errorKind === 'not_primary') && this.#mayRetry) return
    const writes = this.#entries.flatMap((entry) => entry.writes)
    const isOfTheServer =
      errorKind === 'not_primary' || error instanceof StoreUnavailable || error instanceof NoPrimary
    const rejection = errorKind === 'permanent' ? faultOf(error) : unavailable(error)
    if (writes.length > 1 && !isOfTheServer) await this.#tryPieces(writes)
    this.#reject(this.#mayBeStored ? unknownOf(error) : rejection)
  }

  /**
   * Isolates a write that is too large for the store or needs a lock that another transaction keeps. Pieces
   * run in the order of the writes, while there is time; the remaining ones stay without results.
   */
  async #tryPieces(writes: readonly Write[]): Promise<void> {
    const startedAt = this.#whole?.startedAt ?? this.#startedAt
    const whole = {startedAt, mayBeStored: this.#mayBeStored}
    const length = Math.ceil(writes.length / PIECES)
    let from = 0
    for (; from < writes.length && this.#hasTime; from += length) {
      const piece = new Batch(this.#parts, this.#pool, writes.slice(from, from + length), whole)
      for (const [write, result] of await piece.run()) this.#results.set(write, result)
    }
    this.#entries = entriesOf(writes.slice(from))
  }

  #repeatIdempotent(error: unknown): void {
    const repeated = this.#mayRetry ? this.#entries.filter(isRepeatable) : []
    this.#entries = this.#entries.filter((entry) => !repeated.includes(entry))
    this.#reject(unknownOf(error))
    this.#entries = repeated
  }

  #reject(error: Error): void {
    for (const {writes} of this.#entries)
      for (const write of writes) this.#results.set(write, error)
    this.#entries = []
  }
}

function unknownOf(error: unknown): OutcomeUnknown {
  return new OutcomeUnknown(`the outcome of the commit is unknown: ${textOf(error)}`, {
    cause: error,
  })
}

/** A commit waits for the disk and for synchronous standbys, which may be far away. */
const COMMIT_LIMIT_MS = 8_000
/** Timeout of the few writes that touch as much as a job's whole history. */
const LONG_STATEMENT_MS = 30_000
const LONG_STATEMENTS = `SET LOCAL statement_timeout TO ${LONG_STATEMENT_MS}`
/**
 * Only a restore computes for long between two statements, about each of its jobs. Any other transaction
 * whose process stops responding must release its locks soon: the leader may need them.
 */
const LONG_IDLE = `SET LOCAL idle_in_transaction_session_timeout TO ${LONG_STATEMENT_MS}`

export type TransactResult =
  | {readonly kind: 'committed'; readonly results: readonly unknown[]}
  /** The entry is at fault; nothing was changed. */
  | {readonly kind: 'refused'; readonly entry: BatchEntry; readonly error: Error}
  /** Nothing was changed. */
  | {readonly kind: 'failed'; readonly errorKind: ErrorKind; readonly error: unknown}
  | {readonly kind: 'unknown'; readonly error: unknown}

export interface CommitParts {
  readonly primary: Primary
  readonly statements: Statements
  readonly time: StoreTime
  readonly limits: StoreLimits
  readonly clock: Pick<Clock, 'monotonicMs'>
}

/**
 * Tries a transaction on the primary once: locks, queries, commit. The batch decides about retries. Never
 * throws. `lockTimeoutMs`: the longest wait for a lock; `null` = the session's own.
 */
async function transact(
  parts: CommitParts,
  pool: SessionPool,
  entries: readonly BatchEntry[],
  lockTimeoutMs: number | null,
): Promise<TransactResult> {
  try {
    return await pool.use((session) => transactOn(parts, session, entries, lockTimeoutMs))
  } catch (error) {
    const errorKind = classifyError(error)
    if (errorKind === 'not_primary') parts.primary.doubt()
    return {kind: 'failed', errorKind, error}
  }
}

/** Throws errors that are not of a single entry, after destroying the session. */
async function transactOn(
  parts: CommitParts,
  session: Session,
  entries: readonly BatchEntry[],
  lockTimeoutMs: number | null,
): Promise<TransactResult> {
  try {
    const isLong = entries.some(({name}) => WRITES[name].isLong)
    session.answerLimitMs = isLong ? LONG_STATEMENT_MS + ANSWER_LIMIT_MS : ANSWER_LIMIT_MS
    const tx: WriteTransaction = new PipelinedTransaction(session, 'READ COMMITTED', parts)
    await tx.send(null, prologue(entries, lockTimeoutMs))
    const results: unknown[] = []
    for (const entry of entries) {
      const refused = await runEntry(tx, entry, results)
      if (refused !== null) {
        await session.run('ROLLBACK')
        return refused
      }
    }
    return await commit(parts, session, tx, results)
  } catch (error) {
    session.destroy()
    throw error
  }
}

/** `null`: statements of no single entry. */
type WriteTransaction = PipelinedTransaction<BatchEntry | null>

/** Limits and locks of a transaction. */
function* prologue(entries: readonly BatchEntry[], lockTimeoutMs: number | null): Query<void> {
  if (entries.some(({name}) => WRITES[name].isLong)) yield* send(LONG_STATEMENTS)
  if (entries.some(({name}) => WRITES[name].isIdleLong)) yield* send(LONG_IDLE)
  if (lockTimeoutMs !== null) yield* send(`SET LOCAL lock_timeout TO ${lockTimeoutMs}`)
  yield* locksFor(entries)
}

/** Appends the entry's result and returns `null`, or returns which entry is refused and why. */
async function runEntry(
  tx: WriteTransaction,
  entry: BatchEntry,
  results: unknown[],
): Promise<TransactResult | null> {
  try {
    results.push(await tx.run(entry, queryOf))
    return null
  } catch (error) {
    // The error of an earlier statement counts: this one then only says that the transaction has failed.
    return refusalOf((await tx.unawaitedError()) ?? {owner: entry, error})
  }
}

/** Throws errors that are not of a single entry. */
function refusalOf({owner, error}: UnawaitedError<BatchEntry | null>): TransactResult {
  if (owner === null || (isOfTheDatabase(error) && classifyError(error) !== 'permanent'))
    throw error
  return {kind: 'refused', entry: owner, error: faultOf(error)}
}

/** A commit that the server rejected changed nothing; a commit without an answer has an unknown outcome. */
async function commit(
  {primary}: CommitParts,
  session: Session,
  tx: WriteTransaction,
  results: readonly unknown[],
): Promise<TransactResult> {
  try {
    const result = await tx.commit(COMMIT_LIMIT_MS)
    if (result === 'committed') return {kind: 'committed', results}
    if (result === 'rolled_back') return refusalOf(await rolledBackBy(tx))
    const error = new Error('the server committed without waiting for its standbys')
    return {kind: 'unknown', error}
  } catch (error) {
    const earlier = await tx.unawaitedError()
    // The server reported an error of an earlier statement: it did not commit.
    if (earlier !== null && !(earlier.error instanceof ConnectionLost)) throw earlier.error
    if (!(error instanceof ConnectionLost) && classifyError(error) !== 'not_primary') throw error
    session.destroy()
    primary.doubt()
    return {kind: 'unknown', error}
  }
}

async function rolledBackBy(tx: WriteTransaction): Promise<UnawaitedError<BatchEntry | null>> {
  const earlier = await tx.unawaitedError()
  assert(earlier !== null, 'only a failed transaction is rolled back')
  return earlier
}

function isOfTheDatabase(error: unknown): boolean {
  return error instanceof ConnectionLost || sqlState(error) !== ''
}

/** A broken invariant or an expected refusal stays as it is; an error of PostgreSQL gets a sentence. */
export function faultOf(error: unknown): Error {
  if (error instanceof Error && !isOfTheDatabase(error)) return error
  return new Error(`the store failed: ${textOf(error)}`, {cause: error})
}
