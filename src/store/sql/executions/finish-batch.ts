/**
 * Loads and writes the rows of a batch of ends. Locks launches first, in the order of their numbers, then
 * jobs in the order of their ids: concurrent batches wait for each other but never deadlock.
 */
import {replacedBy} from '../../../core/audit.ts'
import type {JobStatus} from '../../../core/job.ts'
import {quarantine} from '../../../core/finish.ts'
import {planDefinition} from '../../../core/next-time.ts'
import {assert} from '../../../lib/assert.ts'
import {recordChange} from '../access/audit.ts'
import {softDelete} from '../jobs/delete-job.ts'
import {type ExecutionKey, executionId, type FinalStatus} from '../../../core/execution.ts'
import {
  type BatchExecution,
  type BatchJob,
  type EndingLaunch,
  FinishBatch,
} from '../../../core/finish-batch.ts'
import {applyChanges, loadJobs} from '../jobs/jobs.ts'
import {writeDependents} from '../launches/dependents.ts'
import {recordEnds} from '../notices/facts.ts'
import {noticeScopes, type Scopes} from '../notices/scopes.ts'
import {newLaunch} from '../launches/launch-rows.ts'
import {dropOutput} from './output.ts'
import {
  each,
  oneEach,
  type Query,
  send,
  sendEach,
  together,
  type Transaction,
  type Values,
} from '../query.ts'
import {
  BY_KEY,
  EXECUTION_COLUMNS,
  EXECUTION_COLUMNS_BARE,
  executionOf,
  type ExecutionRow,
  INSERT_LAUNCH,
  INSERT_PENDING,
  keyValues,
  type LaunchRow,
  launchValues,
  pendingValues,
} from '../rows.ts'
import {zoning} from '../cluster/settings.ts'

/** An end for which a batch is loaded. */
export interface BatchEnd {
  readonly key: ExecutionKey
  /** Absent = the execution may not end in this batch. */
  readonly status?: FinalStatus
}

type EndingRow = Pick<
  LaunchRow,
  | 'group_id'
  | 'job_id'
  | 'job_name'
  | 'decision'
  | 'reason'
  | 'open'
  | 'retries_ended'
  | 'node_deaths'
  | 'launch_status'
  | 'closed_at'
  | 'root_group'
>

interface FinishJobRow {
  readonly id: number
  readonly name: string
  readonly retries: number
  readonly ephemeral: number
  readonly disabled: number
  readonly success_count: number
  readonly error_count: number
  readonly last_success: number | null
  readonly last_error: number | null
  readonly status: JobStatus
  readonly status_group: number
  readonly fail_streak: number | null
  readonly failing_since: number | null
  readonly typical_ms: number | null
  readonly watched: number | null
  readonly deleted_at: number | null
}

/** A batch with the scopes of notices, which are read in the same round trip. */
export interface LoadedBatch {
  readonly batch: FinishBatch
  readonly scopes: Scopes
}

/** Locks and loads the launches of these ends, the executions that the ends may change, and the jobs. */
export function* loadFinishBatch(tx: Transaction, ends: readonly BatchEnd[]): Query<LoadedBatch> {
  const groups = [...new Set(ends.map(({key}) => key.group))].toSorted((a, b) => a - b)
  // The launches are locked before their executions are looked up.
  const [launches, executions, scopes] = yield* together(
    oneEach<EndingRow>(
      `SELECT group_id, job_id, job_name, decision, reason, open, retries_ended, node_deaths,
        launch_status, closed_at, root_group FROM launches WHERE group_id = ?${tx.dialect.forUpdate}`,
      groups.map((group) => [group]),
    ),
    loadExecutions(tx, groups, ends),
    noticeScopes(),
  )
  const batch = new FinishBatch(tx.now)
  const found = launches.filter((row) => row !== null)
  launches.forEach((row, index) => {
    if (row === null) return
    const launch = {record: endingLaunch(row), ...executions[index]!, changed: false}
    batch.launches.set(row.group_id, launch)
  })
  const owners = [...new Set(found.map((row) => row.job_id))]
  const dependents = tx.dialect.locking ? yield* dependentIds(succeedingJobs(batch, ends)) : []
  const jobIds = [...new Set([...owners, ...dependents])].toSorted((a, b) => a - b)
  const jobs = yield* oneEach<FinishJobRow>(
    `SELECT id, name, retries, ephemeral, disabled, success_count, error_count, last_success,
      last_error, status, status_group, fail_streak, failing_since, typical_ms, watched, deleted_at
      FROM jobs WHERE id = ?${tx.dialect.forUpdate}`,
    jobIds.map((id) => [id]),
  )
  for (const row of jobs) if (row !== null) batch.jobs.set(row.id, batchJob(row))
  return {batch, scopes}
}

