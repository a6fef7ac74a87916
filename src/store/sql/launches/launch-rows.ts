/**
 * Rows of launches and their executions: planned times (merging neighbours), requests, and the search for a
 * launch that a new one must not overlap. Decides nothing.
 */
import type {JobRecord} from '../../../core/job.ts'
import type {LaunchCause, LaunchRecord, StoredLaunch} from '../../../core/launch-record.ts'
import {scheduleOf} from '../../../core/next-time.ts'
import {each, one, type Query, send, sendEach, type Transaction, type Values} from '../query.ts'
import {
  INSERT_LAUNCH,
  INSERT_PENDING,
  LAUNCH_COLUMNS,
  launchOf,
  type LaunchRow,
  launchValues,
  type PendingExecution,
  pendingValues,
} from '../rows.ts'

export interface JobIdentity {
  readonly id: number
  readonly name: string
}

/** A new row: nothing has happened to it yet. */
export function newLaunch(
  job: JobIdentity,
  group: number,
  storedAt: number,
  fields: Pick<LaunchRecord, 'cause' | 'decision' | 'scheduledAt'> & Partial<LaunchRecord>,
): LaunchRecord {
  return {
    group,
    jobId: job.id,
    jobName: job.name,
    reason: '',
    scheduledUntil: fields.scheduledAt,
    count: 1,
    storedAt,
    decidedAt: null,
    term: null,
    forced: false,
    parentGroup: null,
    open: fields.decision === 'pending' || fields.decision === 'launched',
    retriesEnded: false,
    nodeDeaths: 0,
    status: null,
    closedAt: null,
    rootGroup: null,
    ...fields,
  }
}

export interface RequestRow {
  readonly job: JobIdentity
  readonly cause: Exclude<LaunchCause, 'schedule'>
  readonly forced: boolean
}

/** Stores a request to launch under a number taken for it. */
export function* insertRequest(tx: Transaction, request: RequestRow, group: number): Query<void> {
  const {job, cause, forced} = request
  const row = {cause, forced, decision: 'pending', scheduledAt: tx.now} as const
  yield* send(INSERT_LAUNCH, launchValues(newLaunch(job, group, tx.now, row)))
}

/** Decided planned times of one job, oldest first, to be written. */
export interface PlannedRows {
  readonly job: JobIdentity
  readonly rows: readonly StoredLaunch[]
}

export interface WrittenRow {
  readonly launch: LaunchRecord
  /** False = a row that was there now covers one more planned time, or was decided. */
  readonly isNew: boolean
  readonly targets: StoredLaunch['targets']
}

const NEWEST_PLANNED = `SELECT ${LAUNCH_COLUMNS} FROM launches
  WHERE job_id = ? AND cause = 'schedule' ORDER BY scheduled_at DESC LIMIT 1`
const EXTEND = `UPDATE launches SET scheduled_until = ?, planned_count = ?, decided_at = ?, term = ?
  WHERE group_id = ?`

/**
 * Writes planned rows of several jobs, and an execution for each target. A row without a launch is merged
 * into the row before it if decision and reason are equal. Returns the stored rows: extended ones first, then
 * new ones in order.
 */
export function* writePlanned(
  tx: Transaction,
  planned: readonly PlannedRows[],
  term: number | null,
): Query<WrittenRow[]> {
  const merging = planned.filter(({rows}) => rows[0] !== undefined && isMerged(rows[0]))
  const newest = yield* each<LaunchRow>(
    NEWEST_PLANNED,
    merging.map(({job}) => [job.id]),
  )
  const before = new Map<number, LaunchRecord>()
  newest.forEach(([row]) => row !== undefined && before.set(row.job_id, launchOf(row)))
  const needed = planned.reduce((sum, {rows}) => sum + rows.length, 0)
  const groups = needed === 0 ? [] : yield* tx.dialect.takeNumbers('launch', needed)

  const extended = new Map<number, LaunchRecord>()
  const inserted = new Map<number, WrittenRow>()
  let used = 0
  for (const {job, rows} of planned) {
    let last = before.get(job.id) ?? null
    for (const row of rows) {
      const merged = last === null ? null : extendInto(last, row, tx.now, term)
      if (merged === null) {
        const fields = decided(row, tx.now, term)
        last = newLaunch(job, groups[used]!, tx.now, {cause: 'schedule', ...fields})
        used += 1
        inserted.set(last.group, {launch: last, isNew: true, targets: row.targets})
      } else {
        last = merged
        if (inserted.has(last.group))
          inserted.set(last.group, {launch: last, isNew: true, targets: []})
        else extended.set(last.group, last)
      }
    }
  }
  yield* sendEach(EXTEND, [...extended.values()].map(extendValues))
  const fresh = [...inserted.values()]
  yield* sendEach(
    INSERT_LAUNCH,
    fresh.map(({launch}) => launchValues(launch)),
  )
  yield* insertTargets(tx, fresh)
  const known = [...extended.values()].map((launch) => ({launch, isNew: false, targets: []}))
  return [...known, ...fresh]
}

function extendValues(launch: LaunchRecord): Values {
  return [launch.scheduledUntil, launch.count, launch.decidedAt, launch.term, launch.group]
}

function decided(
  row: StoredLaunch,
  now: number,
  term: number | null,
): Pick<
  LaunchRecord,
  'decision' | 'reason' | 'scheduledAt' | 'scheduledUntil' | 'count' | 'decidedAt' | 'term'
