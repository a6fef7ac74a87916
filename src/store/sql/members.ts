/** The nodes of the cluster as the store knows them: joining, heartbeats, statuses. */
import type {MemberRecord} from '../../core/node.ts'
import type {
  BeatReply,
  JoinRequest,
  MemberStore,
  Heartbeat,
  RemoveResult,
} from '../../ports/node-store.ts'
import {endAll} from './finish.ts'
import {fence} from './lease.ts'
import {all, one, oneEach, type Query, type Transaction} from './query.ts'
import {type ExecutionRow, keyOf, memberOf, type MemberRow} from './rows.ts'

export const MEMBER_COLUMNS = `id, name, incarnation, address, port, tags, server, runs, version, slots,
  status, started_at, heartbeat_at`

/** Of a member that is there. */
const PRESENT = `status IN ('alive', 'leaving')`

/**
 * The same identity returning is admitted at once, which fences its earlier life. A name whose other holder
 * is silent is taken over; that holder stays a member, failed, until what it ran has been ended.
 */
export function* join(
  tx: Transaction,
  {member}: JoinRequest,
  freshMs: number,
): Query<{readonly kind: 'joined'} | {readonly kind: 'taken'; readonly by: string}> {
  yield* lockName(tx, member.name)
  const holder = yield* one<{id: string}>(
    `SELECT id FROM members WHERE name = ? AND id <> ? AND heartbeat_at > ? AND ${PRESENT}
      ORDER BY heartbeat_at DESC LIMIT 1`,
    [member.name, member.id, tx.now - freshMs],
  )
  if (holder !== null) return {kind: 'taken', by: holder.id}
  yield* all(`UPDATE members SET status = 'failed' WHERE name = ? AND id <> ? AND ${PRESENT}`, [
    member.name,
    member.id,
  ])
  yield* all(
    `INSERT INTO members (${MEMBER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'alive', ?, ?)
      ON CONFLICT (id) DO UPDATE SET name = excluded.name, incarnation = excluded.incarnation,
      address = excluded.address, port = excluded.port, tags = excluded.tags,
      server = excluded.server, runs = excluded.runs, version = excluded.version,
      slots = excluded.slots, status = excluded.status, started_at = excluded.started_at,
      heartbeat_at = excluded.heartbeat_at`,
    [
      member.id,
      member.name,
      member.incarnation,
      member.address,
      member.port,
      JSON.stringify(member.tags),
      member.server ? 1 : 0,
      member.runs ? 1 : 0,
      member.version,
      member.slots,
      tx.now,
      tx.now,
    ],
  )
  // There from the start, so that claims have a row to follow each other on.
  yield* all(
    `INSERT INTO node_claims (node_id, token) VALUES (?, '') ON CONFLICT (node_id) DO NOTHING`,
    [member.id],
  )
  return {kind: 'joined'}
}

export function* members(_tx: Transaction): Query<readonly MemberRecord[]> {
  const rows = yield* all<MemberRow>(`SELECT ${MEMBER_COLUMNS} FROM members ORDER BY name, id`)
  return rows.map(memberOf)
}

export function* failMember(
  tx: Transaction,
  {term, nodeId, observed}: Parameters<MemberStore['failMember']>[0],
): Query<boolean> {
  yield* fence(tx, term)
  const failed = yield* one(
    `UPDATE members SET status = 'failed'
      WHERE id = ? AND incarnation = ? AND heartbeat_at = ? AND ${PRESENT} RETURNING id`,
    [nodeId, observed.incarnation, observed.heartbeatAt],
  )
  return failed !== null
}

/**
 * Members that are there are heard by one statement for all of them; one that was given up, or left, must
 * come back. Answers each, in order.
 */
