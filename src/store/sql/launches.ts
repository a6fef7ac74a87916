/**
 * Applying the leader's decisions: one transaction under the leader's term. Each decision is compared with
 * what is stored and either applies whole or is a conflict; conflicts change nothing and hinder nobody. So is
 * one about a row that somebody else holds.
 */
import type {DueDecision, LaunchRecord, RequestDecision} from '../../core/launch-record.ts'
import type {Applied, DecidedLaunch, LeaderStore} from '../../ports/leader-store.ts'
import {assert} from '../../lib/assert.ts'
import {all, each, one, oneEach, type Step} from './query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow} from './rows.ts'
import {fence} from './lease.ts'
import {
  extendInto,
  inTheWay,
  inTheWayOfRequests,
  insertTargets,
  writePlanned,
  type PlannedRows,
  type WrittenRow,
} from './launch-rows.ts'
import type {Transaction} from './transaction.ts'

type Request = Parameters<LeaderStore['applyLaunches']>[0]
type Result = Awaited<ReturnType<LeaderStore['applyLaunches']>>

export function* applyLaunches(tx: Transaction, request: Request): Step<Result> {
  yield* fence(tx, request.term)
  const dues = yield* applyDues(tx, request.term, request.dues)
  const requests = yield* applyRequests(tx, request.term, request.requests)
  return {
    now: tx.now,
    dues: dues.applied,
    requests: requests.applied,
    decided: [...dues.decided, ...requests.decided],
  }
}

interface Outcome {
  readonly applied: Applied[]
  readonly decided: DecidedLaunch[]
}

interface DueJobRow {
  readonly id: number
  readonly name: string
  readonly revision: number
  readonly next_at: number | null
}

const MOVE_NEXT = `UPDATE jobs SET next_at = ?, decided_until = ? WHERE id = ?`

function* applyDues(tx: Transaction, term: number, dues: readonly DueDecision[]): Step<Outcome> {
  const jobs = yield* lockDueJobs(tx, dues)
  const forbidding = dues.filter(launchesUnderForbid).flatMap(({jobId}) => {
    const name = jobs.get(jobId)?.name
    return name === undefined ? [] : [name]
  })
  const open = yield* inTheWay(forbidding)
  const blocked = new Set(forbidding.filter((_name, index) => open[index] !== null))
  const moves: [number | null, number, number][] = []
  const planned: PlannedRows[] = []
  const applied = dues.map((due): Applied => {
    const job = jobs.get(due.jobId)
    const last = due.rows.at(-1)
    assert(last !== undefined, `decision about job ${due.jobId} covers a planned time`)
    if (job === undefined || job.revision !== due.revision) return 'conflict'
    if (job.next_at !== due.expectedNextAt) return 'conflict'
    if (launchesUnderForbid(due) && blocked.has(job.name)) return 'conflict'
    jobs.delete(due.jobId)
    moves.push([due.nextAt, last.scheduledUntil, due.jobId])
    planned.push({job: {id: job.id, name: job.name}, rows: due.rows})
    return 'applied'
  })
  yield* each(MOVE_NEXT, moves)
  const written = yield* writePlanned(tx, planned, term)
  return {applied, decided: written.map(announced)}
}

/**
 * What somebody else holds is not waited for: whoever imports jobs, or deletes one, may hold them for long,
 * and the other decisions of the pass are due. A row that was not got is a conflict, and is looked at again.
 */
function lockIfFree({dialect}: Transaction): string {
  // Where a writer is alone nothing is held by another.
  return dialect.forUpdate === '' ? '' : `${dialect.forUpdate} SKIP LOCKED`
}

/** Jobs by id, those that are free locked in the order of their ids. */
function* lockDueJobs(tx: Transaction, dues: readonly DueDecision[]): Step<Map<number, DueJobRow>> {
  const ids = dues.map(({jobId}) => jobId).toSorted((a, b) => a - b)
  const rows = yield* oneEach<DueJobRow>(
    `SELECT id, name, revision, next_at FROM jobs WHERE id = ? AND deleted_at IS NULL${lockIfFree(tx)}`,
    ids.map((id) => [id]),
  )
  return new Map(rows.flatMap((row) => (row === null ? [] : [[row.id, row] as const])))
}

function launchesUnderForbid(due: DueDecision): boolean {
  return due.forbid && due.rows.some(({decision}) => decision === 'launched')
}

function announced({launch, targets}: WrittenRow): DecidedLaunch {
  return {launch, targets: targets.map(({nodeName}) => nodeName)}
}

