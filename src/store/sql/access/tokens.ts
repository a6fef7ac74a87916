/**
 * Tokens and policies. Each change counts the revision up first: its row makes changes of several servers
 * follow each other, and servers notice a change by it.
 */
import {isFull} from '../../../core/bounds.ts'
import type {Actor} from '../../../core/audit.ts'
import {
  type AgentGrant,
  encodeAgentLimits,
  NO_AGENT_LIMITS,
  readAgentLimits,
} from '../../../core/access/agent-token.ts'
import {refuseToken, type TokenKind} from '../../../core/access/authorization.ts'
import {POLICIES_MAX} from '../../../core/access/policy.ts'
import {assert} from '../../../lib/assert.ts'
import type {
  AccessSnapshot,
  CreateTokenResult,
  NewToken,
  Policy,
  RecordedUse,
  StoredToken,
  TokenRecord,
} from '../../../ports/token-store.ts'
import {recordChange} from './audit.ts'
import {all, one, type Query, sendEach, together, type Transaction} from '../query.ts'
import {metaValue, putMeta} from '../cluster/settings.ts'
import {tooOldAt} from '../cluster/standstill.ts'

/** How long an expired token stays listed. */
export const EXPIRED_KEPT_MS = 30 * 24 * 3_600_000

/** How long the token of an agent that joined with a join token stays when the agent is away. */
export const UNUSED_KEPT_MS = 90 * 24 * 3_600_000

const REVISION = 'access_revision'
const HAS_HAD_TOKENS = 'has_had_tokens'
export const TOKEN_COLUMNS = `accessor, digest, name, kind, policies, created_at, expires_at, last_used_at,
  agent_limits, bound_node_id, bound_node_name, uses_left`

export interface TokenRow {
  readonly accessor: string
  readonly digest: string
  readonly name: string
  readonly kind: TokenKind
  readonly policies: string
  readonly created_at: number
  readonly expires_at: number | null
  readonly last_used_at: number | null
  readonly agent_limits: string | null
  readonly bound_node_id: string | null
  readonly bound_node_name: string | null
  readonly uses_left: number | null
}

interface SessionColumns {
  readonly session_of: string | null
  /** Idle time; a number in sessions, like `ends_at`. */
  readonly idle_ms: number
  readonly ends_at: number
}

export function tokenOf(row: TokenRow): TokenRecord {
  return {
    accessor: row.accessor,
    name: row.name,
    kind: row.kind,
    policies: JSON.parse(row.policies) as string[],
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    lastUsedAt: row.last_used_at,
    agent: row.kind === 'agent' || row.kind === 'join' ? agentOf(row) : null,
  }
}

function agentOf(row: TokenRow): AgentGrant {
  const {agent_limits: limits, bound_node_id: id, bound_node_name: name, uses_left: usesLeft} = row
  const node = id === null || name === null ? null : {id, name}
  if (limits === null) return {limits: NO_AGENT_LIMITS, node, usesLeft}
  const read = readAgentLimits(JSON.parse(limits) as Record<string, unknown>)
  assert(read !== null, 'limits are checked before they are stored')
  return {limits: read, node, usesLeft}
}

/** Servers notice the change by it. */
export function* countUp(): Query<void> {
  yield* all(
    `INSERT INTO meta (key, value) VALUES (?, '1')
      ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS bigint) + 1 AS text)`,
    [REVISION],
  )
}

export function* accessRevision(_tx: Transaction): Query<number> {
  return Number((yield* metaValue(REVISION)) ?? 0)
}

export function* access(tx: Transaction): Query<AccessSnapshot> {
  const [revision, hadTokens, tokens, found] = yield* together(
    accessRevision(tx),
    metaValue(HAS_HAD_TOKENS),
    all<TokenRow & SessionColumns>(
      `SELECT ${TOKEN_COLUMNS}, session_of, idle_ms, ends_at FROM tokens`,
    ),
    policies(tx),
  )
  const stored = tokens.map((row): StoredToken => {
    const {digest, session_of: of, idle_ms: idleMs, ends_at: endsAt} = row
    return {...tokenOf(row), digest, session: of === null ? null : {owner: of, idleMs, endsAt}}
  })
  const hasHadTokens = hadTokens !== null
  return {revision, now: tx.now, hasHadTokens, tokens: stored, policies: found}
}

export function* tokens(_tx: Transaction): Query<readonly TokenRecord[]> {
  const rows = yield* all<TokenRow>(
    `SELECT ${TOKEN_COLUMNS} FROM tokens WHERE session_of IS NULL ORDER BY name, created_at`,
  )
  return rows.map(tokenOf)
}

export function* token(_tx: Transaction, accessor: string): Query<TokenRecord | null> {
  const row = yield* one<TokenRow>(`SELECT ${TOKEN_COLUMNS} FROM tokens WHERE accessor = ?`, [
    accessor,
  ])
  return row === null ? null : tokenOf(row)
}

