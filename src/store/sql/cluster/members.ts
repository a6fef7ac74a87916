/**
 * Members: joining, heartbeats, failure, retention and removal. A node is removed only after its running
 * executions have ended: an execution of a node that is no member would never be ended.
 */
import {lostReason} from '../../../core/finish.ts'
import {
  decideReturn,
  decideScheduling,
  isPresent,
  joinConflict,
  type MemberRecord,
  PRESENT_STATUSES,
} from '../../../core/node.ts'
import {formatDuration} from '../../../lib/duration.ts'
import {conflictFreeBatches} from '../../../lib/conflict-free.ts'
import type {
  BeatReply,
  JoinRequest,
  JoinResult,
  MemberStore,
  Heartbeat,
  NodeLoad,
  RemoveResult,
} from '../../../ports/node-store.ts'
import {recordChange} from '../access/audit.ts'
import {endAll} from '../executions/finish.ts'
import {RUNNING, WAITING} from '../launches/launches.ts'
import {endEvents, recordEvent} from './cluster-events.ts'
import {SCHEMA_VERSION} from '../migrations.ts'
import {fence} from './lease.ts'
import {all, one, oneEach, type Query, sendEach, type Transaction} from '../query.ts'
import {BY_KEY, type ExecutionRow, keyOf, keyValues, memberOf, type MemberRow} from '../rows.ts'
import {noteStandstillOfMembers, tooOldAt} from './standstill.ts'
import {bindToken, tokenRefusal} from '../access/agent-tokens.ts'

export const MEMBER_COLUMNS = `id, name, incarnation, address, port, tags, server, runs, version, slots,
  status, started_at, heartbeat_at, cordoned_at, drain_until`
/** Columns that a join writes. Cordon and drain stay as they are. */
const JOINED_COLUMNS = `id, name, incarnation, address, port, tags, server, runs, version, slots,
  status, started_at, heartbeat_at, knows_schema`

/**
 * Text that a member of this release writes about itself. A server of an earlier release, which leaves the
 * column as it is, has another incarnation.
 */
function knownSchema(incarnation: string): string {
  return `${SCHEMA_VERSION} ${incarnation}`
}

/** Name of a present server that does not know this schema yet; `null` = all do. */
export function* olderServer(): Query<string | null> {
  const rows = yield* all<{name: string; incarnation: string; knows_schema: string | null}>(
    `SELECT name, incarnation, knows_schema FROM members WHERE server = 1 AND ${PRESENT} ORDER BY name`,
  )
  const isOlder = ({incarnation, knows_schema: known}: (typeof rows)[number]) => {
    const [schema, of] = (known ?? '').split(' ')
    return of !== incarnation || Number(schema) < SCHEMA_VERSION
  }
  return rows.find(isOlder)?.name ?? null
}

/** Condition for a present member. */
const PRESENT = `status IN (${PRESENT_STATUSES.map((each) => `'${each}'`).join(', ')})`
/** Condition for the member of an id, and the present ones of a name. */
const OF_ID_OR_NAME = `(id = ? OR (name = ? AND ${PRESENT}))`

/**
 * Admits a node as `joinConflict` decides. A member whose name is taken over stays, as failed, until its
 * executions have ended.
 */
export function* join(
  tx: Transaction,
  {member, ended, token}: JoinRequest,
  freshMs: number,
): Query<JoinResult> {
  yield* lockName(tx, member.name)
  const use = token === undefined ? null : {...token, node: member}
  const early = use === null ? null : yield* tokenRefusal(tx, use)
  if (early !== null) return {kind: 'token', refusal: early}
  const found = yield* all<MemberRow>(
    `SELECT ${MEMBER_COLUMNS} FROM members WHERE ${OF_ID_OR_NAME} ORDER BY id${tx.dialect.forUpdate}`,
    [member.id, member.name],
  )
  const joining = {id: member.id, incarnation: member.incarnation, ...(ended && {ended})}
  const conflict = joinConflict(joining, found.map(memberOf), tx.now, freshMs)
  if (conflict !== null) return conflict
  yield* noteStandstillOfMembers(tx)
  const refusal = use === null ? null : yield* bindToken(tx, use)
  if (refusal !== null) return {kind: 'token', refusal}
  yield* all(`UPDATE members SET status = 'failed' WHERE name = ? AND id <> ? AND ${PRESENT}`, [
    member.name,
    member.id,
  ])
  yield* all(
    `INSERT INTO members (${JOINED_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'alive', ?, ?, ?)
      ON CONFLICT (id) DO UPDATE SET name = excluded.name, incarnation = excluded.incarnation,
      address = excluded.address, port = excluded.port, tags = excluded.tags,
      server = excluded.server, runs = excluded.runs, version = excluded.version,
      slots = excluded.slots, status = excluded.status, started_at = excluded.started_at,
      heartbeat_at = excluded.heartbeat_at, knows_schema = excluded.knows_schema`,
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
      knownSchema(member.incarnation),
    ],
  )
  // Created at once, so that concurrent claims of the node have a row to lock.
  yield* all(
    `INSERT INTO node_claims (node_id, token) VALUES (?, '') ON CONFLICT (node_id) DO NOTHING`,
    [member.id],
  )
  yield* endEvents(tx, 'node_failed', member.name)
  yield* recordEvent(tx, {kind: 'node_joined', subject: member.name, detail: member.version})
  return {kind: 'joined'}
}