/** Jobs of the launches that may succeed in this batch: all executions have ended then, one of them well. */
function succeedingJobs(batch: FinishBatch, ends: readonly BatchEnd[]): number[] {
  const ended = new Set(ends.map(({key}) => executionId(key)))
  const well = new Set(ends.flatMap(({key, status}) => (status === 'succeeded' ? key.group : [])))
  const launches = [...batch.launches.values()].filter(({record, executions, hasOpenRest}) => {
    const others = executions.filter((each) => isOpen(each) && !ended.has(executionId(each.record)))
    return well.has(record.group) && !hasOpenRest && others.length === 0
  })
  return [...new Set(launches.map(({record}) => record.jobId))]
}

/**
 * Dependents, which may get a launch. They are locked with the other jobs, in one order: a concurrent
 * deletion would otherwise leave a request without a job.
 */
function* dependentIds(jobIds: readonly number[]): Query<number[]> {
  const rows = yield* each<{id: number}>(
    `SELECT child.id FROM jobs owner JOIN jobs child ON child.parent = owner.name
      AND child.parent <> '' AND child.deleted_at IS NULL WHERE owner.id = ?`,
    jobIds.map((id) => [id]),
  )
  return rows.flat().map(({id}) => id)
}

function endingLaunch(row: EndingRow): EndingLaunch {
  return {
    group: row.group_id,
    jobId: row.job_id,
    jobName: row.job_name,
    decision: row.decision,
    reason: row.reason,
    open: row.open === 1,
    retriesEnded: row.retries_ended === 1,
    nodeDeaths: row.node_deaths,
    status: row.launch_status,
    closedAt: row.closed_at,
    rootGroup: row.root_group,
  }
}

function batchJob(row: FinishJobRow): BatchJob {
  return {
    id: row.id,
    name: row.name,
    retries: row.retries,
    ephemeral: row.ephemeral === 1,
    disabled: row.disabled === 1,
    watched: row.watched === 1,
    counters: {
      successCount: row.success_count,
      errorCount: row.error_count,
      lastSuccess: row.last_success,
      lastError: row.last_error,
    },
    status: row.status,
    statusGroup: row.status_group,
    trend: {
      failStreak: row.fail_streak ?? 0,
      failingSince: row.failing_since,
      typicalMs: row.typical_ms,
    },
    live: row.deleted_at === null,
    changed: false,
    keptGroup: null,
    quarantinedBy: null,
  }
}

/** Executions of a launch up to which all are loaded: locking them costs less than further statements. */
const LOADED_WHOLE_MAX = 32

interface LoadedExecutions {
  readonly executions: BatchExecution[]
  /** Executions that were not loaded are pending or running. */
  readonly hasOpenRest: boolean
}

/**
 * Loads the executions that the ends need, per group, in order. A small launch is loaded whole, in one
 * statement. Only the executions that the ends change are loaded and locked in a large one: else the ends of
 * a launch on N nodes would lock N rows each. The rest is read, without a lock, when the launch may close.
 * The caller has locked the launches.
 */