> {
  const {decision, reason, scheduledAt, scheduledUntil, count} = row
  const pending = decision === 'pending'
  const decidedAt = pending ? null : now
  return {
    decision,
    reason,
    scheduledAt,
    scheduledUntil,
    count,
    decidedAt,
    term: pending ? null : term,
  }
}

function isMerged(row: Pick<StoredLaunch, 'decision'>): boolean {
  return row.decision === 'skipped' || row.decision === 'missed'
}

/** `last` extended by the following `row`; `null` if they differ in decision or reason, or one launched. */
export function extendInto(
  last: LaunchRecord,
  row: Pick<StoredLaunch, 'decision' | 'reason' | 'scheduledAt' | 'scheduledUntil' | 'count'>,
  now: number,
  term: number | null,
): LaunchRecord | null {
  const follows = last.scheduledUntil < row.scheduledAt
  const same = last.decision === row.decision && last.reason === row.reason
  if (!isMerged(row) || !follows || !same) return null
  const count = last.count + row.count
  return {...last, scheduledUntil: row.scheduledUntil, count, decidedAt: now, term}
}

/** Inserts a pending execution for each target of launched rows. */
export function* insertTargets(tx: Transaction, rows: readonly WrittenRow[]): Query<void> {
  const pending: PendingExecution[] = []
  for (const {launch, targets} of rows) {
    targets.forEach(({nodeId, nodeName}, slot) => {
      const {group, jobId, jobName} = launch
      const times = {createdAt: tx.now, notBefore: tx.now}
      pending.push({group, node: nodeName, attempt: 1, jobId, jobName, nodeId, slot, ...times})
    })
  }
  yield* sendEach(INSERT_PENDING, pending.map(pendingValues))
}

/**
 * Takes back the rows of planned times after now, which a clock far ahead has decided: they are planned
 * again. Rows that did not launch are deleted, or cut to end now. A launch that did run stays, but no
 * planned time is its cause any more.
 */
export function* retractPlanned(
  tx: Transaction,
  jobs: readonly JobRecord[],
  defaultZone: string,
): Query<void> {
  const ids = jobs.map(({id}) => [id, tx.now])
  yield* sendEach(
    `DELETE FROM launches WHERE job_id = ? AND cause = 'schedule' AND scheduled_at > ?
      AND decision <> 'launched'`,
    ids,
  )
  yield* sendEach(
    `UPDATE launches SET cause = 'manual' WHERE job_id = ? AND cause = 'schedule'
      AND scheduled_at > ?`,
    ids,
  )
  const newest = yield* each<LaunchRow>(
    NEWEST_PLANNED,
    jobs.map(({id}) => [id]),
  )
  const cut = jobs.flatMap((job, index): Values[] => {
    const row = newest[index]?.[0]
    if (row === undefined || row.scheduled_until <= tx.now) return []
    const times = scheduleOf(job.spec, job.anchorAt, defaultZone)
    const until = Math.max(row.scheduled_at, times?.previous(tx.now + 1) ?? row.scheduled_at)
    const count = Math.max(1, times?.count(row.scheduled_at, tx.now + 1) ?? 1)
    return [[until, count, row.group_id]]
  })
  yield* sendEach(
    `UPDATE launches SET scheduled_until = ?, planned_count = ? WHERE group_id = ?`,
    cut,
  )
  yield* sendEach(
    `UPDATE jobs SET decided_until = ? WHERE id = ?`,
    jobs.map(({id}) => [tx.now, id]),
  )
}

const OPEN_OF_NAME = `SELECT group_id FROM launches WHERE job_name = ? AND open = 1`
const IN_THE_WAY = `${OPEN_OF_NAME} AND (decision = 'launched' OR cause = 'schedule')
  ORDER BY group_id LIMIT 1`

/**
 * The oldest open launch of the job, undecided requests included. If it has none, the oldest of a deleted
 * job of the same name (`isOwn` false), which no reader can see.
 */
export function* firstOpen({
  id,
  spec: {name},
}: JobRecord): Query<{readonly group: number; readonly isOwn: boolean} | null> {
  const row = yield* one<{group_id: number; job_id: number}>(
    `SELECT group_id, job_id FROM launches WHERE job_name = ? AND open = 1
      ORDER BY CASE WHEN job_id = ? THEN 0 ELSE 1 END, group_id LIMIT 1`,
    [name, id],
  )
  return row === null ? null : {group: row.group_id, isOwn: row.job_id === id}
}

/** Oldest open launch of each name that blocks a planned time: launched, or a planned time itself. */
export function* inTheWay(names: readonly string[]): Query<(number | null)[]> {
  const rows = yield* each<{group_id: number}>(
    IN_THE_WAY,
    names.map((name) => [name]),
  )
  return rows.map(([row]) => row?.group_id ?? null)
}

const IN_THE_WAY_OF_REQUEST = `${OPEN_OF_NAME} AND group_id <> ?
  AND (decision = 'launched' OR (cause = 'schedule' AND group_id < ?)) ORDER BY group_id LIMIT 1`

/** Oldest other launch of the name of each pending row that blocks it. */
export function* inTheWayOfRequests(
  requests: readonly {readonly name: string; readonly group: number}[],
): Query<(number | null)[]> {
  const rows = yield* each<{group_id: number}>(
    IN_THE_WAY_OF_REQUEST,
    requests.map(({name, group}) => [name, group, group]),
  )
  return rows.map(([row]) => row?.group_id ?? null)
}
