/**
 * Errors of PostgreSQL and of the connection to it: their kind, which decides whether a transaction is
 * retried, and a sentence for the operator with the cause and the fix.
 */
import {DatabaseError} from 'pg'
import {messageOf} from '../../lib/error.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {type Address, describeHost, type Host} from './url.ts'

/** The connection failed, or a reply missed its deadline. A commit in flight may have succeeded. */
export class ConnectionLost extends Error {
  override readonly name = 'ConnectionLost'
}

/** The server requires a password, and none is configured. */
export class PasswordMissing extends Error {
  override readonly name = 'PasswordMissing'
}

/** The server has no TLS, and the connection string requires it. */
export class TlsMissing extends Error {
  override readonly name = 'TlsMissing'
}

/** None of the hosts is a primary that takes writes. */
export class NoPrimary extends Error {
  override readonly name = 'NoPrimary'
  /** The error of each host, for sentences that name the address already. */
  readonly reasons: string

  constructor(where: string, reasons: readonly string[]) {
    super(`${where} has no primary that answers: ${reasons.join('; ')}`)
    this.reasons = reasons.join('; ')
  }
}

/**
 * `not_primary`: this server is not (or no longer) the primary; find it again. `retry`: a conflict rolled the
 * transaction back. `unavailable`: a later retry may succeed. `permanent`: a retry cannot succeed.
 */
export type ErrorKind = 'not_primary' | 'retry' | 'unavailable' | 'permanent'

/** Error kinds by SQLSTATE, or by its class (the first two characters). */
const KINDS: Readonly<Record<string, ErrorKind>> = {
  // Connection exceptions, shutdown, crash, startup, a session terminated by an administrator.
  '08': 'not_primary',
  '57P01': 'not_primary',
  '57P02': 'not_primary',
  '57P03': 'not_primary',
  // The server is read-only: it was demoted, or its disk is full.
  '25006': 'not_primary',
  // This process stalled during a transaction, and the server ended it.
  '25P03': 'retry',
  '57P05': 'retry',
  // Serialization failures and deadlocks; a name that a concurrent transaction inserted; a prepared
  // statement that does not exist any more.
  '40': 'retry',
  '23505': 'retry',
  '26000': 'retry',
  // Lock timeout, statement timeout or cancel, no resources, no connection slots, system errors, damaged
  // pages, failed authentication, no such database, missing privileges.
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
  if (error instanceof ConnectionLost) return 'not_primary'
  if (error instanceof StoreUnavailable || error instanceof NoPrimary) return 'unavailable'
  const state = sqlState(error)
  return KINDS[state] ?? KINDS[state.slice(0, 2)] ?? 'permanent'
}

/** PostgreSQL's five-character code; `''` = not an error of PostgreSQL. */
export function sqlState(error: unknown): string {
  return error instanceof DatabaseError ? (error.code ?? '') : ''
}

/** The error for the caller if a later retry may succeed. */
export function unavailable(error: unknown): StoreUnavailable {
  if (error instanceof StoreUnavailable) return error
  return new StoreUnavailable(`the store is not available: ${textOf(error)}`, {cause: error})
}

/** The error in one line. Neither PostgreSQL nor its client puts a password into a message. */
export function textOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(textOf).join('; ')
  const text = messageOf(error)
  return text.split('\n')[0] ?? ''
}

/** The cause and the fix, beginning with the host, without a final period. Contains no secret. */
export function reasonOf(error: unknown, host: Host, address: Address): string {
  const where = describeHost(host)
  const role = address.user === null ? 'the role' : `role ${quoted(address.user)}`
  if (error instanceof PasswordMissing)
    return (
      `${where} requires a password of ${role} and none is given; ` +
      'put it into the connection string, PGPASSWORD or a password file'
    )
  if (error instanceof TlsMissing)
    return (
      `${where} has no TLS, and the sslmode of the connection string requires it; ` +
      'set ssl = on in postgresql.conf, or use sslmode=disable if the network is safe'
    )
  if (error instanceof DatabaseError) return `${where} ${refusal(error, role, address)}`
  return unreached(error, where)
}

/** Keeps the server's own message: it names the rule or object that it checked. */
function refusal(error: DatabaseError, role: string, {database, user}: Address): string {
  const said = textOf(error)
  switch (sqlState(error)) {
    case '28P01':
      return `refuses the password of ${role}; give the right one, or set a new one with ALTER ROLE`
    case '28000':
      if (user === null)
        return `refuses a login without a user (${said}); put USER@ before the host, or set PGUSER`
      return `refuses ${role} (${said}); create the role, or allow it in pg_hba.conf with this sslmode`
    case '3D000':
      return `has no database ${quoted(database)}; create it, or name another in the connection string`
    case '42501':
      return `refuses ${role} on the database (${said}); run GRANT CONNECT ON DATABASE ${quoted(database)}`
    case '53300':
      return `has no connection left for ${role} (${said}); raise max_connections or the role's limit`
    case '57P03':
      return `takes no connections yet (${said}); start again when it does`
    default:
      return `says: ${said}`
  }
}

/** Error codes of the system for a host name that does not resolve. */
const UNRESOLVED: ReadonlySet<string> = new Set([
  'ENOTFOUND',
  'EAI_AGAIN',
  'EAI_FAIL',
  'EAI_NODATA',
])

/** OpenSSL's codes for certificates that no trusted authority signed. */
const UNTRUSTED: ReadonlySet<string> = new Set([
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
])

function unreached(error: unknown, where: string): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  const code = (cause as {readonly code?: unknown}).code
  if (typeof code !== 'string')
    return `${where} does not answer as PostgreSQL does (${textOf(cause)}); check the host and the port`
  if (code === 'ECONNREFUSED')
    return `nothing listens on ${where} (${code}); check the host and the port, and that PostgreSQL runs`
  if (UNRESOLVED.has(code))
    return `the name of the host ${where} does not resolve (${code}); correct the name`
  if (UNTRUSTED.has(code))
    return `${where} has a certificate of no trusted authority (${textOf(cause)}); see sslrootcert`
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return `${where} has a certificate of another host (${textOf(cause)}); use the name in the certificate`
  return `${where}: ${textOf(cause)}`
}

/** A name as an SQL identifier. */
export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}
