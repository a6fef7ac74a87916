/**
 * Rows for metrics: members and their load, sizes, and the last runs of some jobs. Every list has a limit.
 * It reads no history beyond the last launch of each listed job.
 */
import {isPresent, type MemberStatus} from '../../../core/node.ts'
import type {JobUsage, Usage, UsageRequest} from '../../../ports/history-store.ts'
import {likePattern} from '../jobs/name-filter.ts'
import {all, one, type Query, together, type Transaction, type Value} from '../query.ts'

/** Size of the store; SQLite's write-ahead log is left out. */
const STORE_BYTES = {
  sqlite: `(SELECT p.page_count * s.page_size FROM pragma_page_count() p, pragma_page_size() s)`,
  postgres: `pg_database_size(current_database())`,
}

export function* usage(tx: Transaction, request: UsageRequest): Query<Usage> {
  const [sizes, members, loads, jobs] = yield* together(
    one<
      Pick<Usage, 'disabled'> & {
        output_bytes: number
        store_bytes: number
        notices_waiting: number
        incidents_open: number
      }
    >(
      `SELECT (SELECT count(*) FROM jobs WHERE deleted_at IS NULL AND disabled = 1) AS disabled,
        (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM output_sizes) AS output_bytes,
        (SELECT count(*) FROM notice_messages WHERE message_state = 'waiting'
          AND (message_attempt > 0 OR send_at <= ?)) AS notices_waiting,
        (SELECT count(*) FROM notice_incidents WHERE incident_state = 'open') AS incidents_open,
        ${STORE_BYTES[tx.dialect.engine]} AS store_bytes`,
      [tx.now],
    ),
    all<MemberRow>(
      `SELECT id, name, status, runs, slots, cordoned_at FROM members ORDER BY name, id`,
    ),
    // Each half reads its own partial index.
    all<{node_id: string; status: 'pending' | 'running'; count: number}>(
      `SELECT node_id, status, count(*) AS count FROM executions WHERE status = 'pending'
        GROUP BY node_id, status
       UNION ALL SELECT node_id, status, count(*) AS count FROM executions WHERE status = 'running'
        GROUP BY node_id, status`,
    ),
    listedJobs(request),
  )
  const {disabled, output_bytes: outputBytes, store_bytes: storeBytes} = sizes!
  const counts: Record<MemberStatus, number> = {alive: 0, leaving: 0, left: 0, failed: 0}
  for (const {status} of members) counts[status] += 1
  return {
    disabled,
    outputBytes,
    storeBytes,
    noticesWaiting: sizes!.notices_waiting,
    incidentsOpen: sizes!.incidents_open,
    members: counts,
    ...nodesOf(members, loads, request.nodesMax),
    ...jobs,
  }
}

interface MemberRow {
  readonly id: string
  readonly name: string
  readonly status: MemberStatus
  readonly runs: number
  readonly slots: number
  readonly cordoned_at: number | null
}

/** Nodes that run jobs and are present. */
function nodesOf(
  members: readonly MemberRow[],
  loads: readonly {node_id: string; status: 'pending' | 'running'; count: number}[],
  nodesMax: number,
): Pick<Usage, 'nodes' | 'nodesOmitted'> {
  const present = members.filter((member) => member.runs === 1 && isPresent(member))
  const count = new Map(loads.map((load) => [`${load.status} ${load.node_id}`, load.count]))
  return {
    nodes: present.slice(0, nodesMax).map(({id, name, slots, cordoned_at: cordonedAt}) => ({
      name,
      slots,
      isCordoned: cordonedAt !== null,
      running: count.get(`running ${id}`) ?? 0,
      pending: count.get(`pending ${id}`) ?? 0,
    })),
    nodesOmitted: Math.max(0, present.length - nodesMax),
  }
}

/** Enabled jobs whose names match one of the patterns, by name. */
function* listedJobs({
  jobPatterns,
  jobsMax,
}: UsageRequest): Query<Pick<Usage, 'listedJobs' | 'jobsOmitted'>> {
  if (jobPatterns.length === 0) return {listedJobs: [], jobsOmitted: 0}
  const names = jobPatterns.map((pattern) => matching(pattern))
  const where = `deleted_at IS NULL AND disabled = 0 AND (${names.map(({sql}) => sql).join(' OR ')})`
  const values = names.flatMap((name) => name.values)
  const rows = yield* all<JobRow>(
    `SELECT name, created_at, last_success, status, (SELECT max(e.finished_at) - min(e.started_at)
        FROM executions e WHERE e.group_id = status_group AND e.job_id = jobs.id) AS duration
      FROM jobs WHERE ${where} ORDER BY name LIMIT ?`,
    [...values, jobsMax + 1],
  )
  const jobs = rows.slice(0, jobsMax).map(jobUsage)
  if (rows.length <= jobsMax) return {listedJobs: jobs, jobsOmitted: 0}
  const counted = yield* one<{count: number}>(
    `SELECT count(*) AS count FROM jobs WHERE ${where}`,
    values,
  )
  return {listedJobs: jobs, jobsOmitted: counted!.count - jobs.length}
}

interface JobRow {
  readonly name: string
  readonly created_at: number
  readonly last_success: number | null
  readonly status: string
  readonly duration: number | null
}

function jobUsage(row: JobRow): JobUsage {
  return {
    name: row.name,
    createdAt: row.created_at,
    lastSuccessAt: row.last_success,
    lastDurationMs: row.duration,
    hasSucceeded: row.status === '' ? null : row.status === 'success',
  }
}

/** The text before the first `*` is a range of the index of names. */
function matching(pattern: string): {readonly sql: string; readonly values: readonly Value[]} {
  const [prefix = ''] = pattern.split('*')
  if (prefix === pattern) return {sql: 'name = ?', values: [pattern]}
  return {
    sql: `(name >= ? AND name < ? AND name LIKE ? ESCAPE '\\')`,
    values: [prefix, `${prefix}\u{10FFFF}`, likePattern(pattern)],
  }
}
