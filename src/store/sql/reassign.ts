/** Pending executions that their node does not take, and giving them to other nodes. */
import {lostLine} from '../../core/execution.ts'
import type {MemberStatus} from '../../core/node.ts'
import type {StuckExecution} from '../../core/reassign.ts'
import type {Applied, LeaderStore, StuckPosition} from '../../ports/leader-store.ts'
import type {FinishOutcome} from '../../ports/node-store.ts'
import {loadFinishBatch, writeFinishBatch} from './finish-rows.ts'
import {loadJobs} from './jobs.ts'
import {fence} from './lease.ts'
import {all, each, one, oneEach, type Query, type Transaction} from './query.ts'
import {
  BY_KEY,
  EXECUTION_COLUMNS_E,
  executionOf,
  type ExecutionRow,
  keyValues,
  type LaunchRow,
} from './rows.ts'

interface StuckRow extends ExecutionRow {
  /** This and the next two: `null` = its node is no member. */
  readonly member_status: MemberStatus | null
  readonly member_runs: number | null
  readonly member_heartbeat_at: number | null
}

const STRAY = `SELECT ${EXECUTION_COLUMNS_E}, m.status AS member_status, m.runs AS member_runs,
  m.heartbeat_at AS member_heartbeat_at
  FROM executions e
  LEFT JOIN members m ON m.id = e.node_id
  WHERE e.status = 'pending' AND (e.group_id, e.slot, e.attempt) > (?, ?, ?)
    AND (e.not_before <= ? OR m.id IS NULL OR m.status <> 'alive')
  ORDER BY e.group_id, e.slot, e.attempt LIMIT ?`

const BEFORE_ALL: StuckPosition = {group: 0, slot: 0, attempt: 0}

export function* loadStuck(
  tx: Transaction,
  {unclaimedMs, after, limit}: Parameters<LeaderStore['loadStuck']>[0],
): Query<Awaited<ReturnType<LeaderStore['loadStuck']>>> {
  const {group, slot, attempt} = after ?? BEFORE_ALL
  const rows = yield* all<StuckRow>(STRAY, [group, slot, attempt, tx.now - unclaimedMs, limit])
  const groups = rows.map((row) => [row.group_id])
  const jobs = yield* loadJobs(rows.map((row) => row.job_id))
  // By themselves: joined, they are read from the first one on where there is a long history.
  const launches = yield* oneEach<Pick<LaunchRow, 'cause' | 'scheduled_at'>>(
    `SELECT cause, scheduled_at FROM launches WHERE group_id = ?`,
    groups,
  )
  const used = yield* each<{node_name: string}>(
    `SELECT DISTINCT node_name FROM executions WHERE group_id = ? ORDER BY node_name`,
    groups,
  )
  const strays = rows.flatMap((row, index): StuckExecution[] => {
    const job = jobs[index] ?? null
    const launch = launches[index] ?? null
    if (job === null || launch === null) return []
    const usedNodes = (used[index] ?? []).map(({node_name: name}) => name)
    const {cause, scheduled_at: scheduledAt} = launch
    const {node_id: nodeId} = row
    const member = memberOf(row)
    return [{execution: executionOf(row), nodeId, member, job, cause, scheduledAt, usedNodes}]
  })
  const last = rows.length === limit ? rows.at(-1) : undefined
  const next =
    last === undefined ? null : {group: last.group_id, slot: last.slot, attempt: last.attempt}
  return {now: tx.now, strays, next}
}

function memberOf(row: StuckRow): StuckExecution['member'] {
  const {member_status: status, member_runs: runs, member_heartbeat_at: heartbeatAt} = row
  if (status === null || heartbeatAt === null) return null
  return {status, runs: runs === 1, heartbeatAt}
}

type ReassignmentsRequest = Parameters<LeaderStore['applyReassignments']>[0]

/** A moved execution is due anew from now, so that its new node gets the same time to take it. */
export function* applyReassignments(
  tx: Transaction,
  {term, moves}: ReassignmentsRequest,
): Query<readonly Applied[]> {
  yield* fence(tx, term)
  const applied: Applied[] = []
  for (const {key, to} of moves) {
    const moved = yield* one(
      `UPDATE executions SET node_id = ?, node_name = ?,
        not_before = CASE WHEN not_before > ? THEN not_before ELSE ? END
        WHERE ${BY_KEY} AND status = 'pending' AND NOT EXISTS (SELECT 1 FROM executions other
          WHERE other.group_id = ? AND other.node_name = ? AND other.attempt = ?
            AND other.node_name <> executions.node_name)
        RETURNING group_id`,
      [
        to.nodeId,
        to.nodeName,
        tx.now,
        tx.now,
        ...keyValues(key),
        key.group,
        to.nodeName,
        key.attempt,
      ],
    )
    applied.push(moved === null ? 'conflict' : 'applied')
  }
  return applied
}

/*
 * The end of pending executions that no node may take. Stands apart from giving them to other nodes because
 * it is an end, by the ledger and the rule of all ends.
 */

/** No retry follows, so there is nothing to roll for. */
const END = {
  status: 'lost',
  reason: 'no_target',
  jitter: 0,
  with: {outputFoot: lostLine('no_target')},
} as const

export function* endStuck(
  tx: Transaction,
  {term, strays}: Parameters<LeaderStore['endStuck']>[0],
): Query<readonly FinishOutcome[]> {
  yield* fence(tx, term)
  // Members first, as a claim locks them: a node that is back has its work, or comes too late for it.
  const busy = yield* takingWork(
    tx,
    strays.map(({nodeId}) => nodeId),
  )
  const ending = strays.filter(({nodeId}) => !busy.has(nodeId))
  const ledger = yield* loadFinishBatch(
    tx,
    ending.map(({key}) => key.group),
  )
  const ended = ending.flatMap(({key, nodeId}): FinishOutcome[] => {
    const held = ledger.find(key)
    if (held === null || held.record.status !== 'pending' || held.nodeId !== nodeId) return []
    if (ledger.jobOf(ledger.launches.get(key.group)!) === null) return []
    return [ledger.end(held, {...END, finishedAt: tx.now})]
  })
  yield* writeFinishBatch(tx, ledger)
  return ended
}

/** Which of the nodes may claim, or will be back at work when they have stopped. */
function* takingWork(tx: Transaction, nodeIds: readonly string[]): Query<ReadonlySet<string>> {
  const sorted = [...new Set(nodeIds)].toSorted()
  const rows = yield* oneEach<{id: string; status: MemberStatus; runs: number}>(
    `SELECT id, status, runs FROM members WHERE id = ?${tx.dialect.forUpdate}`,
    sorted.map((id) => [id]),
  )
  const taking = rows.filter((row) => {
    return row?.runs === 1 && (row.status === 'alive' || row.status === 'leaving')
  })
  return new Set(taking.map((row) => row!.id))
}
