/**
 * Reads a connection string for PostgreSQL: the hosts, the account, the database, TLS. In a file of its own
 * because the string holds a password: no sentence here contains any part of it that could be one, and no
 * error of a parser leaves this file.
 */
import {readFileSync} from 'node:fs'
import type {ConnectionOptions} from 'node:tls'
import {meantBy} from '../../lib/nearest.ts'

export interface Host {
  readonly host: string
  readonly port: number
}

export interface Address {
  /** Hosts, at least one. Only the primary among them is used. */
  readonly hosts: readonly Host[]
  /** `null` = the default of the PostgreSQL client: `PGUSER`, or the user of this process. */
  readonly user: string | null
  /** `null` = `PGPASSWORD`, the password file, or none. */
  readonly password: string | null
  readonly database: string
  /** Contains all tables of Belfry. */
  readonly schema: string
  /** `null` = no encryption. */
  readonly tls: ConnectionOptions | null
}

export type ParsedAddress =
  | {readonly ok: true; readonly address: Address}
  /** Sentence without secrets. */
  | {readonly ok: false; readonly problem: string}

const DEFAULT_PORT = 5432
const PORT_MAX = 65_535
const DEFAULT_SCHEMA = 'belfry'
/** Names that need no quoting; PostgreSQL truncates longer ones. */
const SCHEMA_SHAPE = /^[a-z_][a-z0-9_]{0,62}$/
/**
 * The part before the last `@` is the account; commas separate hosts. An `@` in a later part is most likely
 * from a password with a `/`, which must not be read as a host and shown.
 */
const SHAPE = /^postgres(?:ql)?:\/\/(?:([^/?#]*)@)?([^/?#@]*)(?:\/([^/?#@]*))?(?:\?([^#@]*))?$/
const HOST_SHAPE = /^(?:\[([0-9a-fA-F:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/

class ParseError extends Error {}

/**
 * Reads `postgres://user:password@host:port,host:port/database?sslmode=…&sslrootcert=…&schema=…`. `subject`
 * begins the sentence about a problem: the name of the setting, if there is one.
 */
export function parseAddress(
  url: string,
  subject = 'The connection string of the store',
): ParsedAddress {
  try {
    return {ok: true, address: read(url)}
  } catch (error) {
    if (!(error instanceof ParseError)) throw error
    return {ok: false, problem: `${subject} ${error.message}.`}
  }
}

/** The address without user and password, for messages and logs. */
export function describeAddress({hosts, database}: Pick<Address, 'hosts' | 'database'>): string {
  return `postgres://${hosts.map(describeHost).join(',')}/${database}`
}

export function describeHost({host, port}: Host): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`
}

function read(url: string): Address {
  const found = SHAPE.exec(url)
  if (found === null)
    throw new ParseError('must be a URL such as postgres://user@host:port,host:port/database')
  const [, account = '', hostList = '', database = '', query = ''] = found
  const colon = account.indexOf(':')
  const user = decoded(colon === -1 ? account : account.slice(0, colon))
  const password = colon === -1 ? null : decoded(account.slice(colon + 1))
  const parameters = parametersOf(query)
  const schema = parameters.get('schema') ?? DEFAULT_SCHEMA
  if (!SCHEMA_SHAPE.test(schema))
    throw new ParseError('names a schema that is not made of lower-case letters, digits and "_"')
  if (database === '') throw new ParseError('names no database')
  return {
    hosts: hostsOf(hostList),
    user: user === '' ? null : user,
    password,
    database: decoded(database),
    schema,
    tls: tlsOf(parameters),
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    // The text may be a password, so the message does not repeat it.
    throw new ParseError('has a "%" that is not followed by two hexadecimal digits')
  }
}

function hostsOf(list: string): Host[] {
  if (list === '') throw new ParseError('names no host')
  return list.split(',').map((text) => {
    const found = HOST_SHAPE.exec(text)
    const port = found?.[3] === undefined ? DEFAULT_PORT : Number(found[3])
    const host = found?.[1] ?? found?.[2]
    if (host === undefined || port < 1 || port > PORT_MAX)
      throw new ParseError('must name each host as name:port')
    return {host, port}
  })
}

/** Names the parameter only if it looks like a known one: other text may be part of a password. */
function unknownParameter(name: string): string {
  const known = [...PARAMETERS]
  const meant = meantBy(name, known)
  if (meant !== '')
    return `has the parameter "${name}", which is not known; the nearest name is "${meant}"`
  return `has a parameter that is not known; there are ${known.join(', ')}`
}

const PARAMETERS: ReadonlySet<string> = new Set([
  'schema',
  'sslmode',
  'sslrootcert',
  'sslcert',
  'sslkey',
])

function parametersOf(query: string): URLSearchParams {
  const parameters = new URLSearchParams(query)
  for (const name of parameters.keys())
    if (!PARAMETERS.has(name)) {
      throw new ParseError(unknownParameter(name))
    }
  return parameters
}

/**
 * The modes of PostgreSQL's own clients, without `allow` and `prefer`, which protect from no attacker. As
 * there, `require` with `sslrootcert` means `verify-ca`.
 */
function tlsOf(parameters: URLSearchParams): ConnectionOptions | null {
  const mode = parameters.get('sslmode') ?? 'disable'
  if (parameters.has('sslcert') !== parameters.has('sslkey'))
    throw new ParseError('needs sslcert and sslkey together, or neither')
  const given = {
    ...fileOf(parameters, 'sslrootcert', 'ca'),
    ...fileOf(parameters, 'sslcert', 'cert'),
    ...fileOf(parameters, 'sslkey', 'key'),
  }
  switch (mode) {
    case 'disable':
      return null
    case 'require':
      if (given.ca === undefined) return {...given, rejectUnauthorized: false}
      return {...given, rejectUnauthorized: true, checkServerIdentity: () => undefined}
    case 'verify-ca':
      return {...given, rejectUnauthorized: true, checkServerIdentity: () => undefined}
    case 'verify-full':
      return {...given, rejectUnauthorized: true}
    default:
      throw new ParseError(
        'has an sslmode that is not known; there are disable, require, verify-ca, verify-full',
      )
  }
}

function fileOf(
  parameters: URLSearchParams,
  parameter: string,
  option: 'ca' | 'cert' | 'key',
): ConnectionOptions {
  const file = parameters.get(parameter)
  if (file === null) return {}
  try {
    return {[option]: readFileSync(file)}
  } catch (error) {
    throw new ParseError(`names a ${parameter} that cannot be read`, {cause: error})
  }
}
