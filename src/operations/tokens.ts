/**
 * Tokens: created, listed, revoked. The secret of a token is in one reply, the one to its creation, and
 * nowhere else: the store has its digest.
 */
import type {Actor} from '../core/audit.ts'
import {
  type AgentLimits,
  JOIN_SECRET_PREFIX,
  readAgentLimits,
  SECRET_PREFIX,
  USES_MAX,
} from '../core/access/agent-token.ts'
import {
  type Principal,
  TOKEN_KINDS,
  type TokenKind,
  TOKENS_MAX,
} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {parseTime} from '../lib/rfc3339.ts'
import type {NewToken, TokenRecord} from '../ports/token-store.ts'
import {isObject, readJsonBytes} from '../wire/json.ts'
import {digestOf} from '../identity/token-cache.ts'
import type {OperationsContext} from './context.ts'
import {POLICY_NAME} from './policies.ts'

const TOKEN_NAME = /^[\p{L}\p{N}](?:[\p{L}\p{N} ._@-]{0,126}[\p{L}\p{N}._-])?$/u
/** Policies of a token. Bounds the work of a list. */
const POLICIES_OF_TOKEN_MAX = 16
const LIMIT_FIELDS = ['names', 'tags', 'slots'] as const
const BOOTSTRAP_NAME = 'bootstrap'

export interface CreatedToken {
  readonly token: TokenRecord
  /** Shown this once. */
  readonly secret: string
  readonly warnings: readonly string[]
}

export interface RevokedToken {
  readonly token: TokenRecord
  readonly warnings: readonly string[]
}

const NOBODY_MANAGES =
  'there is no management token any more: to make another one, start a server with --token-file'

interface TokenRequest {
  readonly name: string
  readonly kind: TokenKind
  readonly policies: readonly string[]
  readonly expiresAt: number | null
  readonly limits?: AgentLimits
  readonly uses?: number
}

export function createTokens({store, random, clock, access, settings}: OperationsContext) {
  /** Sorted by name. */
  function tokens(): Promise<readonly TokenRecord[]> {
    return store.tokens()
  }

  /** Throws `token_unknown`. */
  async function token(accessor: string): Promise<TokenRecord> {
    return requireToken(await store.token(accessor))
  }

  /** Token as a request with it would have it on this server. Throws `token_unknown`. */
  async function currentToken(accessor: string): Promise<Principal> {
    const principal = access.principal(accessor)
    if (principal === null) throw tokenUnknown()
    return principal
  }

  /** Throws `payload_unparsable`, `token_invalid`, `too_many_tokens`. */
  async function createToken(body: Uint8Array, actor: Actor): Promise<CreatedToken> {
    const request = readRequest(body, null)
    if (request.expiresAt !== null && request.expiresAt <= clock.now())
      throw invalid('expires_at: must be in the future')
    if (!settings.tokenConfigured && request.kind !== 'management')
      throw invalid('type: must be management for the first token; run belfry token bootstrap')
    const created = await create(request, false, actor)
    const warnings = grantWarnings(request, await store.policies())
    const isNamed = ({name}: TokenRecord) => name === request.name
    if ((await store.tokens()).filter(isNamed).length > 1)
      warnings.push('another token has this name: both are valid')
    return {...created, warnings}
  }

  /** The first management token. Throws `token_not_first`, and as `createToken`. */
  async function bootstrap(body: Uint8Array, actor: Actor): Promise<CreatedToken> {
    const request = readRequest(body, {name: BOOTSTRAP_NAME, type: 'management'})
    if (request.kind !== 'management') throw invalid('type: must be management, or left out')
    return {...(await create(request, true, actor)), warnings: []}
  }

  async function create(
    request: TokenRequest,
    isFirst: boolean,
    actor: Actor,
  ): Promise<Omit<CreatedToken, 'warnings'>> {
    const prefix = request.kind === 'join' ? JOIN_SECRET_PREFIX : SECRET_PREFIX
    const secret = `${prefix}${random.id()}${random.id()}` // more than 256 random bits
    const created: NewToken = {
      ...request,
      accessor: random.id(),
      digest: digestOf(secret),
      isFirst,
    }
    const result = await store.createToken(created, actor)
    if (result.kind === 'not_first')
      throw new DomainError(
        'token_not_first',
        'The first management token cannot be created: there is one. Create further ones with it.',
      )
    if (result.kind === 'full')
      throw new DomainError(
        'too_many_tokens',
        `The token cannot be created: there are ${TOKENS_MAX} tokens. Revoke some of them first.`,
      )
    await access.changed()
    return {token: result.token, secret}
  }

  /** Requests, streams and agents with it end within seconds on every server. Throws `token_unknown`. */
  async function revokeToken(accessor: string, actor: Actor): Promise<RevokedToken> {
    const token = requireToken(await store.deleteToken(accessor, actor))
    await access.changed()
    const mayLockOut = token.kind === 'management' && !access.hasConfiguredToken
    const isLast = mayLockOut && !isManaged(await store.tokens(), clock.now())
    return {token, warnings: isLast ? [NOBODY_MANAGES] : []}
  }

  return {tokens, token, currentToken, createToken, bootstrap, revokeToken}
}

