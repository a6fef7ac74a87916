/**
 * Upkeep of plans by the leader: plans jobs again after a change of the time zone data, ends waits that a
 * wrong clock began in the future, and records jobs that cannot be decided.
 */
import type {JobFault} from '../../../core/launch-record.ts'
import {
  CLOCK_WRONG_MS,
  dueRow,
  hasOwnZone,
  nextPlanned,
  replanned,
} from '../../../core/next-time.ts'
import {formatDuration} from '../../../lib/duration.ts'
import type {JobStore} from '../../../ports/job-store.ts'
import type {FutureWaits, LeaderStore} from '../../../ports/leader-store.ts'
import {recordChange} from '../access/audit.ts'
import {recordMissed} from './jobs.ts'
import {newLaunch} from '../launches/launch-rows.ts'
import {endEvents, recordEvent} from '../cluster/cluster-events.ts'
import {fence} from '../cluster/lease.ts'
import {all, each, one, oneEach, type Query, type Transaction} from '../query.ts'
import {INSERT_LAUNCH, jobOf, type JobRow, launchValues, readableJobs, SELECT_JOB} from '../rows.ts'
import {FIRING_PAUSED, metaValue, putMeta, timezone, zoning} from '../cluster/settings.ts'

/** Version of the time zone data that planned `next` of all jobs. Absent = an earlier release did. */
const ZONE_DATA = 'zone_data'

/** Stands for no `next` in comparisons; no instant is as early. */
const NONE = Number.MIN_SAFE_INTEGER

export function* replan(
  tx: Transaction,
  {term, zoneData, after, limit}: Parameters<LeaderStore['replan']>[0],
): Query<number | null> {
  yield* fence(tx, term)
  if ((yield* metaValue(ZONE_DATA)) === zoneData) return null
  // Rows are not locked: nearly all stay as they are, and some may be locked for long.
  const rows = yield* all<JobRow>(
    `${SELECT_JOB} WHERE j.id > ? AND j.deleted_at IS NULL AND j.disabled = 0 AND j.parent = ''
      ORDER BY j.id LIMIT ?`,
    [after, limit],
  )
  const {zone, progress} = yield* zoning()
  const plannedTo = progress === null ? Infinity : progress.after
  const moved = readableJobs(rows, jobOf).jobs.flatMap((job) => {
    // `planZone` plans it after a change of the default zone, with the same data.
    if (job.id > plannedTo && !hasOwnZone(job.spec)) return []
    const nextAt = replanned(job, tx.now, zone)
    return nextAt === job.nextAt ? [] : [[nextAt, job.id, job.revision, job.nextAt ?? NONE]]
  })
  // Compare-and-set: an edit meanwhile has planned the job itself.
  yield* each(
    `UPDATE jobs SET next_at = ? WHERE id = ? AND revision = ? AND COALESCE(next_at, ${NONE}) = ?`,
    moved,
  )
  if (rows.length === limit) return rows.at(-1)!.id
  yield* putMeta(ZONE_DATA, zoneData)
  return null
}

/**
 * Plans a page of jobs from now on. Their due times are recorded as missed: what became of them after the
 * backup is not known. Returns the cursor of the next page; `null` = this was the last.
 */
export function* planFromNow(tx: Transaction, after: number, limit: number): Query<number | null> {
  const zone = yield* timezone()
  // The definitions are locked too: after a wait, PostgreSQL reads again only what a statement locks.
  const rows = yield* all<JobRow>(
    `${SELECT_JOB} WHERE j.id > ? AND j.deleted_at IS NULL ORDER BY j.id LIMIT ?${tx.dialect.forUpdate}`,
    [after, limit],
  )
  const {jobs} = readableJobs(rows, jobOf)
  yield* recordMissed(
    tx,
    jobs.map((job) => ({job, rows: dueRow(job, tx.now, zone, 'restored')})),
  )
  yield* each(
    `UPDATE jobs SET next_at = ? WHERE id = ?`,
    jobs.map(({id, spec, anchorAt, decidedUntil}) => {
      return [nextPlanned(spec, anchorAt, Math.max(tx.now, decidedUntil ?? -Infinity), zone), id]
    }),
  )
  return rows.length < limit ? null : rows.at(-1)!.id
}