function* loadExecutions(
  tx: Transaction,
  groups: readonly number[],
  ends: readonly BatchEnd[],
): Query<LoadedExecutions[]> {
  const rows = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE group_id = ?
      ORDER BY node_name, attempt LIMIT ${LOADED_WHOLE_MAX + 1}${tx.dialect.forUpdate}`,
    groups.map((group) => [group]),
  )
  const large = groups.filter((_group, index) => rows[index]!.length > LOADED_WHOLE_MAX)
  const parts = large.length === 0 ? new Map() : yield* loadParts(tx, large, ends)
  return groups.map(
    (group, index) =>
      parts.get(group) ?? {executions: rows[index]!.map(batchExecution), hasOpenRest: false},
  )
}

/**
 * Loads the ended executions with all attempts on their nodes, pending retries that the ends cancel, and all
 * executions of launches that close.
 */
function* loadParts(
  tx: Transaction,
  groups: readonly number[],
  ends: readonly BatchEnd[],
): Query<Map<number, LoadedExecutions>> {
  const loaded = new Map(groups.map((group) => [group, new Map<string, BatchExecution>()]))
  const take = (rows: readonly ExecutionRow[]) => {
    for (const row of rows) {
      const execution = batchExecution(row)
      const known = loaded.get(row.group_id)!
      const id = executionId(execution.record)
      if (!known.has(id)) known.set(id, execution)
    }
  }
  const own = ends.filter(({key}) => loaded.has(key.group))
  const nodes = new Map(own.map(({key: {group, node}}) => [`${group} ${node}`, [group, node]]))
  const onNodes = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE group_id = ? AND node_name = ?
      ORDER BY attempt${tx.dialect.forUpdate}`,
    [...nodes.values()].toSorted(byGroupAndNode),
  )
  take(onNodes.flat())
  // A cancellation ends the retries of the launch, and so may a node that died.
  const ending = own.filter(({status}) => status === 'cancelled' || status === 'lost')
  const retries = yield* each<ExecutionRow>(
    `SELECT ${EXECUTION_COLUMNS} FROM executions WHERE group_id = ? AND status = 'pending' AND attempt > 1
      ORDER BY node_name, attempt${tx.dialect.forUpdate}`,
    groupsOf(ending).map((group) => [group]),
  )
  take(retries.flat())
  const open = yield* openRest(loaded)
  // Final executions do not change, so they need no lock.
  const closing = groups.filter((group) => open.get(group) !== true)
  const died = groupsOf(own.filter(({status}) => status === 'lost'))
  const rest = yield* each<ExecutionRow>(
    // The rest of a launch is only read: its output lines are never written back.
    `SELECT ${EXECUTION_COLUMNS_BARE} FROM executions WHERE group_id = ?
      ORDER BY node_name, attempt`,
    [...new Set([...closing, ...died])].map((group) => [group]),
  )
  take(rest.flat())
  return new Map(
    groups.map((group) => {
      const executions = [...loaded.get(group)!.values()]
      return [group, {executions, hasOpenRest: open.get(group) === true}]
    }),
  )
}

/** True for each launch with pending or running executions that are not loaded. */
function* openRest(
  loaded: ReadonlyMap<number, ReadonlyMap<string, BatchExecution>>,
): Query<Map<number, boolean>> {
  const counts = [...loaded].map(([group, executions]) => {
    return {group, known: [...executions.values()].filter(isOpen).length}
  })
  // The scan stops at the first execution that is not loaded.
  const found = yield* each(
    `SELECT attempt FROM executions WHERE group_id = ? AND status IN ('pending', 'running') LIMIT ?`,
    counts.map(({group, known}) => [group, known + 1]),
  )
  return new Map(counts.map(({group, known}, index) => [group, found[index]!.length > known]))
}

/** True if it has not ended. */
function isOpen({record: {status}}: BatchExecution): boolean {
  return status === 'pending' || status === 'running'
}

function groupsOf(ends: readonly BatchEnd[]): number[] {
  return [...new Set(ends.map(({key}) => key.group))].toSorted((a, b) => a - b)
}

type GroupAndNode = (string | number)[]

/** The order in which all transactions lock executions. */
function byGroupAndNode([aGroup, aNode]: GroupAndNode, [bGroup, bNode]: GroupAndNode): number {
  if (aGroup !== bGroup) return Number(aGroup) - Number(bGroup)
  return aNode! < bNode! ? -1 : 1
}

function batchExecution(row: ExecutionRow): BatchExecution {
  return {
    record: executionOf(row),
    nodeId: row.node_id,
    token: row.claim_token,
    incarnation: row.incarnation,
    cancelReason: row.cancel_reason,
    change: 'none',
  }
}

const END = `UPDATE executions SET status = ?, started_at = ?, finished_at = ?, exit_code = ?,
  reason = ?, output_head = ?, output_foot = ?, output_bytes = ?, late_result = ?,
  cancel_requested_at = ? WHERE ${BY_KEY}`
const CLOSE = `UPDATE launches SET open = ?, retries_ended = ?, node_deaths = ?, launch_status = ?,
  closed_at = ? WHERE group_id = ?`
const COUNT = `UPDATE jobs SET success_count = ?, error_count = ?, last_success = ?, last_error = ?,
  status = ?, status_group = ?, fail_streak = ?, failing_since = ?, typical_ms = ? WHERE id = ?`

