/**
 * Pauses of firing. Decisions of the leader are made with the pauses that were loaded with the due jobs, and
 * carry their revision. A pause locks the row of the leader's term: it waits for decisions that are being
 * stored, and later ones find the new revision and are made again. A pause that ended stays until the planned
 * times before its end are decided.
 */
import {type Actor, BELFRY} from '../../../core/audit.ts'
import {
  arePausesFull,
  type FiringPause,
  instantOfEnd,
  isInForce,
  type LaunchSettings,
} from '../../../core/firing.ts'
import type {PauseRequest, PauseResult} from '../../../ports/job-store.ts'
import {recordChange} from '../access/audit.ts'
import {fence} from '../cluster/lease.ts'
import {all, one, type Query, send, together, type Transaction} from '../query.ts'
import {metaValue, ZONE_CHANGE, ZONE_UNLESS_AGREED} from '../cluster/settings.ts'

/** Counts the changes of pauses and of the default time zone. */
const REVISION = 'launch_settings'

interface PauseRow {
  readonly jobs_glob: string
  readonly pause_reason: string
  readonly paused_at: number
  readonly paused_by: string
  readonly paused_until: number | null
}

const SELECT_PAUSES = `SELECT jobs_glob, pause_reason, paused_at, paused_by, paused_until
  FROM firing_pauses`

function pauseOf(row: PauseRow): FiringPause {
  return {
    jobs: row.jobs_glob,
    reason: row.pause_reason,
    pausedAt: row.paused_at,
    pausedBy: row.paused_by,
    until: row.paused_until,
  }
}

export function* launchSettings(): Query<LaunchSettings> {
  const [revision, zone, zoneChange, rows] = yield* together(
    // Read first: decisions with settings that change now are made again.
    settingsRevision(),
    metaValue('timezone'),
    metaValue(ZONE_CHANGE),
    all<PauseRow>(SELECT_PAUSES),
  )
  return {
    revision,
    defaultZone: zone ?? ZONE_UNLESS_AGREED,
    isPlanned: zoneChange === null,
    pauses: rows.map(pauseOf),
  }
}

export function* settingsRevision(): Query<number> {
  return Number((yield* metaValue(REVISION)) ?? 0)
}

/** Called before the settings change: decisions made with the old ones are not stored any more. */
export function* changeSettings(tx: Transaction): Query<void> {
  yield* all(`SELECT term FROM leader${tx.dialect.forUpdate}`)
  const revision = (yield* settingsRevision()) + 1
  yield* send(
    `INSERT INTO meta (key, value) VALUES (?, ?)
      ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
    [REVISION, String(revision)],
  )
}

/** Sorted by glob, with those that ended and are not removed yet. */
export function* storedPauses(): Query<readonly FiringPause[]> {
  const rows = yield* all<PauseRow>(`${SELECT_PAUSES} ORDER BY jobs_glob`)
  return rows.map(pauseOf)
}

export function* firingPauses(tx: Transaction): Query<readonly FiringPause[]> {
  const pauses = yield* storedPauses()
  return pauses.filter((pause) => isInForce(pause, tx.now))
}

export function* pauseFiring(
  tx: Transaction,
  {jobs, reason, until: wanted, actor = BELFRY}: PauseRequest,
): Query<PauseResult> {
  const until = instantOfEnd(wanted, tx.now)
  if (!isInForce({until}, tx.now)) return {kind: 'past', now: tx.now}
  yield* changeSettings(tx)
  yield* removeDecided(tx)
  const others = (yield* storedPauses()).filter((pause) => pause.jobs !== jobs)
  if (arePausesFull(others, tx.now)) return {kind: 'full'}
  const pause = {jobs, reason, pausedAt: tx.now, pausedBy: actor.name, until}
  // A pause of this glob that has ended needs no row: the new one covers its undecided times too.
  yield* all(
    `INSERT INTO firing_pauses (jobs_glob, pause_reason, paused_at, paused_by, paused_until, ended_at)
      VALUES (?, ?, ?, ?, ?, NULL)
      ON CONFLICT (jobs_glob) DO UPDATE SET pause_reason = excluded.pause_reason,
        paused_at = excluded.paused_at, paused_by = excluded.paused_by,
        paused_until = excluded.paused_until, ended_at = NULL`,
    [jobs, reason, tx.now, actor.name, until],
  )
  const detail = `${until === null ? 'until it is ended' : `until ${new Date(until).toISOString()}`}${
    reason === '' ? '' : `: ${reason}`
  }`
  yield* recordChange(tx, {
    actor,
    action: 'firing.pause',
    targetType: 'cluster',
    target: jobs,
    detail,
  })
  return {kind: 'paused', pause}
}

export function* endFiringPause(
  tx: Transaction,
  jobs: string,
  actor: Actor = BELFRY,
): Query<FiringPause | null> {
  if ((yield* pauseInForce(tx, jobs)) === null) return null
  yield* changeSettings(tx)
  // Read again under the lock: another request may have ended it.
  const pause = yield* pauseInForce(tx, jobs)
  if (pause === null) return null
  yield* all(`UPDATE firing_pauses SET paused_until = ?, ended_at = ? WHERE jobs_glob = ?`, [
    tx.now,
    tx.now,
    jobs,
  ])
  yield* recordChange(tx, {actor, action: 'firing.resume', targetType: 'cluster', target: jobs})
  return {...pause, until: tx.now}
}

function* pauseInForce(tx: Transaction, jobs: string): Query<FiringPause | null> {
  const row = yield* one<PauseRow>(`${SELECT_PAUSES} WHERE jobs_glob = ?`, [jobs])
  const pause = row === null ? null : pauseOf(row)
  return pause !== null && isInForce(pause, tx.now) ? pause : null
}

/** Ended, and no planned time before the end is undecided. */
const DECIDED = `paused_until <= ? AND NOT EXISTS (
  SELECT 1 FROM jobs WHERE next_at < firing_pauses.paused_until)`

function* removeDecided(tx: Transaction): Query<void> {
  yield* all(`DELETE FROM firing_pauses WHERE ${DECIDED}`, [tx.now])
}

export function* removeEndedPauses(
  tx: Transaction,
  {term}: {readonly term: number},
): Query<readonly FiringPause[]> {
  yield* fence(tx, term)
  const rows = yield* all<PauseRow & {readonly ended_at: number | null}>(
    `DELETE FROM firing_pauses WHERE ${DECIDED}
      RETURNING jobs_glob, pause_reason, paused_at, paused_by, paused_until, ended_at`,
    [tx.now],
  )
  return rows.filter(({ended_at: endedAt}) => endedAt === null).map(pauseOf)
}