const LAUNCH_PENDING = `UPDATE launches SET decision = 'launched', reason = '', decided_at = ?, term = ?
  WHERE group_id = ?`

function* applyRequests(
  tx: Transaction,
  term: number,
  requests: readonly RequestDecision[],
): Step<Outcome> {
  const rows = yield* lockPending(tx, requests)
  const forbidding = requests.flatMap((request) => {
    const row = rows.get(request.group)
    const forbids = request.kind === 'launch' && request.forbid
    return forbids && row !== undefined ? [{name: row.jobName, group: request.group}] : []
  })
  const open = yield* inTheWayOfRequests(forbidding)
  const blocked = new Set(forbidding.filter((_, i) => open[i] !== null).map(({group}) => group))
  /** Names launched by this very call, which the look above could not see. */
  const launchedNames = new Set<string>()
  const launched: WrittenRow[] = []
  const applied: Applied[] = []
  const decided: DecidedLaunch[] = []
  for (const request of requests) {
    const row = rows.get(request.group)
    if (row === undefined) {
      applied.push('conflict')
      continue
    }
    if (request.kind === 'launch') {
      assert(request.targets.length > 0, `launch ${request.group} has a target`)
      const overlaps = blocked.has(row.group) || launchedNames.has(row.jobName)
      if (request.forbid && overlaps) {
        applied.push('conflict')
        continue
      }
      launchedNames.add(row.jobName)
      const now = {decision: 'launched', reason: '', decidedAt: tx.now, term} as const
      const written = {launch: {...row, ...now}, targets: request.targets}
      launched.push(written)
      decided.push(announced(written))
    } else if (request.kind === 'skip') {
      const {decision, reason} = request
      const launch = yield* giveUp(tx, {...row, decision, reason, decidedAt: tx.now, term})
      decided.push({launch, targets: []})
    } else if (request.reason !== row.reason) {
      // A row that begins to wait for something else is as old as that wait.
      yield* all(`UPDATE launches SET reason = ?, stored_at = ? WHERE group_id = ?`, [
        request.reason,
        tx.now,
        row.group,
      ])
    }
    rows.delete(request.group)
    applied.push('applied')
  }
  yield* each(
    LAUNCH_PENDING,
    launched.map(({launch}) => [tx.now, term, launch.group]),
  )
  yield* insertTargets(tx, launched)
  return {applied, decided}
}

/** Pending rows of live jobs by launch number, those that are free locked in order. */
function* lockPending(
  tx: Transaction,
  requests: readonly RequestDecision[],
): Step<Map<number, LaunchRecord>> {
  const groups = requests.map(({group}) => group).toSorted((a, b) => a - b)
  const rows = yield* oneEach<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE group_id = ? AND decision = 'pending'
      AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = launches.job_id AND j.deleted_at IS NULL)
      ${lockIfFree(tx)}`,
    groups.map((group) => [group]),
  )
  return new Map(
    rows.flatMap((row) => (row === null ? [] : [[row.group_id, launchOf(row)] as const])),
  )
}

const PLANNED_BEFORE = `SELECT ${LAUNCH_COLUMNS} FROM launches
  WHERE job_id = ? AND cause = 'schedule' AND scheduled_at < ? ORDER BY scheduled_at DESC LIMIT 1`

/** A pending row ends without a launch; a planned time joins the row before it when they say the same. */
function* giveUp(tx: Transaction, ended: LaunchRecord): Step<LaunchRecord> {
  const closed = {...ended, open: false}
  if (ended.cause === 'schedule') {
    const before = yield* one<LaunchRow>(PLANNED_BEFORE, [ended.jobId, ended.scheduledAt])
    const joined = before === null ? null : extendInto(launchOf(before), closed, tx.now, ended.term)
    if (joined !== null) {
      yield* all(`DELETE FROM launches WHERE group_id = ?`, [ended.group])
      yield* all(
        `UPDATE launches SET scheduled_until = ?, planned_count = ?, decided_at = ?, term = ?
          WHERE group_id = ?`,
        [joined.scheduledUntil, joined.count, joined.decidedAt, joined.term, joined.group],
      )
      return joined
    }
  }
  yield* all(
    `UPDATE launches SET decision = ?, reason = ?, decided_at = ?, term = ?, open = 0
      WHERE group_id = ?`,
    [closed.decision, closed.reason, closed.decidedAt, closed.term, closed.group],
  )
  return closed
}
