/**
 * Launches: requests by hand, the load of the nodes, and applying the leader's decisions. Decisions are
 * applied in one transaction under the leader's term (fencing token). Each is compared with the stored state
 * (optimistic concurrency): it applies completely or is a conflict, and a conflict changes nothing and does
 * not affect the others. A row locked by another transaction is a conflict.
 */
import type {DueDecision, LaunchRecord, RequestDecision} from '../../../core/launch-record.ts'
import type {Candidate} from '../../../core/node.ts'
import {assert} from '../../../lib/assert.ts'
import type {RunRequest, RunResult} from '../../../ports/job-store.ts'
import type {Applied, DecidedLaunch, LeaderStore} from '../../../ports/leader-store.ts'
import {recordChange} from '../access/audit.ts'
import {findReply, storeReplies} from '../jobs/idempotency.ts'
import {lockJob} from '../jobs/jobs.ts'
import {skipDependents, writeDecided} from './dependents.ts'
import {
  extendInto,
  firstOpen,
  insertRequest,
  insertTargets,
  inTheWay,
  inTheWayOfRequests,
  type PlannedRows,
  type WrittenRow,
} from './launch-rows.ts'
import {recordDecided} from '../notices/facts.ts'
import {noticeScopes} from '../notices/scopes.ts'
import {settingsRevision} from '../jobs/firing.ts'
import {fence} from '../cluster/lease.ts'
import {recordFaults} from '../jobs/planning.ts'
import {
  all,
  one,
  oneEach,
  type Query,
  send,
  sendEach,
  together,
  type Transaction,
} from '../query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow} from '../rows.ts'

/** Stores a request by hand; the leader decides it. */
export function* requestRun(tx: Transaction, request: RunRequest): Query<RunResult> {
  const {name, forced, idempotency, actor} = request
  const [job, earlier, groups] = yield* together(
    lockJob(tx, name),
    findReply<RunResult>(tx, idempotency),
    tx.dialect.takeNumbers('launch', 1),
  )
  if (earlier !== null) return earlier
  if (job === null) return {kind: 'unknown'}
  if (job.spec.concurrency === 'forbid' && !forced) {
    const open = yield* firstOpen(job)
    if (open !== null) return {kind: 'forbidden', openGroup: open.isOwn ? open.group : null}
  }
  const group = groups[0]!
  yield* insertRequest(tx, {job: {id: job.id, name}, cause: 'manual', forced}, group)
  const detail = `launch ${group}${forced ? ', forced' : ''}`
  yield* recordChange(tx, {actor, action: 'job.run', targetType: 'job', target: name, detail})
  const result: RunResult = {kind: 'accepted', job, group}
  yield* storeReplies(tx, [{idempotency, reply: result}])
  return result
}

interface CandidateRow {
  readonly id: string
  readonly name: string
  readonly tags: string
  readonly slots: number
  readonly load: number
  readonly cordoned_at: number | null
}

/**
 * Limit for counting a node's pending executions. Each pass counts; at 100,000 pending the count took a sixth
 * of the launch time. Nodes beyond the limit count as equally loaded.
 */
export const WAITING_COUNTED_MAX = 1_000

/** Counts for a row `m` of members. */
export const WAITING = `(SELECT count(*) FROM (SELECT 1 AS found FROM executions e
  WHERE e.node_id = m.id AND e.status = 'pending' LIMIT ${WAITING_COUNTED_MAX}) AS waiting)`
export const RUNNING = `(SELECT count(*) FROM executions e
  WHERE e.node_id = m.id AND e.status = 'running')`

/** Alive nodes that run jobs, with their load. */
export function* candidates(_tx: Transaction): Query<readonly Candidate[]> {
  const rows = yield* all<CandidateRow>(
    `SELECT m.id, m.name, m.tags, m.slots, m.cordoned_at, ${WAITING} + ${RUNNING} AS load
      FROM members m WHERE m.status = 'alive' AND m.runs = 1 ORDER BY m.name, m.id`,
  )
  return rows.map(({id, name, tags, slots, load, cordoned_at: cordonedAt}) => {
    const node = {id, name, slots, load, tags: JSON.parse(tags) as Record<string, string>}
    return cordonedAt === null ? node : {...node, isCordoned: true}
  })
}

type Request = Parameters<LeaderStore['applyLaunches']>[0]
type Result = Awaited<ReturnType<LeaderStore['applyLaunches']>>