/**
 * Stores heartbeats; one reply for each, in order. One statement updates all present members; a member that
 * failed or left returns through `returnMember`.
 */
export function* beat(tx: Transaction, beats: readonly Heartbeat[]): Query<readonly BeatReply[]> {
  const replies: BeatReply[] = []
  const indexed = beats.map((each, index) => ({...each, index}))
  // Heartbeats of one node follow each other: the last one is applied last.
  for (const batch of conflictFreeBatches(indexed, ({nodeId}) => [nodeId])) {
    const updated = yield* oneEach<{name: string}>(
      `UPDATE members SET heartbeat_at = ?, status = ?
        WHERE id = ? AND incarnation = ? AND ${PRESENT} RETURNING name`,
      batch.map(({nodeId, incarnation, status}) => [tx.now, status, nodeId, incarnation]),
    )
    for (const [at, each] of batch.entries()) {
      const member = updated[at] ?? null
      replies[each.index] = member === null ? yield* returnMember(tx, each) : 'ok'
      if (member !== null && each.status === 'left')
        yield* recordEvent(tx, {kind: 'node_left', subject: member.name})
    }
  }
  return replies
}

/** Heartbeat of a member that is not present. */
function* returnMember(tx: Transaction, heartbeat: Heartbeat): Query<BeatReply> {
  const {nodeId, status} = heartbeat
  const named = yield* one<{name: string}>(`SELECT name FROM members WHERE id = ?`, [nodeId])
  if (named === null) return 'unknown'
  yield* lockName(tx, named.name)
  // Read again under the lock: the member may have been removed, rejoined, or lost its name meanwhile.
  const found = yield* all<{id: string; incarnation: string}>(
    `SELECT id, incarnation FROM members WHERE ${OF_ID_OR_NAME}`,
    [nodeId, named.name],
  )
  const reply = decideReturn(heartbeat, found)
  if (reply !== 'ok') return reply
  yield* all(`UPDATE members SET heartbeat_at = ?, status = ? WHERE id = ?`, [
    tx.now,
    status,
    nodeId,
  ])
  yield* endEvents(tx, 'node_failed', named.name)
  return 'ok'
}

/** Serializes nodes that join under a name or return to it, and waits for claims of its members. */
function* lockName(tx: Transaction, name: string): Query<void> {
  yield* all(`SELECT id FROM members WHERE name = ? ORDER BY id${tx.dialect.forUpdate}`, [name])
}

export function* members(_tx: Transaction): Query<readonly MemberRecord[]> {
  const rows = yield* all<MemberRow>(`SELECT ${MEMBER_COLUMNS} FROM members ORDER BY name, id`)
  return rows.map(memberOf)
}

export function* nodeLoads(_tx: Transaction): Query<readonly NodeLoad[]> {
  const rows = yield* all<{id: string; running: number; waiting: number}>(
    `SELECT m.id, ${RUNNING} AS running, ${WAITING} AS waiting FROM members m`,
  )
  return rows.map(({id, running, waiting}) => ({nodeId: id, running, waiting}))
}

/**
 * The lock on the whole row waits for claims of the node in progress, which lock its key. A crash after the
 * commit loses only the notifications: everything else follows from these two columns.
 */
export function* setScheduling(
  tx: Transaction,
  {nodeId, change, actor}: Parameters<MemberStore['setScheduling']>[0],
): Query<MemberRecord | null> {
  const row = yield* one<MemberRow>(
    `SELECT ${MEMBER_COLUMNS} FROM members WHERE id = ?${tx.dialect.forUpdate}`,
    [nodeId],
  )
  if (row === null) return null
  const before = memberOf(row)
  const decision = decideScheduling(before, change, tx.now)
  if (decision === null) return before
  const {cordonedAt, drainUntil, isDrainOver} = decision
  if (isDrainOver) yield* noteDrained(tx, nodeId)
  yield* all(`UPDATE members SET cordoned_at = ?, drain_until = ? WHERE id = ?`, [
    cordonedAt,
    drainUntil,
    nodeId,
  ])
  const deadline = change.kind === 'drain' ? `, deadline ${formatDuration(change.deadlineMs)}` : ''
  const what = {action: `member.${change.kind}`, targetType: 'member', target: before.name} as const
  yield* recordChange(tx, {actor, ...what, detail: `id ${nodeId}${deadline}`})
  return {...before, cordonedAt, drainUntil}
}

