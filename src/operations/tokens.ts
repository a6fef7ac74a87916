/**
 * Tokens: created, listed, revoked. The secret of a token is in one reply, the one to its creation, and
 * nowhere else: the store has its digest.
 */
import type {Actor} from '../core/audit.ts'
import {
  type AgentLimits,
  JOIN_SECRET_PREFIX,
  NO_AGENT_LIMITS,
  SECRET_PREFIX,
} from '../core/access/agent-token.ts'
import {type Principal, type TokenKind, TOKENS_MAX} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {FaultList, sentenceOf} from '../core/findings.ts'
import type {NewToken, TokenRecord} from '../ports/token-store.ts'
import {digestOf} from '../identity/token-cache.ts'
import type {OperationsContext} from './context.ts'

const LIMIT_FIELDS = ['names', 'tags', 'slots'] as const
const BOOTSTRAP_NAME = 'bootstrap'
const MANAGEMENT = {kind: 'management', policies: [], limits: NO_AGENT_LIMITS, uses: null} as const

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

/** A token to create. Its fields are valid, each by itself. */
export interface AskedToken {
  readonly name: string
  readonly kind: TokenKind
  readonly policies: readonly string[]
  readonly expiresAt: number | null
  /** Only of a token for agents. */
  readonly limits: AgentLimits
  /** Only of a join token; `null` = one agent. */
  readonly uses: number | null
}

export function createTokens({store, random, clock, access, settings}: OperationsContext) {
  /** Sorted by name. */
  const tokens = () => store.tokens()

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

  /** Throws `token_invalid`, `too_many_tokens`. */
  async function createToken(asked: AskedToken, actor: Actor): Promise<CreatedToken> {
    requireValid(asked, clock.now(), !settings.tokenConfigured)
    const created = await create(asked, false, actor)
    const warnings = grantWarnings(asked, await store.policies())
    const isNamed = ({name}: TokenRecord) => name === asked.name
    if ((await store.tokens()).filter(isNamed).length > 1)
      warnings.push('another token has this name: both are valid')
    return {...created, warnings}
  }

  /** The first management token. Throws `token_invalid`, `token_not_first`. */
  async function bootstrap(
    {name = BOOTSTRAP_NAME, expiresAt}: Partial<Pick<AskedToken, 'name' | 'expiresAt'>>,
    actor: Actor,
  ): Promise<CreatedToken> {
    const asked = {...MANAGEMENT, name, expiresAt: expiresAt ?? null}
    requireValid(asked, clock.now(), true)
    return {...(await create(asked, true, actor)), warnings: []}
  }

  async function create(
    {limits, uses, ...asked}: AskedToken,
    isFirst: boolean,
    actor: Actor,
  ): Promise<Omit<CreatedToken, 'warnings'>> {
    const {kind} = asked
    const prefix = kind === 'join' ? JOIN_SECRET_PREFIX : SECRET_PREFIX
    const secret = `${prefix}${random.id()}${random.id()}` // more than 256 random bits
    const created: NewToken = {
      ...asked,
      ...(kind === 'agent' || kind === 'join' ? {limits} : {}),
      ...(kind === 'join' ? {uses: uses ?? 1} : {}),
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
  {kind, policies}: AskedToken,
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
  return new DomainError('token_unknown', 'There is no token with this accessor.')
}

/** Rules between fields, and for the expiry. Throws `token_invalid`. */
function requireValid(asked: AskedToken, now: number, isFirst: boolean): void {
  const {kind, policies, expiresAt, limits, uses} = asked
  const faults = new FaultList()
  if (isFirst && kind !== 'management')
    faults.add('type', 'must be management for the first token; run belfry token bootstrap')
  if (expiresAt !== null && expiresAt <= now) faults.add('expires_at', 'must be in the future')
  if (kind !== 'client' && policies.length > 0)
    faults.add('policies', `must be empty: only a token of type client has policies, not ${kind}`)
  const isForAgents = kind === 'agent' || kind === 'join'
  for (const field of isForAgents ? [] : LIMIT_FIELDS)
    if (limits[field] !== null)
      faults.add(field, `is only for a token of type agent or join, not ${kind}`)
  if (kind !== 'join' && uses !== null)
    faults.add('uses', `is only for a token of type join, not ${kind}`)
  if (faults.all.length === 0) return
  const problems = faults.all.map(sentenceOf).join('; ')
  throw new DomainError('token_invalid', `The token cannot be created: ${problems}.`)
}
