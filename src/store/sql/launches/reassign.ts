/**
 * Stuck executions: pending ones that their node does not claim. Loads them for the leader, moves them to
 * other nodes, and ends those that no node may run.
 */
import {endWithoutNode, type FinishOutcome} from '../../../core/end-requests.ts'
import {isPresent, type MemberStatus} from '../../../core/node.ts'
import type {StuckExecution} from '../../../core/reassign.ts'
import {conflictFreeBatches} from '../../../lib/conflict-free.ts'
import type {Applied, LeaderStore} from '../../../ports/leader-store.ts'
import type {KeysetPage} from '../../../ports/page.ts'
import {loadFinishBatch, writeFinishBatch} from '../executions/finish-batch.ts'
import {loadJobs} from '../jobs/jobs.ts'
import {fence} from '../cluster/lease.ts'
import {keysetPage} from '../keyset.ts'
import {all, each, oneEach, type Query, type Transaction} from '../query.ts'
import {
  BY_KEY,
  EXECUTION_COLUMNS_E,
  executionOf,
  type ExecutionRow,
  keyValues,
  type LaunchRow,
} from '../rows.ts'

interface StuckRow extends ExecutionRow {
  /** Status, `runs` and heartbeat are `null` if the node is no member. */
  readonly member_status: MemberStatus | null
  readonly member_runs: number | null
  readonly member_heartbeat_at: number | null
  readonly member_cordoned_at: number | null
}

const STUCK_COLUMNS = `${EXECUTION_COLUMNS_E}, m.status AS member_status, m.runs AS member_runs,
  m.heartbeat_at AS member_heartbeat_at, m.cordoned_at AS member_cordoned_at`
/** Condition for a member that claims nothing new. */
const IS_GONE = `(m.status <> 'alive' OR m.cordoned_at IS NOT NULL)`
/** Lists of pending executions: those of all nodes, and those of nodes that claim nothing new. */
const PENDING = {
  columns: STUCK_COLUMNS,
  where: `e.status = 'pending'`,
  key: ['e.group_id', 'e.slot', 'e.attempt'],
  order: 'asc',
} as const
const OF_ALL = {...PENDING, from: 'executions e', joins: 'LEFT JOIN members m ON m.id = e.node_id'}
const OF_GONE_NODES = {
  ...PENDING,
  from: 'members m JOIN executions e ON e.node_id = m.id',
  where: `${IS_GONE} AND ${PENDING.where}`,
}
const IS_STUCK = `m.runs = 1 AND e.not_before <= ? OR m.runs = 0 AND e.not_before <= ?
  OR m.status IS NULL OR ${IS_GONE}`

/** Pending executions read for one page: some milliseconds. */
const VISITED_MAX = 2_000

/** Instant before which no execution is due. */
const NEVER = Number.MIN_SAFE_INTEGER

type StuckRequest = Parameters<LeaderStore['loadStuck']>[0]

export function* loadStuck(
  tx: Transaction,
  request: StuckRequest,
): Query<Awaited<ReturnType<LeaderStore['loadStuck']>>> {
  if (request.of === 'gone_nodes' && !(yield* hasWorkOfGoneNodes()))
    return {now: tx.now, executions: [], next: null}
  const {items: rows, next} = yield* stuckRows(tx, request)
  const groups = rows.map((row) => [row.group_id])
  const jobs = yield* loadJobs(rows.map((row) => row.job_id))
  // A join would make the planner read all launches of a long history, from the first one on.
  const launches = yield* oneEach<Pick<LaunchRow, 'cause' | 'scheduled_at'>>(
    `SELECT cause, scheduled_at FROM launches WHERE group_id = ?`,
    groups,
  )
  const used = yield* each<{node_name: string}>(
    `SELECT DISTINCT node_name FROM executions WHERE group_id = ? ORDER BY node_name`,
    groups,
  )
  const stuck = rows.flatMap((row, index): StuckExecution[] => {
    const job = jobs[index] ?? null
    const launch = launches[index] ?? null
    if (job === null || launch === null) return []
    const usedNodes = (used[index] ?? []).map(({node_name: name}) => name)
    const {cause, scheduled_at: scheduledAt} = launch
    const {node_id: nodeId} = row
    const member = memberOf(row)
    return [{execution: executionOf(row), nodeId, member, job, cause, scheduledAt, usedNodes}]
  })
  return {now: tx.now, executions: stuck, next}
}