export function* createToken(
  tx: Transaction,
  created: NewToken,
  actor?: Actor,
): Query<CreateTokenResult> {
  yield* countUp()
  // The commit of a first try may have happened.
  const earlier = yield* token(tx, created.accessor)
  if (earlier !== null) return {kind: 'created', token: earlier}
  yield* deleteOldTokens(tx)
  const counted = yield* one<{total: number; managing: number}>(
    `SELECT count(*) AS total, count(CASE WHEN kind = 'management'
      AND (expires_at IS NULL OR expires_at > ?) THEN 1 END) AS managing
      FROM tokens WHERE session_of IS NULL`,
    [tx.now],
  )
  const refusal = refuseToken(created.isFirst, counted!)
  if (refusal !== null) return {kind: refusal}
  yield* putMeta(HAS_HAD_TOKENS, 'true')
  const {accessor, digest, name, kind, policies: named, expiresAt, limits, uses = null} = created
  yield* all(
    `INSERT INTO tokens (${TOKEN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?, NULL, NULL, ?)`,
    [
      accessor,
      digest,
      name,
      kind,
      JSON.stringify(named),
      tx.now,
      expiresAt,
      limits === undefined ? null : JSON.stringify(encodeAgentLimits(limits)),
      uses,
    ],
  )
  const detail = `accessor ${accessor}, ${[kind, ...named].join(' ')}`
  yield* recordChange(tx, {
    actor,
    action: 'token.create',
    targetType: 'token',
    target: name,
    detail,
  })
  return {kind: 'created', token: (yield* token(tx, accessor))!}
}

export function* deleteOldTokens(tx: Transaction): Query<void> {
  yield* all(
    `DELETE FROM tokens WHERE expires_at < ?
      OR (issued_by IS NOT NULL AND coalesce(last_used_at, created_at) < ?)`,
    [yield* tooOldAt(tx, EXPIRED_KEPT_MS), yield* tooOldAt(tx, UNUSED_KEPT_MS)],
  )
}

const REVOKED = {action: 'token.revoke', targetType: 'token'} as const
const SESSION_ENDED = {action: 'session.end', targetType: 'session'} as const

export function* deleteToken(
  tx: Transaction,
  accessor: string,
  actor?: Actor,
): Query<TokenRecord | null> {
  yield* countUp()
  const row = yield* one<TokenRow & SessionColumns>(
    `DELETE FROM tokens WHERE accessor = ? RETURNING ${TOKEN_COLUMNS}, session_of`,
    [accessor],
  )
  if (row === null) return null
  yield* all(`DELETE FROM tokens WHERE session_of = ?`, [accessor])
  const {kind} = row
  // Only a session of the token of the configuration has no name.
  const target = row.name === '' ? 'configured' : row.name
  const detail = `accessor ${accessor}, ${kind}`
  const change = row.session_of === null ? REVOKED : SESSION_ENDED
  yield* recordChange(tx, {actor, ...change, target, detail})
  return tokenOf(row)
}

/** A use is not a change: the revision stays. */
export function* recordTokenUse(tx: Transaction, uses: readonly RecordedUse[]): Query<void> {
  const inOrder = uses.toSorted((a, b) => (a.accessor < b.accessor ? -1 : 1))
  yield* sendEach(
    // `sessionExpiry` in SQL: another server may have recorded a later use, and only the row knows its end.
    `UPDATE tokens SET last_used_at = ?, expires_at = CASE WHEN session_of IS NULL THEN expires_at
      WHEN ? + idle_ms < ends_at THEN ? + idle_ms ELSE ends_at END
      WHERE accessor = ? AND (last_used_at IS NULL OR last_used_at < ?)`,
    inOrder.map(({accessor, agoMs}) => {
      const at = tx.now - Math.round(agoMs)
      return [at, at, at, accessor, at]
    }),
  )
}

export function* putPolicy(tx: Transaction, {name, rules}: Policy, actor?: Actor): Query<boolean> {
  yield* countUp()
  const counted = yield* one<{others: number}>(
    `SELECT count(*) AS others FROM policies WHERE name <> ?`,
    [name],
  )
  if (isFull(counted!.others, POLICIES_MAX)) return false
  const known = yield* policy(tx, name)
  if (known?.rules === rules) return true
  yield* all(
    `INSERT INTO policies (name, rules) VALUES (?, ?)
      ON CONFLICT (name) DO UPDATE SET rules = excluded.rules`,
    [name, rules],
  )
  const replaced = known === null ? {} : {replaced: known.rules}
  yield* recordChange(tx, {
    actor,
    action: 'policy.set',
    targetType: 'policy',
    target: name,
    ...replaced,
  })
  return true
}

export function* deletePolicy(tx: Transaction, name: string, actor?: Actor): Query<Policy | null> {
  yield* countUp()
  const row = yield* one<Policy>(`DELETE FROM policies WHERE name = ? RETURNING name, rules`, [
    name,
  ])
  if (row === null) return null
  const {rules: replaced} = row
  yield* recordChange(tx, {
    actor,
    action: 'policy.delete',
    targetType: 'policy',
    target: name,
    replaced,
  })
  return {name: row.name, rules: row.rules}
}

export function* policies(_tx: Transaction): Query<readonly Policy[]> {
  const rows = yield* all<Policy>(`SELECT name, rules FROM policies ORDER BY name`)
  return rows.map(({name, rules}) => ({name, rules}))
}

export function* policy(_tx: Transaction, name: string): Query<Policy | null> {
  const row = yield* one<Policy>(`SELECT name, rules FROM policies WHERE name = ?`, [name])
  return row === null ? null : {name: row.name, rules: row.rules}
}
