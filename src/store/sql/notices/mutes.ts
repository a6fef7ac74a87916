/**
 * Mutes of notices. A mute that ended stays for a day: a late evaluation still sends what it held.
 */
import {isFull} from '../../../core/bounds.ts'
import {type Actor, BELFRY} from '../../../core/audit.ts'
import {MUTE_MAX_MS, MUTES_MAX} from '../../../core/notice-mute.ts'
import type {MuteRecord, MuteRequest, MuteResult} from '../../../ports/notice-store.ts'
import {recordChange} from '../access/audit.ts'
import {all, one, type Query, type Transaction} from '../query.ts'

/** How long a mute that ended stays. */
const ENDED_KEPT_MS = 24 * 3_600_000

interface MuteRow {
  readonly mute_id: number
  readonly mute_rule: string
  readonly jobs_glob: string
  readonly mute_reason: string
  readonly muted_at: number
  readonly muted_by: string
  readonly muted_until: number
}

const COLUMNS = `mute_id, mute_rule, jobs_glob, mute_reason, muted_at, muted_by, muted_until`

function muteOf(row: MuteRow): MuteRecord {
  return {
    id: row.mute_id,
    rule: row.mute_rule,
    jobs: row.jobs_glob,
    reason: row.mute_reason,
    mutedAt: row.muted_at,
    mutedBy: row.muted_by,
    until: row.muted_until,
  }
}

export function* mutes(tx: Transaction): Query<readonly MuteRecord[]> {
  const rows = yield* all<MuteRow>(
    `SELECT ${COLUMNS} FROM notice_mutes WHERE muted_until > ? ORDER BY mute_id`,
    [tx.now],
  )
  return rows.map(muteOf)
}

export function* muteNotices(
  tx: Transaction,
  {rule, jobs, reason, until: wanted}: MuteRequest,
  actor: Actor = BELFRY,
): Query<MuteResult> {
  const until = 'at' in wanted ? wanted.at : tx.now + Math.ceil(wanted.afterMs)
  if (until <= tx.now || until > tx.now + MUTE_MAX_MS) return {kind: 'out_of_range', now: tx.now}
  yield* all(`DELETE FROM notice_mutes WHERE muted_until <= ?`, [tx.now - ENDED_KEPT_MS])
  const counted = yield* one<{in_force: number}>(
    `SELECT count(*) AS in_force FROM notice_mutes WHERE muted_until > ?`,
    [tx.now],
  )
  if (isFull(counted!.in_force, MUTES_MAX)) return {kind: 'full'}
  const row = yield* one<MuteRow>(
    `INSERT INTO notice_mutes (mute_rule, jobs_glob, mute_reason, muted_at, muted_by, muted_until)
      VALUES (?, ?, ?, ?, ?, ?) RETURNING ${COLUMNS}`,
    [rule, jobs, reason, tx.now, actor.name, until],
  )
  const mute = muteOf(row!)
  const why = reason === '' ? '' : `: ${reason}`
  const detail = `jobs ${jobs} until ${new Date(until).toISOString()}${why}`
  yield* recordChange(tx, {
    actor,
    action: 'mute.set',
    targetType: 'mute',
    target: String(mute.id),
    detail,
  })
  return {kind: 'muted', mute}
}

export function* endMute(
  tx: Transaction,
  id: number,
  actor: Actor = BELFRY,
): Query<MuteRecord | null> {
  const row = yield* one<MuteRow>(
    `UPDATE notice_mutes SET muted_until = ? WHERE mute_id = ? AND muted_until > ?
      RETURNING ${COLUMNS}`,
    [tx.now, id, tx.now],
  )
  if (row === null) return null
  yield* recordChange(tx, {
    actor,
    action: 'mute.end',
    targetType: 'mute',
    target: String(id),
  })
  return muteOf(row)
}