export function* beat(tx: Transaction, beats: readonly Heartbeat[]): Query<readonly BeatReply[]> {
  const answers: BeatReply[] = []
  for (const round of roundsOf(beats)) {
    const heard = yield* oneEach(
      `UPDATE members SET heartbeat_at = ?, status = ?
        WHERE id = ? AND incarnation = ? AND ${PRESENT} RETURNING id`,
      round.map(({nodeId, incarnation, status}) => [tx.now, status, nodeId, incarnation]),
    )
    for (const [at, each] of round.entries())
      answers[each.index] = heard[at] === null ? yield* comeBack(tx, each) : 'ok'
  }
  return answers
}

/** The first beat of each node, the second of those that have one, and so on: the last one must stand. */
function roundsOf(beats: readonly Heartbeat[]): (Heartbeat & {readonly index: number})[][] {
  const rounds: (Heartbeat & {readonly index: number})[][] = []
  const heard = new Map<string, number>()
  for (const [index, each] of beats.entries()) {
    const before = heard.get(each.nodeId) ?? 0
    heard.set(each.nodeId, before + 1)
    rounds[before] ??= []
    rounds[before].push({...each, index})
  }
  return rounds
}

/** Two identities are never present under one name, whichever of them is heard of again. */
function* comeBack(tx: Transaction, {nodeId, incarnation, status}: Heartbeat): Query<BeatReply> {
  const named = yield* one<{name: string}>(`SELECT name FROM members WHERE id = ?`, [nodeId])
  if (named === null) return 'unknown'
  yield* lockName(tx, named.name)
  // Read again: whoever held the lock may have removed it, joined as it, or taken its name.
  const known = yield* one<{incarnation: string}>(`SELECT incarnation FROM members WHERE id = ?`, [
    nodeId,
  ])
  if (known === null) return 'unknown'
  if (known.incarnation !== incarnation) return 'fenced'
  const holder = yield* one(
    `SELECT id FROM members WHERE name = ? AND id <> ? AND ${PRESENT} LIMIT 1`,
    [named.name, nodeId],
  )
  if (holder !== null && status !== 'left') return 'taken'
  yield* all(`UPDATE members SET heartbeat_at = ?, status = ? WHERE id = ?`, [
    tx.now,
    status,
    nodeId,
  ])
  return 'ok'
}

/** Whoever joins under a name, or comes back to it, waits here for others that do, and for their claims. */
function* lockName(tx: Transaction, name: string): Query<void> {
  yield* all(`SELECT id FROM members WHERE name = ? ORDER BY id${tx.dialect.forUpdate}`, [name])
}

/*
 * Members that go for good: forgotten after a long absence, or removed by somebody. Stands apart from the
 * other steps of members because what such a node still held must be dealt with first: nothing may be
 * running for a node that is no member, for nobody would ever end it.
 */

/** Asked of each state by itself, so that the index of its live rows answers. */
const HOLDS_NOTHING = (['pending', 'running'] as const)
  .map((status) => {
    const held = `SELECT 1 FROM executions e WHERE e.node_id = members.id AND e.status = '${status}'`
    return `NOT EXISTS (${held})`
  })
  .join(' AND ')

export function* pruneMembers(
  tx: Transaction,
  {term, leftAfterMs, failedAfterMs, limit}: Parameters<MemberStore['pruneMembers']>[0],
): Query<readonly MemberRecord[]> {
  yield* fence(tx, term)
  // Whoever holds one right now has heard of it, or claims for it: it is not forgotten.
  const lock = tx.dialect.locking ? ' FOR UPDATE SKIP LOCKED' : ''
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
  {nodeId, limit, jitter}: Parameters<MemberStore['removeMember']>[0],
): Query<RemoveResult> {
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
  const finished = yield* endAll(tx, running.map(keyOf), 'lost', reason, jitter)
  if (running.length === limit) return {kind: 'ending', finished}
  yield* all(`DELETE FROM members WHERE id = ?`, [nodeId])
  yield* forgetClaims(nodeId)
  return {kind: 'removed', member, finished}
}

function* forgetClaims(nodeId: string): Query<void> {
  yield* all(`DELETE FROM node_claims WHERE node_id = ?`, [nodeId])
}
