/**
 * Why a server of the address is not the one, as a person reads it: what is wrong and the fix, for what goes
 * wrong where a store is set up. Apart from `failure.ts`, which says what the program makes of it.
 */
import {DatabaseError} from 'pg'
import {describeHost, type Address, type Host} from './url.ts'
import {PasswordMissing, sqlState, textOf} from './errors.ts'

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
