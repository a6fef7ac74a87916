/** Tokens and policies. A token is stored without its secret, which only its owner has. */
import type {Actor} from '../core/audit.ts'
import type {
  AgentGrant,
  AgentLimits,
  IssueRefusal,
  TokenClaimant,
  TokenRefusal,
} from '../core/access/agent-token.ts'
import type {Principal, TokenKind} from '../core/access/authorization.ts'

export interface Policy {
  readonly name: string
  readonly rules: string
}

export interface TokenRecord {
  /** Public id. */
  readonly accessor: string
  readonly name: string
  readonly kind: TokenKind
  /** Names of policies, which need not exist. Empty unless the kind is `client`. */
  readonly policies: readonly string[]
  readonly createdAt: number
  /** Exclusive; `null` = it does not expire. */
  readonly expiresAt: number | null
  /** Minutes late; `null` = not used yet. */
  readonly lastUsedAt: number | null
  /** Grant of a token for agents; `null` for all others. */
  readonly agent: AgentGrant | null
}

/** A token with the digest of its secret. */
export interface StoredToken extends TokenRecord {
  readonly digest: string
  /** `null` = not a session. */
  readonly session: SessionTerms | null
}

/**
 * A session is a token that a browser has in a cookie. It expires when it is not used for `idleMs`, and at
 * `endsAt` in any case; `expiresAt` is the earlier of the two.
 */
export interface SessionTerms {
  /** Accessor of the token that was signed in with; the owner of a person's session contains a blank. */
  readonly owner: string
  readonly idleMs: number
  readonly endsAt: number
}

/** Expiry of a caller, in ms since the epoch. */
export interface Expiry {
  /** A session expires later if it is used before; `null` = it does not expire. */
  readonly expiresAt: number | null
  /** End of a session, however much it is used; `null` = not a session. */
  readonly endsAt: number | null
}

/** A caller, as it may see itself. */
export interface Identity extends Expiry {
  readonly principal: Principal
}

export interface NewToken extends Omit<
  StoredToken,
  'createdAt' | 'lastUsedAt' | 'agent' | 'session'
> {
  /** Limits of a token for agents; absent = none. */
  readonly limits?: AgentLimits
  /** Number of agents that can join with a join token. */
  readonly uses?: number
  /** Only while no management token is stored that has not expired. */
  readonly isFirst: boolean
}

export type CreateTokenResult =
  | {readonly kind: 'created'; readonly token: TokenRecord}
  /** The store has a management token already. */
  | {readonly kind: 'not_first'}
  /** The store has the maximum number of tokens. */
  | {readonly kind: 'full'}

/** A node that uses a token for agents. */
export interface TokenUse extends TokenClaimant {
  readonly accessor: string
  readonly actor: Actor
}

/** A join token gives an agent its own token, which is bound to its node. */
export interface TokenIssue extends TokenUse {
  /** Identity of the new token. The accessor of `TokenUse` is that of the join token. */
  readonly issued: {readonly accessor: string; readonly digest: string}
}

/** Rights of a session, and its owner. */
export type SessionOwner =
  /** The session has the rights of the token. */
  | {readonly kind: 'token'; readonly accessor: string}
  | {
      readonly kind: 'other'
      /** Has a blank, so that it is no accessor. */
      readonly name: string
      readonly token: Pick<TokenRecord, 'name' | 'kind' | 'policies'>
    }

export interface NewSession extends Pick<StoredToken, 'accessor' | 'digest'> {
  readonly owner: SessionOwner
  readonly idleMs: number
  /** Maximum length of a session, however much it is used. */
  readonly maxMs: number
}

/** Everything that decides about access, of one snapshot. */
export interface AccessSnapshot {
  readonly revision: number
  readonly now: number
  /** A token, which may be deleted since, was stored. */
  readonly hasHadTokens: boolean
  /** Tokens and sessions. */
  readonly tokens: readonly StoredToken[]
  readonly policies: readonly Policy[]
}

export interface PolicyStore {
  /** Sorted by name. */
  policies(): Promise<readonly Policy[]>
  policy(name: string): Promise<Policy | null>
  /** Creates or replaces the policy of this name. False = there are as many policies as can be. */
  putPolicy(policy: Policy, actor?: Actor): Promise<boolean>
  /** Returns the deleted policy; `null` = no such policy. */
  deletePolicy(name: string, actor?: Actor): Promise<Policy | null>
}

/** The newest use of a token, `agoMs` before it is recorded. */
export interface RecordedUse {
  readonly accessor: string
  readonly agoMs: number
}

export interface TokenStore {
  /** Grows with each change of a token or a policy. Cheap. */
  accessRevision(): Promise<number>
  access(): Promise<AccessSnapshot>
  /** Tokens without sessions, sorted by name. */
  tokens(): Promise<readonly TokenRecord[]>
  /** Sessions that have not expired, the oldest first. */
  sessions(): Promise<readonly TokenRecord[]>
  /** Finds a token or a session. */
  token(accessor: string): Promise<TokenRecord | null>
  /** Creates a token, and deletes tokens that expired long ago. */
  createToken(token: NewToken, actor?: Actor): Promise<CreateTokenResult>
  /**
   * Ends the least recently used sessions above the limits per owner and in total. `null` = the token of its
   * owner does not exist or has expired.
   */
  createSession(session: NewSession, actor?: Actor): Promise<TokenRecord | null>
  /** Deletes the token and its sessions. Returns the deleted token; `null` = no such token. */
  deleteToken(accessor: string, actor?: Actor): Promise<TokenRecord | null>
  /** Why the node may not use the token; `null` = it may. */
  tokenRefusal(use: TokenUse): Promise<TokenRefusal | null>
  /** Binds a token for agents to this node, unless it is. `null` = it is bound to this node now. */
  bindToken(use: TokenUse): Promise<TokenRefusal | null>
  /**
   * Creates the token of an agent that joins with a join token. `null` = it exists now. Idempotent for a node
   * and a digest: a repetition uses nothing up.
   */
  issueToken(issue: TokenIssue): Promise<IssueRefusal | null>
  /** Sets `lastUsedAt` of these tokens, if it is earlier; the expiry of sessions counts from it. */
  recordTokenUse(uses: readonly RecordedUse[]): Promise<void>
}
