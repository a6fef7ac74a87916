/**
 * Tokens of agents: a token is bound to the node that first joins with it, and a join token gives each agent
 * a token of its own. A change counts the revision up and then looks again: its row makes changes follow each
 * other, so that no identity and no name gets two tokens.
 */
import {isFull} from '../../../core/bounds.ts'
import {
  decideIssue,
  decideUse,
  holderRefusal,
  type IssueRefusal,
  type NodeHolder,
  type TokenRefusal,
} from '../../../core/access/agent-token.ts'
import {TOKENS_MAX} from '../../../core/access/authorization.ts'
import type {TokenIssue, TokenUse} from '../../../ports/token-store.ts'
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
  const row = yield* validToken(tx, use.accessor, 'agent')
  if (row === null) return {why: 'revoked'}
  const {bound_node_id: id, bound_node_name: name} = row
  const decision = decideUse(id === null || name === null ? null : {id, name}, use.node)
  if (decision === 'bound') return null
  if (decision !== 'unbound') return decision
  return holderRefusal(use, yield* nodeHolders(tx, use), row.name) ?? 'free'
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

/** Tokens and members that have the id or the name of the node. */
function* nodeHolders(tx: Transaction, {node: {id, name}}: TokenUse): Query<readonly NodeHolder[]> {
  const rows = yield* all<Omit<NodeHolder, 'node'> & {node_id: string; node_name: string}>(
    `SELECT 'token' AS kind, name AS holder, bound_node_id AS node_id, bound_node_name AS node_name
      FROM tokens WHERE (bound_node_id = ? OR bound_node_name = ?)
      AND (expires_at IS NULL OR expires_at > ?)
      UNION ALL SELECT 'member', id, id, name FROM members WHERE name = ? ORDER BY holder`,
    [id, name, tx.now, name],
  )
  return rows.map((row) => {
    return {kind: row.kind, holder: row.holder, node: {id: row.node_id, name: row.node_name}}
  })
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
  if (isFull(counted!.total, TOKENS_MAX)) return {why: 'full'}
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
  const same = yield* one<{issued_by: string | null; bound_node_id: string | null}>(
    `SELECT issued_by, bound_node_id FROM tokens WHERE digest = ?`,
    [issued.digest],
  )
  const sameDigest = same && {issuedBy: same.issued_by, nodeId: same.bound_node_id}
  const decision = decideIssue({accessor, usesLeft: row.uses_left}, sameDigest, node.id)
  if (decision === 'issued') return null
  if (decision !== 'open') return decision
  // Another holder of this join token must not get the identity of an agent that joined with it: no token
  // is replaced, and none has an empty name.
  return holderRefusal(issue, yield* nodeHolders(tx, issue), '') ?? row
}