export function* applyLaunches(tx: Transaction, request: Request): Query<Result> {
  const [, revision, dueJobs, pending, pendingJobs, scopes] = yield* together(
    fence(tx, request.term),
    // The revision is read after the fence, which waits for a pause that is being stored.
    settingsRevision(),
    lockJobsIfFree(
      tx,
      request.dues.map(({jobId}) => jobId),
    ),
    lockPending(tx, request.requests),
    lockJobsOf(tx, request.requests),
    noticeScopes(),
  )
  const jobs = [...dueJobs.values(), ...pendingJobs.values()]
  const watched = new Set(jobs.flatMap(({id, watched: isWatched}) => (isWatched === 1 ? [id] : [])))
  if (request.settings !== undefined && request.settings !== revision)
    return allConflicts(tx, request)
  const dues = yield* applyDues(tx, request.term, request.dues, dueJobs)
  const requests = yield* applyRequests(tx, request.term, request.requests, pending, pendingJobs)
  yield* recordFaults(tx, request.term, request.faults ?? [])
  const decided = [...dues.decided, ...requests.decided]
  yield* recordDecided(
    tx,
    decided.map(({launch}) => launch),
    watched,
    scopes,
  )
  return {now: tx.now, dues: dues.applied, requests: requests.applied, decided}
}

function allConflicts(tx: Transaction, {dues, requests}: Request): Result {
  const conflict = () => 'conflict' as const
  return {now: tx.now, dues: dues.map(conflict), requests: requests.map(conflict), decided: []}
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
  readonly decided_until: number | null
  readonly watched: number | null
}

const MOVE_NEXT = `UPDATE jobs SET next_at = ?, decided_until = ? WHERE id = ?`

function* applyDues(
  tx: Transaction,
  term: number,
  dues: readonly DueDecision[],
  jobs: Map<number, DueJobRow>,
): Query<Outcome> {
  const forbidding = dues.filter(launchesUnderForbid).flatMap(({jobId}) => {
    const name = jobs.get(jobId)?.name
    return name === undefined ? [] : [name]
  })
  const open = yield* inTheWay(forbidding)
  const blocked = new Set(forbidding.filter((_name, index) => open[index] !== null))
  const moves: [number | null, number | null, number][] = []
  const planned: PlannedRows[] = []
  const applied = dues.map((due): Applied => {
    const job = jobs.get(due.jobId)
    if (job === undefined || job.revision !== due.revision) return 'conflict'
    if (job.next_at !== due.expectedNextAt) return 'conflict'
    if (launchesUnderForbid(due) && blocked.has(job.name)) return 'conflict'
    jobs.delete(due.jobId)
    moves.push([due.nextAt, due.rows.at(-1)?.scheduledUntil ?? job.decided_until, due.jobId])
    planned.push({job: {id: job.id, name: job.name}, rows: due.rows})
    return 'applied'
  })
  yield* sendEach(MOVE_NEXT, moves)
  const written = yield* writeDecided(tx, planned, term)
  return {applied, decided: written.map(decidedLaunchOf)}
}

/** Locks jobs in the order of their ids, skipping locked ones. Returns them by id. */
function* lockJobsIfFree(
  tx: Transaction,
  jobIds: readonly number[],
): Query<Map<number, DueJobRow>> {
  const ids = [...new Set(jobIds)].toSorted((a, b) => a - b)
  const rows = yield* oneEach<DueJobRow>(
    `SELECT id, name, revision, next_at, decided_until, watched FROM jobs
      WHERE id = ? AND deleted_at IS NULL${lockIfFree(tx)}`,
    ids.map((id) => [id]),
  )
  return new Map(rows.flatMap((row) => (row === null ? [] : [[row.id, row] as const])))
}

function launchesUnderForbid(due: DueDecision): boolean {
  return due.forbid && due.rows.some(({decision}) => decision === 'launched')
}

const LAUNCH_PENDING = `UPDATE launches SET decision = 'launched', reason = '', decided_at = ?, term = ?
  WHERE group_id = ?`

