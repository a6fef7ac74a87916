/**
 * Sessions of browsers: short-lived rows of `tokens`, so that all that holds for tokens holds for them. They
 * are not listed as tokens and do not count as such.
 */
import {sessionEnd, sessionExpiry} from '../../../core/access/session.ts'
import type {Actor} from '../../../core/audit.ts'
import type {NewSession, SessionOwner, TokenRecord} from '../../../ports/token-store.ts'
import {recordChange} from './audit.ts'
import {all, one, type Query, type Transaction} from '../query.ts'
import {countUp, token, TOKEN_COLUMNS, tokenOf, type TokenRow} from './tokens.ts'

/** A person with several browsers on several machines; or all who know the token of the configuration. */
export const SESSIONS_OF_OWNER_MAX = 100
/** Each server has all of them in memory. */
export const SESSIONS_MAX = 5_000
/** A server records uses a minute late: what it still accepts must not be deleted. */
const EXPIRED_KEPT_MS = 3_600_000

export function* sessions(tx: Transaction): Query<readonly TokenRecord[]> {
  const rows = yield* all<TokenRow>(
    `SELECT ${TOKEN_COLUMNS} FROM tokens WHERE session_of IS NOT NULL AND expires_at > ?
      ORDER BY created_at, accessor`,
    [tx.now],
  )
  return rows.map(tokenOf)
}

export function* createSession(
  tx: Transaction,
  created: NewSession,
  actor?: Actor,
): Query<TokenRecord | null> {
  yield* countUp()
  const {accessor, digest, owner, idleMs, maxMs} = created
  // The commit of a first try may have happened.
  const earlier = yield* token(tx, accessor)
  if (earlier !== null) return earlier
  const source = yield* sourceOf(tx, owner)
  if (source === null) return null
  const of = owner.kind === 'token' ? owner.accessor : owner.name
  yield* makeRoom(tx, of)
  const {name, kind, policies} = source
  const endsAt = sessionEnd(tx.now, maxMs, source.expiresAt)
  const expiresAt = sessionExpiry(tx.now, {idleMs, endsAt})
  yield* all(
    `INSERT INTO tokens
      (accessor, digest, name, kind, policies, created_at, expires_at, session_of, idle_ms, ends_at)
      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    [accessor, digest, name, kind, JSON.stringify(policies), tx.now, expiresAt, of, idleMs, endsAt],
  )
  const target = name === '' ? 'configured' : name
  const detail = `accessor ${accessor}, ${kind}`
  yield* recordChange(tx, {actor, action: 'session.open', targetType: 'session', target, detail})
  const record = {accessor, name, kind, policies, createdAt: tx.now, expiresAt}
  return {...record, lastUsedAt: null, agent: null}
}

type Source = Pick<TokenRecord, 'name' | 'kind' | 'policies' | 'expiresAt'>

/** Token that the session copies. `null` = it is gone, or is itself a session. */
function* sourceOf(tx: Transaction, owner: SessionOwner): Query<Source | null> {
  if (owner.kind === 'other') return {...owner.token, expiresAt: null}
  const row = yield* one<TokenRow>(
    `SELECT ${TOKEN_COLUMNS} FROM tokens WHERE accessor = ? AND session_of IS NULL
      AND (expires_at IS NULL OR expires_at > ?)`,
    [owner.accessor, tx.now],
  )
  return row === null ? null : tokenOf(row)
}

/** Deletes what has expired, then the least recently used sessions above the limits. */
function* makeRoom(tx: Transaction, of: string): Query<void> {
  yield* all(`DELETE FROM tokens WHERE session_of IS NOT NULL AND expires_at < ?`, [
    tx.now - EXPIRED_KEPT_MS,
  ])
  yield* dropAbove(SESSIONS_OF_OWNER_MAX, `session_of = ?`, [of])
  yield* dropAbove(SESSIONS_MAX, `session_of IS NOT NULL`, [])
}

function* dropAbove(most: number, where: string, values: readonly string[]): Query<void> {
  const counted = yield* one<{total: number}>(
    `SELECT count(*) AS total FROM tokens WHERE ${where}`,
    values,
  )
  const excess = counted!.total - (most - 1)
  if (excess <= 0) return
  yield* all(
    `DELETE FROM tokens WHERE accessor IN (SELECT accessor FROM tokens WHERE ${where}
      ORDER BY coalesce(last_used_at, created_at), accessor LIMIT ?)`,
    [...values, excess],
  )
}