export function* resumeFiring(
  tx: Transaction,
  {after, limit, actor}: Parameters<JobStore['resumeFiring']>[0],
): Query<number | null> {
  if ((yield* metaValue(FIRING_PAUSED)) === null) return null
  const next = yield* planFromNow(tx, after, limit)
  if (next !== null) return next
  yield* all(`DELETE FROM meta WHERE key = ?`, [FIRING_PAUSED])
  yield* endEvents(tx, 'store_restored', '')
  yield* recordChange(tx, {actor, action: 'firing.resume', targetType: 'cluster', target: ''})
  return null
}

/** The event begins at the time before the step: the store's clock is the one that is ahead. */
export function* noteClockHeld(
  tx: Transaction,
  {term, heldMs}: Parameters<LeaderStore['noteClockHeld']>[0],
): Query<void> {
  yield* fence(tx, term)
  yield* endEvents(tx, 'clock_held', '')
  if (heldMs === null) return
  const at = Math.round(tx.now - heldMs)
  const detail = `ahead by ${formatDuration(Math.round(heldMs))}`
  yield* recordEvent(tx, {kind: 'clock_held', subject: '', at, detail})
}

/** Rows that an index of `next` finds at once. A wrong clock moves nearly all jobs. */
const AHEAD_MAX = 1_000
/** No wait of an execution is longer: the backoff of a retry ends after 6 minutes. */
const WAIT_MAX_MS = 15 * 60_000

export function* endFutureWaits(
  tx: Transaction,
  {term}: Parameters<LeaderStore['endFutureWaits']>[0],
): Query<FutureWaits> {
  yield* fence(tx, term)
  const executions = yield* all(
    `UPDATE executions SET not_before = ? WHERE status = 'pending' AND not_before > ?
      RETURNING group_id`,
    [tx.now, tx.now + WAIT_MAX_MS],
  )
  const launches = yield* all(
    `UPDATE launches SET stored_at = ? WHERE decision = 'pending' AND stored_at > ?
      RETURNING group_id`,
    [tx.now, tx.now + WAIT_MAX_MS],
  )
  const ahead = yield* one<{jobs: number; until: number | null}>(
    `SELECT count(*) AS jobs, max(decided_until) AS until FROM (
      SELECT decided_until FROM jobs WHERE next_at > ? AND deleted_at IS NULL AND disabled = 0
        ORDER BY next_at DESC LIMIT ${AHEAD_MAX}) AS latest
      WHERE decided_until > ?`,
    [tx.now, tx.now + CLOCK_WRONG_MS],
  )
  const ended = executions.length + launches.length
  return {ended, aheadJobs: ahead!.jobs, aheadUntil: ahead!.until}
}

/** Inserts a row for a fault, unless the newest row of the job says the same. It covers no planned time. */
export function* recordFaults(
  tx: Transaction,
  term: number,
  faults: readonly JobFault[],
): Query<void> {
  const jobs = yield* oneEach<{id: number; name: string}>(
    `SELECT id, name FROM jobs WHERE id = ? AND deleted_at IS NULL`,
    faults.map(({jobId}) => [jobId]),
  )
  for (const [index, {jobId, reason}] of faults.entries()) {
    const job = jobs[index]
    if (job === null || job === undefined) continue
    const newest = yield* one<{reason: string}>(
      `SELECT reason FROM launches WHERE job_id = ? ORDER BY group_id DESC LIMIT 1`,
      [jobId],
    )
    if (newest?.reason === reason) continue
    const [group] = yield* tx.dialect.takeNumbers('launch', 1)
    const times = {scheduledAt: tx.now, decidedAt: tx.now, term}
    const row = {cause: 'manual', decision: 'skipped', reason, ...times} as const
    yield* all(INSERT_LAUNCH, launchValues(newLaunch(job, group!, tx.now, row)))
  }
}