/** Checked first: PostgreSQL could read all that is pending to find none of their executions. */
function* hasWorkOfGoneNodes(): Query<boolean> {
  const gone = yield* all<{id: string}>(`SELECT m.id FROM members m WHERE ${IS_GONE}`)
  const found = yield* oneEach(
    `SELECT 1 AS found FROM executions WHERE node_id = ? AND status = 'pending' LIMIT 1`,
    gone.map(({id}) => [id]),
  )
  return found.some((row) => row !== null)
}

function stuckRows(
  tx: Transaction,
  {unclaimedMs, canMove = true, of, ...slice}: StuckRequest,
): Query<KeysetPage<StuckRow>> {
  if (of === 'gone_nodes') return keysetPage(OF_GONE_NODES, slice)
  const dueAt = tx.now - unclaimedMs
  // However many wait for their backoff, a page reads no more.
  const values = [canMove ? dueAt : NEVER, dueAt]
  return keysetPage({...OF_ALL, filter: {where: IS_STUCK, values, visitedMax: VISITED_MAX}}, slice)
}

function memberOf(row: StuckRow): StuckExecution['member'] {
  const {member_status: status, member_runs: runs, member_heartbeat_at: heartbeatAt} = row
  if (status === null || heartbeatAt === null) return null
  return {status, runs: runs === 1, heartbeatAt, cordonedAt: row.member_cordoned_at}
}

type ReassignmentsRequest = Parameters<LeaderStore['applyReassignments']>[0]

const MOVE = `UPDATE executions SET node_id = ?, node_name = ?,
  not_before = CASE WHEN not_before > ? THEN not_before ELSE ? END
  WHERE ${BY_KEY} AND status = 'pending' AND NOT EXISTS (SELECT 1 FROM executions other
    WHERE other.group_id = ? AND other.node_name = ? AND other.attempt = ?
      AND other.node_name <> executions.node_name)
  RETURNING group_id`

/** Moves executions. A moved one is due from now on, so that the new node has the full time to claim it. */
export function* applyReassignments(
  tx: Transaction,
  {term, moves}: ReassignmentsRequest,
): Query<readonly Applied[]> {
  yield* fence(tx, term)
  const applied: Applied[] = []
  const indexed = moves.map((move, index) => ({...move, index}))
  // Moves of one launch follow each other: two may take the same name and attempt.
  for (const batch of conflictFreeBatches(indexed, ({key}) => [key.group])) {
    const moved = yield* oneEach(
      MOVE,
      batch.map(({key, to: {nodeId, nodeName}}) => {
        const taken = [key.group, nodeName, key.attempt]
        return [nodeId, nodeName, tx.now, tx.now, ...keyValues(key), ...taken]
      }),
    )
    for (const [at, {index}] of batch.entries())
      applied[index] = moved[at] === null ? 'conflict' : 'applied'
  }
  return applied
}

/** Ends pending executions as `lost`, by the rules of every end. Skips those whose node can claim again. */
export function* endStuck(
  tx: Transaction,
  {term, executions}: Parameters<LeaderStore['endStuck']>[0],
): Query<readonly FinishOutcome[]> {
  yield* fence(tx, term)
  // Locks members first, as a claim does: a node that returned has claimed the work, or claims nothing.
  const busy = yield* nodesThatRun(
    tx,
    executions.map(({nodeId}) => nodeId),
  )
  const ending = executions.filter(({nodeId}) => !busy.has(nodeId))
  const loaded = yield* loadFinishBatch(
    tx,
    ending.map(({key}) => ({key, status: 'lost'})),
  )
  const ended = ending.flatMap((stuck) => endWithoutNode(loaded.batch, stuck, tx.now) ?? [])
  yield* writeFinishBatch(tx, loaded)
  return ended
}

/** Nodes that can claim now, or will after their restart. */
function* nodesThatRun(tx: Transaction, nodeIds: readonly string[]): Query<ReadonlySet<string>> {
  const sorted = [...new Set(nodeIds)].toSorted()
  const rows = yield* oneEach<{id: string; status: MemberStatus; runs: number}>(
    `SELECT id, status, runs FROM members
      WHERE id = ? AND cordoned_at IS NULL${tx.dialect.forUpdate}`,
    sorted.map((id) => [id]),
  )
  const taking = rows.filter((row) => row?.runs === 1 && isPresent(row))
  return new Set(taking.map((row) => row!.id))
}
