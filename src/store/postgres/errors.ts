/**
 * What an error of PostgreSQL, or of the way to it, means: whether the transaction may simply be tried
 * again, whether the store is not available, or whether the statement itself is at fault.
 */
import {DatabaseError} from 'pg'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {type Address, describeHost, type Host} from './url.ts'

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
export type ErrorKind = 'moved' | 'again' | 'unavailable' | 'fault'

/** By SQLSTATE, or by its class (the first two characters). */
const VERDICTS: Readonly<Record<string, ErrorKind>> = {
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

export function classifyError(error: unknown): ErrorKind {
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

/*
 * Why a server of the address is not the one, as a person reads it: what is wrong and the fix, for what goes
 * wrong where a store is set up. Apart from `failure.ts`, which says what the program makes of it.
 */

/** Nothing else is told by the name: it is read from the outside by the system. */
const UNRESOLVED: ReadonlySet<string> = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'EAI_FAIL',
  'EAI_NODATA',
])
/** How certificates that nobody vouches for are told by OpenSSL. */
const UNTRUSTED: ReadonlySet<string> = new Set([
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
])

/** A sentence without its full stop, which begins with the host; nothing secret is in it. */
export function reasonOf(error: unknown, host: Host, address: Address): string {
  const where = describeHost(host)
  const role = address.user === null ? 'the role' : `role ${quoted(address.user)}`
  if (error instanceof PasswordMissing)
    return (
      `${where} wants a password of ${role} and none is given; ` +
      'put it into the connection string, PGPASSWORD or a password file'
    )
  if (error instanceof DatabaseError) return `${where} ${refusal(error, role, address)}`
  return unreached(error, where)
}

/** The server's own words are kept: they name what it looked at. */
function refusal(error: DatabaseError, role: string, {database}: Address): string {
  const said = textOf(error)
  switch (sqlState(error)) {
    case '28P01':
      return `refuses the password of ${role}; give the right one, or set it anew with ALTER ROLE`
    case '28000':
      return `lets ${role} not in (${said}); create the role, or let it in by pg_hba.conf as sslmode has it`
    case '3D000':
      return `has no database ${quoted(database)}; create it, or name another in the connection string`
    case '42501':
      return `lets ${role} not into the database (${said}); run GRANT CONNECT ON DATABASE ${quoted(database)}`
    case '53300':
      return `has no connection left for ${role} (${said}); raise max_connections or the role's limit`
    case '57P03':
      return `takes no connections yet (${said}); start again when it does`
    default:
      return `says: ${said}`
  }
}

function unreached(error: unknown, where: string): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const code = (cause as {readonly code?: unknown}).code
  if (typeof code !== 'string') return `${where}: ${textOf(cause)}`
  if (code === 'ECONNREFUSED')
    return `nothing listens on ${where} (${code}); check the host and the port, and that PostgreSQL runs`
  if (UNRESOLVED.has(code))
    return `the name of the host ${where} does not resolve (${code}); correct the name`
  if (UNTRUSTED.has(code))
    return `${where} shows a certificate nobody vouches for (${textOf(cause)}); see sslrootcert`
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `${where} shows a certificate of another host (${textOf(cause)}); name the host as it does`
  return `${where}: ${textOf(cause)}`
}

/** As SQL writes a name. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
