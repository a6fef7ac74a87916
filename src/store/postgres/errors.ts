/**
 * What an error of PostgreSQL, or of the way to it, means: whether the transaction may simply be tried
 * again, whether the store is not available, or whether the statement itself is at fault.
 */
import {DatabaseError} from 'pg'
import {StoreUnavailable} from '../../ports/store-errors.ts'

/** The connection is gone, or nobody answered in time. What it was told to commit may have been committed. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
}

/** The server wants a password, and nobody has told one. */
export class PasswordMissing extends Error {
  override readonly name = 'PasswordMissing'
}

/** None of the hosts is a primary that takes writes. */
export class NoPrimary extends Error {
  override readonly name = 'NoPrimary'
  /** What each of them said, for sentences that name the address already. */
  readonly reasons: string

  constructor(where: string, reasons: readonly string[]) {
    super(`${where} has no primary that answers: ${reasons.join('; ')}`)
    this.reasons = reasons.join('; ')
  }
}

/**
 * `moved`: this server is not (or no longer) the one to talk to, ask for the primary again. `again`: the
 * transaction was undone for the sake of another one. `unavailable`: trying later may work. `fault`: it
 * never will.
 */
export type Verdict = 'moved' | 'again' | 'unavailable' | 'fault'

/** By SQLSTATE, or by its class (the first two characters). */
const VERDICTS: Readonly<Record<string, Verdict>> = {
  // Connection exceptions, shutdown, crash, starting up, a session ended by an administrator.
  '08': 'moved',
  '57P01': 'moved',
  '57P02': 'moved',
  '57P03': 'moved',
  // The server takes no writes: it was demoted, or its disk is full and it was made so.
  '25006': 'moved',
  // This process stood still in the middle of a transaction, which the server has given up.
  '25P03': 'again',
  '57P05': 'again',
  // Serialization failures and deadlocks; a name that another transaction took at the same moment; a
  // prepared statement that is not there any more.
  '40': 'again',
  '23505': 'again',
  '26000': 'again',
  // Lock timeout, statement timeout or cancel, no resources, not a connection left, the system's errors,
  // damaged pages, refused at the door, no such database, no rights any more.
  '55P03': 'unavailable',
  '57014': 'unavailable',
  '53': 'unavailable',
  '58': 'unavailable',
  XX: 'unavailable',
  '28': 'unavailable',
  '3D': 'unavailable',
  '42501': 'unavailable',
}

export function verdictOf(error: unknown): Verdict {
  if (error instanceof ConnectionLost) return 'moved'
  if (error instanceof StoreUnavailable || error instanceof NoPrimary) return 'unavailable'
  const state = sqlState(error)
  return VERDICTS[state] ?? VERDICTS[state.slice(0, 2)] ?? 'fault'
}

/** PostgreSQL's five characters; `''` when it is none of its errors. */
export function sqlState(error: unknown): string {
  return error instanceof DatabaseError ? (error.code ?? '') : ''
}

/** What a caller gets of an error after which trying later may work. */
export function unavailable(error: unknown): StoreUnavailable {
  if (error instanceof StoreUnavailable) return error
  return new StoreUnavailable(`the store is not available: ${textOf(error)}`, {cause: error})
}

/** One line. Neither PostgreSQL nor its client puts a password into a message. */
export function textOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(textOf).join('; ')
  const text = error instanceof Error ? error.message : String(error)
  return text.split('\n')[0] ?? ''
}
