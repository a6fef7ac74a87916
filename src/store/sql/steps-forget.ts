/**
 * Members that go for good: forgotten after a long absence, or removed by somebody. Stands apart from the
 * other steps of members because what such a node still held must be dealt with first: nothing may be
 * running for a node that is no member, for nobody would ever end it.
 */
import type {MemberRecord} from '../../core/node.ts'
import type {MemberStore, RemoveResult} from '../../ports/node-store.ts'
import {all, one, type Step} from './query.ts'
import {keyOf, memberOf, type ExecutionRow, type MemberRow} from './rows.ts'
import {endAll} from './finish.ts'
import {fence} from './lease.ts'
import {MEMBER_COLUMNS} from './members.ts'
import type {Transaction} from './transaction.ts'

/** Asked of each state by itself, so that the index of its live rows answers. */
const HOLDS_NOTHING = (['pending', 'running'] as const)
  .map((status) => {
    const held = `SELECT 1 FROM executions e WHERE e.node_id = members.id AND e.status = '${status}'`
    return `NOT EXISTS (${held})`
  })
  .join(' AND ')

export function* forgetMembers(
  tx: Transaction,
  {term, leftAfterMs, failedAfterMs, limit}: Parameters<MemberStore['forgetMembers']>[0],
): Step<readonly MemberRecord[]> {
  yield* fence(tx, term)
  // Whoever holds one right now has heard of it, or claims for it: it is not forgotten.
  const lock = tx.dialect.forUpdate === '' ? '' : `${tx.dialect.forUpdate} SKIP LOCKED`
  const found = yield* all<{id: string}>(
    `SELECT id FROM members WHERE ((status = 'left' AND heartbeat_at <= ?)
      OR (status = 'failed' AND heartbeat_at <= ?)) AND ${HOLDS_NOTHING}
      ORDER BY heartbeat_at, id LIMIT ?${lock}`,
    [tx.now - leftAfterMs, tx.now - failedAfterMs, limit],
  )
  const forgotten: MemberRecord[] = []
  for (const {id} of found) {
    // Asked again now that it is locked: a claim may have been committed just before.
    const row = yield* one<MemberRow>(
      `DELETE FROM members WHERE id = ? AND ${HOLDS_NOTHING} RETURNING ${MEMBER_COLUMNS}`,
      [id],
    )
    if (row === null) continue
    yield* forgetClaims(id)
    forgotten.push(memberOf(row))
  }
  return forgotten
}

/** Locks the member first, as a claim does: what it claims is seen here, or it claims nothing. */
export function* removeMember(
  tx: Transaction,
  {nodeId, limit, dice}: Parameters<MemberStore['removeMember']>[0],
): Step<RemoveResult> {
  const row = yield* one<MemberRow>(
    `SELECT ${MEMBER_COLUMNS} FROM members WHERE id = ?${tx.dialect.forUpdate}`,
    [nodeId],
  )
  if (row === null) return {kind: 'unknown'}
  const member = memberOf(row)
  const {status} = member
  if (status === 'alive' || status === 'leaving') return {kind: 'present', member}
  const running = yield* all<ExecutionRow>(
    `SELECT group_id, node_name, attempt FROM executions WHERE node_id = ? AND status = 'running'
      ORDER BY started_at, group_id, attempt, node_name LIMIT ?`,
    [nodeId, limit],
  )
  const reason = status === 'left' ? 'node_stopped' : 'node_lost'
  const finished = yield* endAll(tx, running.map(keyOf), 'lost', reason, dice)
  if (running.length === limit) return {kind: 'ending', finished}
  yield* all(`DELETE FROM members WHERE id = ?`, [nodeId])
  yield* forgetClaims(nodeId)
  return {kind: 'removed', member, finished}
}

function* forgetClaims(nodeId: string): Step<void> {
  yield* all(`DELETE FROM node_claims WHERE node_id = ?`, [nodeId])
}
