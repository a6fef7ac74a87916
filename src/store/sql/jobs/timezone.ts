/**
 * The default time zone of the cluster. A change is one transaction; the jobs without a zone of their own are
 * planned again afterwards, page by page, by the leader. It decides no due job until all of them are.
 *
 * Crash points: before the first transaction nothing has changed. After it, and between two pages, the row
 * `zone_change` says which page is next, and any leader continues. A page and its progress are one
 * transaction, so no job is planned twice.
 */
import {type Actor, BELFRY} from '../../../core/audit.ts'
import {rezoned} from '../../../core/next-time.ts'
import type {LeaderStore} from '../../../ports/leader-store.ts'
import {recordChange} from '../access/audit.ts'
import {changeSettings} from './firing.ts'
import {recordMissed} from './jobs.ts'
import {fence} from '../cluster/lease.ts'
import {all, each, oneEach, type Query, type Transaction} from '../query.ts'
import {jobOf, type JobRow, readableJobs, SELECT_JOB} from '../rows.ts'
import {putMeta, timezone, ZONE_CHANGE, type ZoneProgress, zoning} from '../cluster/settings.ts'

/** Changes remembered until jobs are planned. A person makes few; beyond it the oldest is dropped. */
const CHANGES_MAX = 20

export function* defaultTimezone(_tx: Transaction): Query<string> {
  return yield* timezone()
}

/** Returns the zone before. */
export function* setTimezone(tx: Transaction, zone: string, actor: Actor = BELFRY): Query<string> {
  const from = yield* timezone()
  if (from === zone) return from
  yield* changeSettings(tx)
  // A job that an earlier change has not reached yet has the planned times of that change until this one.
  const {changes} = yield* zoning()
  const progress: ZoneProgress = {
    at: tx.now,
    from,
    after: 0,
    earlier: changes.slice(1 - CHANGES_MAX),
  }
  yield* putMeta('timezone', zone)
  yield* putMeta(ZONE_CHANGE, JSON.stringify(progress))
  const detail = `${from} → ${zone}`
  yield* recordChange(tx, {
    actor,
    action: 'settings.update',
    targetType: 'cluster',
    target: 'timezone',
    detail,
  })
  return from
}

/** `isFaulty`: the next job is not planned, because an error about it stops the others. */
export function* planZone(
  tx: Transaction,
  {term, limit, isFaulty = false}: Parameters<LeaderStore['planZone']>[0],
): Query<Awaited<ReturnType<LeaderStore['planZone']>>> {
  yield* fence(tx, term)
  const {changes, progress} = yield* zoning()
  if (progress === null) return {isDone: true, skipped: null}
  const count = isFaulty ? 1 : limit
  // Locked before they are read: an edit that is being stored must not be planned over.
  const ids = yield* all<{id: number}>(
    `SELECT id FROM jobs WHERE id > ? AND deleted_at IS NULL AND disabled = 0 AND parent = ''
      ORDER BY id LIMIT ?${tx.dialect.forUpdate}`,
    [progress.after, count],
  )
  const rows = yield* oneEach<JobRow>(
    `${SELECT_JOB} WHERE j.id = ? AND j.deleted_at IS NULL`,
    ids.map(({id}) => [id]),
  )
  const jobs = readableJobs(
    rows.filter((row) => row !== null),
    jobOf,
  ).jobs
  const planned = isFaulty ? [] : jobs.map((job) => ({job, ...rezoned(job, changes, tx.now)}))
  yield* recordMissed(
    tx,
    planned.map(({job, missed}) => ({job, rows: missed})),
  )
  yield* each(
    `UPDATE jobs SET next_at = ? WHERE id = ?`,
    planned
      .filter(({job, nextAt}) => nextAt !== job.nextAt)
      .map(({job, nextAt}) => [nextAt, job.id]),
  )
  const [first] = rows
  const skipped =
    isFaulty && first != null ? {jobId: first.id, job: first.name, revision: first.revision} : null
  const last = ids.at(-1)
  const isDone = ids.length < count
  if (isDone) yield* all(`DELETE FROM meta WHERE key = ?`, [ZONE_CHANGE])
  else yield* putMeta(ZONE_CHANGE, JSON.stringify({...progress, after: last!.id}))
  return {isDone, skipped}
}
