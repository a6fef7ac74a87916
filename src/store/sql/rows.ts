/** Converts stored rows to records of the core and back: the only place that maps columns to fields. */
import type {ExecutionKey, ExecutionRecord, ExecutionStatus} from '../../core/execution.ts'
import type {JobRecord, JobSpec, JobStatus, PlannedJob} from '../../core/job.ts'
import {specOf} from '../../core/job-fields.ts'
import type {
  LaunchCause,
  LaunchDecision,
  LaunchRecord,
  LaunchStatus,
} from '../../core/launch-record.ts'
import type {MemberRecord, MemberStatus} from '../../core/node.ts'
import type {Values} from './query.ts'

export interface JobRow {
  readonly id: number
  readonly name: string
  readonly revision: number
  readonly next_at: number | null
  readonly decided_until: number | null
  readonly anchor_at: number
  readonly success_count: number
  readonly error_count: number
  readonly last_success: number | null
  readonly last_error: number | null
  readonly status: JobStatus
  readonly created_at: number
  readonly updated_at: number
  readonly definition: string
  /** Names of the dependents, sorted, joined by commas (which no name holds); `null` = none. */
  readonly dependents: string | null
}

/** Select list of a `JobRow`. */
export const JOB_COLUMNS = `j.id, j.name, j.revision, j.next_at, j.decided_until, j.anchor_at,
  j.success_count, j.error_count, j.last_success, j.last_error, j.status, j.created_at, j.updated_at,
  d.definition,
  (SELECT string_agg(c.name, ',' ORDER BY c.name) FROM jobs c
    WHERE c.parent = j.name AND c.deleted_at IS NULL AND c.parent <> '') AS dependents`
export const FROM_JOBS = 'FROM jobs j JOIN definitions d ON d.job_id = j.id'
/** A `WHERE` over `j` follows. */
export const SELECT_JOB = `SELECT ${JOB_COLUMNS} ${FROM_JOBS}`

export function jobOf(row: JobRow): JobRecord {
  return {
    ...plannedJobOf(row),
    counters: {
      successCount: row.success_count,
      errorCount: row.error_count,
      lastSuccess: row.last_success,
      lastError: row.last_error,
    },
    status: row.status,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    dependentJobs: row.dependents === null ? [] : row.dependents.split(','),
  }
}

export type PlannedJobRow = Pick<
  JobRow,
  'id' | 'name' | 'revision' | 'next_at' | 'decided_until' | 'anchor_at' | 'definition'
>

/** Select list of a `PlannedJobRow`. */
export const PLANNED_JOB_COLUMNS = `j.id, j.name, j.revision, j.next_at, j.decided_until, j.anchor_at,
  d.definition`
/** A `WHERE` over `j` follows. */
export const SELECT_PLANNED_JOB = `SELECT ${PLANNED_JOB_COLUMNS} ${FROM_JOBS}`

export function plannedJobOf(row: PlannedJobRow): PlannedJob {
  return {
    id: row.id,
    spec: specOf(row.definition),
    revision: row.revision,
    nextAt: row.next_at,
    decidedUntil: row.decided_until,
    anchorAt: row.anchor_at,
  }
}

/** Jobs of these rows, but for those whose definition is not JSON. */
export function readableJobs<Row extends Pick<PlannedJobRow, 'id' | 'name'>, Job>(
  rows: readonly Row[],
  read: (row: Row) => Job,
): {
  readonly jobs: Job[]
  readonly damaged: {readonly id: number; readonly name: string; readonly problem: string}[]
} {
  const jobs: Job[] = []
  const damaged: {id: number; name: string; problem: string}[] = []
  for (const row of rows) {
    try {
      jobs.push(read(row))
    } catch (error) {
      damaged.push({
        id: row.id,
        name: row.name,
        problem: `the definition is damaged: ${String(error)}`,
      })
    }
  }
  return {jobs, damaged}
}

/** The text that the search for a substring looks in. */
export function searchText(spec: JobSpec): string {
  return `${spec.name}\n${spec.displayname}`.toLowerCase()
}

export interface LaunchRow {
  readonly group_id: number
  readonly job_id: number
  readonly job_name: string
  readonly cause: LaunchCause
  readonly decision: LaunchDecision
  readonly reason: string
  readonly scheduled_at: number
  readonly scheduled_until: number
  readonly planned_count: number
  readonly stored_at: number
  readonly decided_at: number | null
  readonly term: number | null
  readonly forced: number
  readonly parent_group: number | null
  readonly open: number
  readonly retries_ended: number
  readonly node_deaths: number
  readonly launch_status: LaunchStatus | null
  readonly closed_at: number | null
  readonly root_group: number | null
}

export const LAUNCH_COLUMNS = `group_id, job_id, job_name, cause, decision, reason, scheduled_at,
  scheduled_until, planned_count, stored_at, decided_at, term, forced, parent_group, open,
  retries_ended, node_deaths, launch_status, closed_at, root_group`

export function launchOf(row: LaunchRow): LaunchRecord {
  return {
    group: row.group_id,
    jobId: row.job_id,
    jobName: row.job_name,
    cause: row.cause,
    decision: row.decision,
    reason: row.reason,
    scheduledAt: row.scheduled_at,
    scheduledUntil: row.scheduled_until,
    count: row.planned_count,
    storedAt: row.stored_at,
    decidedAt: row.decided_at,
    term: row.term,
    forced: row.forced === 1,
    parentGroup: row.parent_group,
    open: row.open === 1,
    retriesEnded: row.retries_ended === 1,
    nodeDeaths: row.node_deaths,
    status: row.launch_status,
    closedAt: row.closed_at,
    rootGroup: row.root_group,
  }
}