function isManaged(tokens: readonly TokenRecord[], now: number): boolean {
  return tokens.some(({kind, expiresAt}) => kind === 'management' && (expiresAt ?? now + 1) > now)
}

/** Why the policies of a token grant less than was asked for. */
function grantWarnings(
  {kind, policies}: TokenRequest,
  stored: readonly {readonly name: string}[],
): string[] {
  if (kind === 'client' && policies.length === 0)
    return ['policies: a client token without a policy may do nothing']
  const names = new Set(stored.map(({name}) => name))
  return policies
    .filter((name) => !names.has(name))
    .map((name) => `policies: there is no policy ${name}, so it grants nothing`)
}

function requireToken(token: TokenRecord | null): TokenRecord {
  if (token === null) throw tokenUnknown()
  return token
}

/** The message does not repeat the accessor: it may be the secret of a token, sent by mistake. */
function tokenUnknown(): DomainError {
  return new DomainError(
    'token_unknown',
    'There is no token with this accessor. See GET /v1/acl/tokens.',
  )
}

/** `fallback`: values of an empty body, and of fields that are left out. */
function readRequest(
  body: Uint8Array,
  fallback: {readonly name: string; readonly type: TokenKind} | null,
): TokenRequest {
  const isEmpty = body.length === 0 && fallback !== null
  const fields: Record<string, unknown> = {...fallback, ...(isEmpty ? {} : readFields(body))}
  const {name, type, policies = [], expires_at: expiresAt = null} = fields
  if (typeof name !== 'string' || name === '') throw invalid('name: is required')
  if (!TOKEN_NAME.test(name))
    throw invalid(
      'name: must be 1 to 128 letters, digits, blanks, ".", "_", "@" and "-". The first must be a ' +
        'letter or a digit, and the last neither a blank nor "@"',
    )
  const kind = TOKEN_KINDS.find((known) => known === type)
  if (kind === undefined) throw invalid(`type: must be one of ${TOKEN_KINDS.join(', ')}`)
  return {
    name,
    kind,
    policies: readPolicies(policies, kind),
    expiresAt: readExpiry(expiresAt),
    ...(kind === 'agent' || kind === 'join' ? readLimits(fields) : noLimits(fields, kind)),
    ...readUses(fields.uses ?? null, kind),
  }
}

function readFields(body: Uint8Array): Record<string, unknown> {
  const json = readJsonBytes(body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw invalid(json.problem)
  if (!isObject(json.value)) throw invalid('the body must be a JSON object')
  return json.value
}

function readPolicies(value: unknown, kind: TokenKind): readonly string[] {
  const names = value ?? []
  const isValid =
    Array.isArray(names) &&
    names.length <= POLICIES_OF_TOKEN_MAX &&
    names.every((name) => typeof name === 'string' && POLICY_NAME.test(name))
  if (!isValid)
    throw invalid(`policies: must be a list of at most ${POLICIES_OF_TOKEN_MAX} names of policies`)
  const given = names as readonly string[]
  if (kind !== 'client' && given.length > 0)
    throw invalid(`policies: must be empty: only a token of type client has policies, not ${kind}`)
  return [...new Set(given)]
}

function noLimits(fields: Readonly<Record<string, unknown>>, kind: TokenKind): object {
  const given = LIMIT_FIELDS.find((field) => (fields[field] ?? null) !== null)
  if (given === undefined) return {}
  throw invalid(`${given}: is only for a token of type agent or join, not ${kind}`)
}

function readLimits(fields: Readonly<Record<string, unknown>>): {limits: AgentLimits} {
  const read = readAgentLimits(fields)
  if (!read.ok) throw invalid(read.problem)
  return {limits: read.limits}
}

/** Uses of a join token; one agent if it does not say more. */
function readUses(value: unknown, kind: TokenKind): {uses?: number} {
  if (kind !== 'join') {
    if (value !== null) throw invalid(`uses: is only for a token of type join, not ${kind}`)
    return {}
  }
  const uses = value ?? 1
  if (!Number.isInteger(uses) || Number(uses) < 1 || Number(uses) > USES_MAX)
    throw invalid(`uses: must be a whole number from 1 to ${USES_MAX}`)
  return {uses: Number(uses)}
}

function readExpiry(value: unknown): number | null {
  if (value === null || value === '') return null
  const at = typeof value === 'string' ? parseTime(value) : null
  if (at === null)
    throw invalid('expires_at: must be a time such as "2026-05-01T08:30:00Z", or null')
  return at
}

function invalid(problem: string): DomainError {
  return new DomainError('token_invalid', `The token cannot be created: ${problem}.`)
}