export function* writeFinishBatch(tx: Transaction, {batch, scopes}: LoadedBatch): Query<void> {
  yield* writeExecutions(batch)
  const launches = [...batch.launches.values()].filter(({changed}) => changed)
  yield* sendEach(
    CLOSE,
    launches.map(({record: {open, retriesEnded, nodeDeaths, status, closedAt, group}}) => {
      return [open ? 1 : 0, retriesEnded ? 1 : 0, nodeDeaths, status, closedAt, group]
    }),
  )
  const jobs = [...batch.jobs.values()].filter(({changed}) => changed)
  yield* sendEach(
    COUNT,
    jobs.map(({id, counters, status, statusGroup, trend}) => {
      const {successCount, errorCount, lastSuccess, lastError} = counters
      const {failStreak, failingSince, typicalMs} = trend
      return [
        successCount,
        errorCount,
        lastSuccess,
        lastError,
        status,
        statusGroup,
        failStreak,
        failingSince,
        typicalMs,
        id,
      ]
    }),
  )
  yield* recordEnds(tx, batch, scopes)
  yield* writeDependents(tx, batch.ended)
  for (const job of jobs) {
    if (job.keptGroup !== null)
      yield* softDelete(tx, job.id, {why: 'ephemeral', keptGroup: job.keptGroup})
    else if (job.quarantinedBy !== null) yield* writeQuarantine(tx, job, job.quarantinedBy, scopes)
  }
  // Last, so that the row of today, which every server writes, is locked only for the commit.
  yield* countDays(batch)
}

function* writeExecutions(batch: FinishBatch): Query<void> {
  const updates: Values[] = []
  const inserts: Values[] = []
  for (const {executions} of batch.launches.values()) {
    for (const {record, nodeId, change} of executions) {
      // A retry cancelled by a later end of the same batch is inserted first and ended by the update.
      if (change === 'insert') inserts.push(pendingValues({...record, nodeId}))
      const ended = change === 'update' || (change === 'insert' && record.status !== 'pending')
      if (ended)
        updates.push([
          record.status,
          record.startedAt,
          record.finishedAt,
          record.exitCode,
          record.reason,
          record.outputHead,
          record.outputFoot,
          record.outputBytes,
          record.lateResult,
          record.cancelRequestedAt,
          ...keyValues(record),
        ])
    }
  }
  yield* sendEach(INSERT_PENDING, inserts)
  yield* sendEach(END, updates)
  if (batch.removed.length === 0) return
  yield* sendEach(`DELETE FROM executions WHERE ${BY_KEY}`, batch.removed.map(keyValues))
  yield* dropOutput(batch.removed)
}

function* countDays(batch: FinishBatch): Query<void> {
  const rows = [...batch.days].toSorted(([a], [b]) => a - b)
  yield* sendEach(
    `INSERT INTO statistics (day, success_count, failed_count) VALUES (?, ?, ?)
      ON CONFLICT (day) DO UPDATE SET success_count = statistics.success_count + excluded.success_count,
      failed_count = statistics.failed_count + excluded.failed_count`,
    rows.map(([day, {success, failed}]) => [day, success, failed]),
  )
}

/** Disables a job whose launches keep killing nodes, as an edit would, and adds a launch row that says so. */
function* writeQuarantine(
  tx: Transaction,
  {id, name}: BatchJob,
  group: number,
  scopes: Scopes,
): Query<void> {
  const [job] = yield* loadJobs([id])
  assert(job !== null && job !== undefined, `${name} is locked and live`)
  const {spec, reason, detail} = quarantine(job.spec, group)
  const {zone, changes} = yield* zoning()
  const change = planDefinition(job, spec, tx.now, zone, false, changes)
  yield* applyChanges(tx, [{existing: job, spec, change}], scopes)
  const [number] = yield* tx.dialect.takeNumbers('launch', 1)
  yield* recordChange(tx, {
    action: 'job.toggle',
    targetType: 'job',
    target: name,
    detail,
    ...replacedBy(job, change.revision),
  })
  const row = newLaunch({id, name}, number!, tx.now, {
    cause: 'manual',
    decision: 'skipped',
    reason,
    scheduledAt: tx.now,
    decidedAt: tx.now,
  })
  yield* send(INSERT_LAUNCH, launchValues(row))
}