/** A new launch, which has not ended: its status is written when it closes. */
export const INSERT_LAUNCH = `INSERT INTO launches (group_id, job_id, job_name, cause, decision, reason,
  scheduled_at, scheduled_until, planned_count, stored_at, decided_at, term, forced, parent_group, open,
  retries_ended, node_deaths, root_group)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

/** Values of `INSERT_LAUNCH`. */
export function launchValues(launch: LaunchRecord): Values {
  return [
    launch.group,
    launch.jobId,
    launch.jobName,
    launch.cause,
    launch.decision,
    launch.reason,
    launch.scheduledAt,
    launch.scheduledUntil,
    launch.count,
    launch.storedAt,
    launch.decidedAt,
    launch.term,
    launch.forced ? 1 : 0,
    launch.parentGroup,
    launch.open ? 1 : 0,
    launch.retriesEnded ? 1 : 0,
    launch.nodeDeaths,
    launch.rootGroup,
  ]
}

export interface ExecutionRow {
  readonly group_id: number
  readonly node_name: string
  readonly attempt: number
  readonly job_id: number
  readonly job_name: string
  readonly node_id: string
  readonly slot: number
  readonly status: ExecutionStatus
  readonly revision: number
  readonly created_at: number
  readonly not_before: number
  readonly started_at: number | null
  readonly finished_at: number | null
  readonly cancel_requested_at: number | null
  readonly exit_code: number | null
  readonly reason: string
  readonly output_head: string
  readonly output_foot: string
  readonly output_bytes: number
  readonly late_result: string
  readonly claim_token: string
  readonly incarnation: string
  readonly cancel_reason: string | null
}

const EXECUTION_COLUMN_LIST = [
  'group_id',
  'node_name',
  'attempt',
  'job_id',
  'job_name',
  'node_id',
  'slot',
  'status',
  'revision',
  'created_at',
  'not_before',
  'started_at',
  'finished_at',
  'cancel_requested_at',
  'exit_code',
  'reason',
  'output_head',
  'output_foot',
  'output_bytes',
  'late_result',
  'claim_token',
  'incarnation',
  'cancel_reason',
] as const satisfies readonly (keyof ExecutionRow)[]

export const EXECUTION_COLUMNS = EXECUTION_COLUMN_LIST.join(', ')
/** The same without the lines before and after the output, which may be 64 KiB each. */
export const EXECUTION_COLUMNS_BARE = EXECUTION_COLUMN_LIST.map((name) =>
  name === 'output_head' || name === 'output_foot' ? `'' AS ${name}` : name,
).join(', ')
/** The same columns of a table with the alias `e`. */
export const EXECUTION_COLUMNS_E = EXECUTION_COLUMN_LIST.map((name) => `e.${name}`).join(', ')

export function executionOf(row: ExecutionRow): ExecutionRecord {
  return {
    group: row.group_id,
    node: row.node_name,
    attempt: row.attempt,
    jobId: row.job_id,
    jobName: row.job_name,
    status: row.status,
    slot: row.slot,
    revision: row.revision,
    createdAt: row.created_at,
    notBefore: row.not_before,
    startedAt: row.started_at,
    finishedAt: row.finished_at,
    cancelRequestedAt: row.cancel_requested_at,
    exitCode: row.exit_code,
    reason: row.reason,
    outputHead: row.output_head,
    outputFoot: row.output_foot,
    outputBytes: row.output_bytes,
    lateResult: row.late_result,
  }
}

/** A pending execution; `pendingValues` gives its values. */
export const INSERT_PENDING = `INSERT INTO executions (group_id, node_name, attempt, job_id, job_name,
  node_id, slot, created_at, not_before, status, revision, reason, output_head, output_foot,
  output_bytes, late_result, claim_token, incarnation)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', 0, '', '', '', 0, '', '', '')`

export interface PendingExecution extends ExecutionKey {
  readonly jobId: number
  readonly jobName: string
  readonly nodeId: string
  readonly slot: number
  readonly createdAt: number
  readonly notBefore: number
}

export function pendingValues(pending: PendingExecution): Values {
  const {group, node, attempt, jobId, jobName, nodeId, slot, createdAt, notBefore} = pending
  return [group, node, attempt, jobId, jobName, nodeId, slot, createdAt, notBefore]
}

/** The condition for an execution's key; `keyValues` has its values. */
export const BY_KEY = 'group_id = ? AND node_name = ? AND attempt = ?'

export function keyValues(key: ExecutionKey): [number, string, number] {
  return [key.group, key.node, key.attempt]
}

/** The key as a text, for maps in memory. */
export function keyText(key: ExecutionKey): string {
  return `${key.group}-${key.node}-${key.attempt}`
}

export function keyOf(row: Pick<ExecutionRow, 'group_id' | 'node_name' | 'attempt'>): ExecutionKey {
  return {group: row.group_id, node: row.node_name, attempt: row.attempt}
}

export interface MemberRow {
  readonly id: string
  readonly name: string
  readonly incarnation: string
  readonly address: string
  readonly port: number
  readonly tags: string
  readonly server: number
  readonly runs: number
  readonly version: string
  readonly slots: number
  readonly status: MemberStatus
  readonly started_at: number
  readonly heartbeat_at: number
  readonly cordoned_at: number | null
  readonly drain_until: number | null
}

export function memberOf(row: MemberRow): MemberRecord {
  return {
    id: row.id,
    name: row.name,
    incarnation: row.incarnation,
    address: row.address,
    port: row.port,
    tags: JSON.parse(row.tags) as Record<string, string>,
    server: row.server === 1,
    runs: row.runs === 1,
    version: row.version,
    slots: row.slots,
    status: row.status,
    startedAt: row.started_at,
    heartbeatAt: row.heartbeat_at,
    cordonedAt: row.cordoned_at,
    drainUntil: row.drain_until,
  }
}
