/**
 * Tokens of agents: a token is bound to the node that first joins with it, and a join token gives each agent
 * a token of its own. A change counts the revision up and then looks again: its row makes changes follow each
 * other, so that no identity and no name gets two tokens.
 */
import {TOKENS_MAX} from '../../../core/access/authorization.ts'
import type {IssueRefusal, TokenIssue, TokenRefusal, TokenUse} from '../../../ports/token-store.ts'
import {recordChange} from './audit.ts'
import {all, one, type Query, type Transaction} from '../query.ts'
import {countUp, deleteOldTokens, TOKEN_COLUMNS, type TokenRow} from './tokens.ts'

const TOKEN_NAME_LENGTH_MAX = 128

export function* tokenRefusal(tx: Transaction, use: TokenUse): Query<TokenRefusal | null> {
  const found = yield* findUse(tx, use)
  return found === 'free' ? null : found
}

export function* bindToken(tx: Transaction, use: TokenUse): Query<TokenRefusal | null> {
  const found = yield* findUse(tx, use)
  if (found !== 'free') return found
  yield* countUp()
  const again = yield* findUse(tx, use)
  if (again !== 'free') return again
  const {accessor, node, actor} = use
  yield* all(`UPDATE tokens SET bound_node_id = ?, bound_node_name = ? WHERE accessor = ?`, [
    node.id,
    node.name,
    accessor,
  ])
  const detail = `accessor ${accessor}, node ${node.name} (${node.id})`
  yield* recordChange(tx, {
    actor,
    action: 'token.bind',
    targetType: 'token',
    target: actor.name,
    detail,
  })
  return null
}

/** `null` = the token is bound to this node; `free` = it is not bound, and may be. */
function* findUse(tx: Transaction, use: TokenUse): Query<TokenRefusal | 'free' | null> {
  const {accessor, node} = use
  const row = yield* validToken(tx, accessor, 'agent')
  if (row === null) return {why: 'revoked'}
  const {bound_node_id: id, bound_node_name: name} = row
  if (id !== null && name !== null)
    return id === node.id && name === node.name ? null : {why: 'other_node', node: {id, name}}
  // Tokens of one name replace each other.
  return (yield* holderOf(tx, use, row.name)) ?? 'free'
}

function* validToken(
  tx: Transaction,
  accessor: string,
  kind: 'agent' | 'join',
): Query<TokenRow | null> {
  return yield* one<TokenRow>(
    `SELECT ${TOKEN_COLUMNS} FROM tokens
      WHERE accessor = ? AND kind = ? AND (expires_at IS NULL OR expires_at > ?)`,
    [accessor, kind, tx.now],
  )
}

/**
 * Refusal if another token has the identity or the name of the node; tokens of the name `replaced` do not
 * count.
 */
function* holderOf(
  tx: Transaction,
  {node, mayReplace}: TokenUse,
  replaced: string,
): Query<TokenRefusal | null> {
  const other = yield* one<{name: string}>(
    `SELECT name FROM tokens WHERE (bound_node_id = ? OR bound_node_name = ?)
      AND name <> ? AND (expires_at IS NULL OR expires_at > ?) ORDER BY name LIMIT 1`,
    [node.id, mayReplace ? null : node.name, replaced, tx.now],
  )
  if (other !== null) return {why: 'other_token', token: other.name}
  if (mayReplace) return null
  const holder = yield* one<{id: string}>(
    `SELECT id FROM members WHERE name = ? AND id <> ? LIMIT 1`,
    [node.name, node.id],
  )
  return holder === null ? null : {why: 'held', by: holder.id}
}

export function* issueToken(tx: Transaction, issue: TokenIssue): Query<IssueRefusal | null> {
  const found = yield* findIssue(tx, issue)
  if (found === null || 'why' in found) return found
  yield* countUp()
  const again = yield* findIssue(tx, issue)
  if (again === null || 'why' in again) return again
  yield* deleteOldTokens(tx)
  const counted = yield* one<{total: number}>(
    `SELECT count(*) AS total FROM tokens WHERE session_of IS NULL`,
  )
  if (counted!.total >= TOKENS_MAX) return {why: 'full'}
  const {accessor, issued, node, actor} = issue
  const name = `${again.name} ${node.name}`.slice(0, TOKEN_NAME_LENGTH_MAX)
  yield* all(
    `INSERT INTO tokens (${TOKEN_COLUMNS}, issued_by)
      VALUES (?, ?, ?, 'agent', '[]', ?, NULL, NULL, ?, ?, ?, NULL, ?)`,
    [
      issued.accessor,
      issued.digest,
      name,
      tx.now,
      again.agent_limits,
      node.id,
      node.name,
      accessor,
    ],
  )
  yield* all(`UPDATE tokens SET uses_left = uses_left - 1 WHERE accessor = ?`, [accessor])
  const detail = `accessor ${issued.accessor}, node ${node.name} (${node.id})`
  yield* recordChange(tx, {actor, action: 'token.issue', targetType: 'token', target: name, detail})
  return null
}

/** `null` = the agent has its token; the join token = it may get one. */
function* findIssue(tx: Transaction, issue: TokenIssue): Query<IssueRefusal | TokenRow | null> {
  const {accessor, node, issued} = issue
  const row = yield* validToken(tx, accessor, 'join')
  if (row === null) return {why: 'revoked'}
  const earlier = yield* one(
    `SELECT accessor FROM tokens WHERE issued_by = ? AND digest = ? AND bound_node_id = ?`,
    [accessor, issued.digest, node.id],
  )
  if (earlier !== null) return null
  // The agent need not have the secret of the digest that it sent: a second row would disable the first.
  const taken = yield* one(`SELECT accessor FROM tokens WHERE digest = ?`, [issued.digest])
  if (taken !== null) return {why: 'not_new'}
  if (row.uses_left === null || row.uses_left < 1) return {why: 'used_up'}
  // Another holder of this join token must not get the identity of an agent that joined with it: no token
  // is replaced, and none has an empty name.
  return (yield* holderOf(tx, issue, '')) ?? row
}
