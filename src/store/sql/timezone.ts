/**
 * The default time zone of the cluster. A change is one transaction; the jobs without a zone of their own are
 * planned again afterwards, page by page, by the leader. It decides no due job until all of them are.
 *
 * Crash points: before the first transaction nothing has changed. After it, and between two pages, the row
 * `zone_change` says which page is next, and any leader continues. A page and its progress are one
 * transaction, so no job is planned twice.
 */
import {type Actor, BELFRY} from '../../core/audit.ts'
import {dueRow, nextPlanned, scheduleOf} from '../../core/next-time.ts'
import type {LeaderStore} from '../../ports/leader-store.ts'
import {recordChange} from './audit.ts'
import {changeSettings} from './firing.ts'
import {recordMissed} from './jobs.ts'
import {fence} from './lease.ts'
import {all, each, type Query, type Transaction} from './query.ts'
import {jobOf, type JobRow, readableJobs, SELECT_JOB} from './rows.ts'
import {metaValue, putMeta, timezone, ZONE_CHANGE} from './settings.ts'

/** What `zone_change` holds while jobs are planned again. */
interface ZoneChange {
  /** The new zone is in force from then on. */
  readonly at: number
  readonly from: string
  /** Jobs up to this id are planned. */
  readonly after: number
}

export function* defaultTimezone(_tx: Transaction): Query<string> {
  return yield* timezone()
}

/** Returns the zone before. */
export function* setTimezone(tx: Transaction, zone: string, actor: Actor = BELFRY): Query<string> {
  const from = yield* timezone()
  if (from === zone) return from
  yield* changeSettings(tx)
  yield* putMeta('timezone', zone)
  // Jobs that an earlier change has not reached yet are planned once, with this zone.
  const change: ZoneChange = {at: tx.now, from, after: 0}
  yield* putMeta(ZONE_CHANGE, JSON.stringify(change))
  const detail = `${from} → ${zone}`
  yield* recordChange(tx, {
    actor,
    action: 'settings.update',
    on: 'cluster',
    target: 'timezone',
    detail,
  })
  return from
}

/**
 * A planned time of the old zone that was due at the change is recorded as missed. Times of the new zone
 * count from the change on, or from a later edit of the job.
 */
export function* planZone(
  tx: Transaction,
  {term, limit}: Parameters<LeaderStore['planZone']>[0],
): Query<boolean> {
  yield* fence(tx, term)
  const stored = yield* metaValue(ZONE_CHANGE)
  if (stored === null) return true
  const change = JSON.parse(stored) as ZoneChange
  const zone = yield* timezone()
  // Locked: an edit at the same time must not be planned over.
  const rows = yield* all<JobRow>(
    `${SELECT_JOB} WHERE j.id > ? AND j.deleted_at IS NULL AND j.disabled = 0 AND j.parent = ''
      ORDER BY j.id LIMIT ?${tx.dialect.forUpdate === '' ? '' : ' FOR UPDATE OF j'}`,
    [change.after, limit],
  )
  const jobs = readableJobs(rows, jobOf).jobs.filter(({spec, anchorAt}) => {
    return spec.timezone === '' && scheduleOf(spec, anchorAt, zone)?.kind === 'cron'
  })
  yield* recordMissed(
    tx,
    jobs.map((job) => ({job, rows: dueRow(job, change.at, change.from, 'edited')})),
  )
  yield* each(
    `UPDATE jobs SET next_at = ? WHERE id = ?`,
    jobs.map(({id, spec, anchorAt, decidedUntil, updatedAt}) => {
      const after = Math.max(change.at, decidedUntil ?? -Infinity, updatedAt)
      return [nextPlanned(spec, anchorAt, after, zone), id]
    }),
  )
  if (rows.length === limit) {
    yield* putMeta(ZONE_CHANGE, JSON.stringify({...change, after: rows.at(-1)!.id}))
    return false
  }
  yield* all(`DELETE FROM meta WHERE key = ?`, [ZONE_CHANGE])
  return true
}