function* applyRequests(
  tx: Transaction,
  term: number,
  requests: readonly RequestDecision[],
  rows: Map<number, LaunchRecord>,
  jobs: ReadonlyMap<number, DueJobRow>,
): Query<Outcome> {
  const forbidding = requests.flatMap((request) => {
    const row = rows.get(request.group)
    const forbids = request.kind === 'launch' && request.forbid
    return forbids && row !== undefined ? [{name: row.jobName, group: request.group}] : []
  })
  const open = yield* inTheWayOfRequests(forbidding)
  const blocked = new Set(forbidding.filter((_, i) => open[i] !== null).map(({group}) => group))
  /** Names of jobs launched by this call, which `inTheWayOfRequests` could not see. */
  const launchedNames = new Set<string>()
  const launched: WrittenRow[] = []
  const notRun: LaunchRecord[] = []
  const applied: Applied[] = []
  const decided: DecidedLaunch[] = []
  for (const request of requests) {
    const row = rows.get(request.group)
    if (row === undefined || jobs.get(row.jobId)?.revision !== request.revision) {
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
      const written = {launch: {...row, ...now}, isNew: false, targets: request.targets}
      launched.push(written)
      decided.push(decidedLaunchOf(written))
    } else if (request.kind === 'skip') {
      const {decision, reason} = request
      const launch = yield* closePending(tx, {...row, decision, reason, decidedAt: tx.now, term})
      // Merged into the row before it, it says nothing new to the dependents.
      if (launch.group === row.group) notRun.push(launch)
      decided.push({launch, targets: []})
    } else if (request.reason !== row.reason) {
      // The wait for the new reason starts now.
      const launch = {...row, reason: request.reason, storedAt: tx.now}
      yield* send(`UPDATE launches SET reason = ?, stored_at = ? WHERE group_id = ?`, [
        launch.reason,
        launch.storedAt,
        row.group,
      ])
      decided.push({launch, targets: []})
    }
    rows.delete(request.group)
    applied.push('applied')
  }
  yield* sendEach(
    LAUNCH_PENDING,
    launched.map(({launch}) => [tx.now, term, launch.group]),
  )
  yield* insertTargets(tx, launched)
  yield* skipDependents(tx, notRun)
  return {applied, decided}
}

/** Locks pending rows in order, skipping locked ones. Returns them by launch number. */
function* lockPending(
  tx: Transaction,
  requests: readonly RequestDecision[],
): Query<Map<number, LaunchRecord>> {
  const groups = requests.map(({group}) => group).toSorted((a, b) => a - b)
  const rows = yield* oneEach<LaunchRow>(
    `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE group_id = ? AND decision = 'pending'
      ${lockIfFree(tx)}`,
    groups.map((group) => [group]),
  )
  return new Map(
    rows.flatMap((row) => (row === null ? [] : [[row.group_id, launchOf(row)] as const])),
  )
}

/** Locks the jobs of pending rows, after the rows, as `lockJobsIfFree` does. */
function* lockJobsOf(
  tx: Transaction,
  requests: readonly RequestDecision[],
): Query<Map<number, DueJobRow>> {
  const rows = yield* oneEach<DueJobRow>(
    `SELECT id, name, revision, next_at, decided_until, watched FROM jobs
      WHERE id = (SELECT job_id FROM launches WHERE group_id = ?) AND deleted_at IS NULL
      ${lockIfFree(tx)}`,
    requests.map(({group}) => [group]).toSorted(([a], [b]) => a! - b!),
  )
  return new Map(rows.flatMap((row) => (row === null ? [] : [[row.id, row] as const])))
}

const PLANNED_BEFORE = `SELECT ${LAUNCH_COLUMNS} FROM launches
  WHERE job_id = ? AND cause = 'schedule' AND scheduled_at < ? ORDER BY scheduled_at DESC LIMIT 1`

/**
 * Ends a pending row without a launch. A planned time is merged into the row before it if decision and reason
 * are equal.
 */
function* closePending(tx: Transaction, ended: LaunchRecord): Query<LaunchRecord> {
  const closed = {...ended, open: false}
  if (ended.cause === 'schedule') {
    const before = yield* one<LaunchRow>(PLANNED_BEFORE, [ended.jobId, ended.scheduledAt])
    const merged = before === null ? null : extendInto(launchOf(before), closed, tx.now, ended.term)
    if (merged !== null) {
      yield* send(`DELETE FROM launches WHERE group_id = ?`, [ended.group])
      yield* send(
        `UPDATE launches SET scheduled_until = ?, planned_count = ?, decided_at = ?, term = ?
          WHERE group_id = ?`,
        [merged.scheduledUntil, merged.count, merged.decidedAt, merged.term, merged.group],
      )
      return merged
    }
  }
  yield* send(
    `UPDATE launches SET decision = ?, reason = ?, decided_at = ?, term = ?, open = 0
      WHERE group_id = ?`,
    [closed.decision, closed.reason, closed.decidedAt, closed.term, closed.group],
  )
  return closed
}

/**
 * Skip locked rows instead of waiting: an import or a deletion may lock jobs for long while the other
 * decisions of the pass are due. A skipped row is a conflict; the next pass decides it again.
 */
function lockIfFree({dialect}: Transaction): string {
  return dialect.locking ? ' FOR UPDATE SKIP LOCKED' : ''
}

function decidedLaunchOf({launch, targets}: WrittenRow): DecidedLaunch {
  return {launch, targets: targets.map(({nodeName}) => nodeName)}
}