/**
 * Marks what the deadline has stopped: it may end later, and its end is that of the drain. Locks as a
 * finish does.
 */
function* noteDrained(tx: Transaction, nodeId: string): Query<void> {
  const rows = yield* all<ExecutionRow>(
    `SELECT group_id, node_name, attempt FROM executions WHERE node_id = ? AND status = 'running'
      ORDER BY group_id, node_name, attempt${tx.dialect.forUpdate}`,
    [nodeId],
  )
  yield* sendEach(
    `UPDATE executions SET cancel_reason = 'node_drained' WHERE ${BY_KEY}`,
    rows.map((row) => keyValues(keyOf(row))),
  )
}

export function* failMember(
  tx: Transaction,
  {term, nodeId, observed}: Parameters<MemberStore['failMember']>[0],
): Query<boolean> {
  yield* fence(tx, term)
  const failed = yield* one<{name: string}>(
    `UPDATE members SET status = 'failed'
      WHERE id = ? AND incarnation = ? AND heartbeat_at = ? AND ${PRESENT} RETURNING name`,
    [nodeId, observed.incarnation, observed.heartbeatAt],
  )
  if (failed !== null)
    yield* recordEvent(tx, {kind: 'node_failed', subject: failed.name, at: observed.heartbeatAt})
  return failed !== null
}

/** Conditions per status, so that the partial index of each status is used. */
const HAS_NO_EXECUTIONS = (['pending', 'running'] as const)
  .map((status) => {
    const execution = `SELECT 1 FROM executions e WHERE e.node_id = members.id AND e.status = '${status}'`
    return `NOT EXISTS (${execution})`
  })
  .join(' AND ')

/** Deletes members without executions that left or failed long ago. */
export function* pruneMembers(
  tx: Transaction,
  {term, leftAfterMs, failedAfterMs, limit}: Parameters<MemberStore['pruneMembers']>[0],
): Query<readonly MemberRecord[]> {
  yield* fence(tx, term)
  // Skip locked members: a lock means a concurrent heartbeat or claim.
  const lock = tx.dialect.locking ? ' FOR UPDATE SKIP LOCKED' : ''
  const found = yield* all<{id: string}>(
    `SELECT id FROM members WHERE ((status = 'left' AND heartbeat_at <= ?)
      OR (status = 'failed' AND heartbeat_at <= ?)) AND ${HAS_NO_EXECUTIONS}
      ORDER BY heartbeat_at, id LIMIT ?${lock}`,
    [yield* tooOldAt(tx, leftAfterMs), yield* tooOldAt(tx, failedAfterMs), limit],
  )
  const pruned: MemberRecord[] = []
  for (const {id} of found) {
    // Checked again under the lock: a claim may have committed just before.
    const row = yield* one<MemberRow>(
      `DELETE FROM members WHERE id = ? AND ${HAS_NO_EXECUTIONS} RETURNING ${MEMBER_COLUMNS}`,
      [id],
    )
    if (row === null) continue
    yield* deleteClaims(id)
    yield* endEvents(tx, 'node_failed', row.name)
    pruned.push(memberOf(row))
  }
  return pruned
}

/** Locks the member first, as a claim does: the claim is visible here, or it takes nothing. */
export function* removeMember(
  tx: Transaction,
  {nodeId, limit, jitter, actor}: Parameters<MemberStore['removeMember']>[0],
): Query<RemoveResult> {
  const row = yield* one<MemberRow>(
    `SELECT ${MEMBER_COLUMNS} FROM members WHERE id = ?${tx.dialect.forUpdate}`,
    [nodeId],
  )
  if (row === null) return {kind: 'unknown'}
  const member = memberOf(row)
  if (isPresent(member)) return {kind: 'present', member}
  const running = yield* all<ExecutionRow>(
    `SELECT group_id, node_name, attempt FROM executions WHERE node_id = ? AND status = 'running'
      ORDER BY started_at, group_id, attempt, node_name LIMIT ?`,
    [nodeId, limit],
  )
  const finished = yield* endAll(tx, running.map(keyOf), 'lost', lostReason(member), jitter)
  if (running.length === limit) return {kind: 'ending', finished}
  yield* all(`DELETE FROM members WHERE id = ?`, [nodeId])
  yield* deleteClaims(nodeId)
  yield* endEvents(tx, 'node_failed', member.name)
  const what = {action: 'member.remove', targetType: 'member', target: member.name} as const
  yield* recordChange(tx, {actor, ...what, detail: `id ${nodeId}`})
  return {kind: 'removed', member, finished}
}

function* deleteClaims(nodeId: string): Query<void> {
  yield* all(`DELETE FROM node_claims WHERE node_id = ?`, [nodeId])
}
