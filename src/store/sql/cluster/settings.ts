/** Settings of the whole store: the pause switch, the time zone, its identity. */
import type {Actor} from '../../../core/audit.ts'
import {isCopiedStore, type Place} from '../../../core/copied-store.ts'
import type {ZoneChange} from '../../../core/next-time.ts'
import type {PausedSinceRestore} from '../../../ports/job-store.ts'
import {recordChange} from '../access/audit.ts'
import {all, one, type Query, together, type Transaction} from '../query.ts'

/**
 * Key of the setting that pauses firing: no planned time is decided while it has a value, the reason. A store
 * that was put back from a backup begins so, because the times since then have run elsewhere.
 */
export const FIRING_PAUSED = 'firing_paused'

/** Key of the mark that a store on a file shares with the file beside it; absent = none yet. */
export const MARK = 'mark'
/** Key of the number that goes up while a store on a file is open; absent = 0. */
export const MARK_COUNT = 'mark_count'
/** Mark of a backup: no file beside a store has it, so a backup that is put in its place is recognised. */
export const BACKUP_MARK = 'backup'

/** Key of what is left to do after a change of the default time zone; absent = nothing. */
export const ZONE_CHANGE = 'zone_change'

export function* pausedSinceRestore(_tx: Transaction): Query<PausedSinceRestore | null> {
  return (yield* metaValue(FIRING_PAUSED)) as PausedSinceRestore | null
}

/** Stores the place. True if it has changed: the store is a copy that was put back. */
export function* detectCopiedStore({engine, id, changedAt, createdAt}: Place): Query<boolean> {
  if (id === null) return false
  const key = `place_${engine}`
  const before = yield* metaValue(key)
  if (before === id) return false
  yield* putMeta(key, id)
  if (before === null) return false
  const last = yield* one<{at: number | null; started_at: number | null}>(
    `SELECT max(heartbeat_at) AS at, max(started_at) AS started_at FROM members`,
  )
  const {at, started_at: startedAt} = last!
  return isCopiedStore({changedAt, createdAt}, {heartbeatAt: at, startedAt})
}

export function* setPaused(tx: Transaction, value: boolean, actor?: Actor): Query<void> {
  if ((yield* isPaused()) === value) return
  yield* putMeta('paused', String(value))
  const action = value ? 'submissions.pause' : 'submissions.resume'
  yield* recordChange(tx, {actor, action, targetType: 'cluster', target: ''})
}

export function* submissionsPaused(_tx: Transaction): Query<boolean> {
  return yield* isPaused()
}

export function* isPaused(): Query<boolean> {
  return (yield* metaValue('paused')) === 'true'
}

/** Stores the zone unless the store has one; returns the stored zone. */
export function* agreeTimezone(_tx: Transaction, zone: string): Query<string> {
  return yield* agreed('timezone', zone)
}

/** Key of the key that authenticates cookies of sign-ins. It opens nothing. */
export const SIGN_IN_KEY = 'sign_in_key'

/** Stores the key unless the store has one; returns the stored key. */
export function* agreeSignInKey(_tx: Transaction, key: string): Query<string> {
  return yield* agreed(SIGN_IN_KEY, key)
}

/** The first value stays; returns it. */
function* agreed(key: string, value: string): Query<string> {
  yield* all(`INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING`, [
    key,
    value,
  ])
  return (yield* metaValue(key)) ?? value
}

/** Used until a first server has stored a zone: only in tests and tools. */
export const ZONE_UNLESS_AGREED = 'UTC'

/** The cluster's default zone. */
export function* timezone(): Query<string> {
  return (yield* metaValue('timezone')) ?? ZONE_UNLESS_AGREED
}

/** The default zone, and what of it is still to be planned; absent from `ZONE_CHANGE` = nothing. */
export interface Zoning {
  readonly zone: string
  /** Oldest first; all jobs are planned as before the first one, or as after some of them. */
  readonly changes: readonly ZoneChange[]
  /** `null` = all jobs are planned. */
  readonly progress: ZoneProgress | null
}

/** State in `zone_change` while jobs are planned again. */
export interface ZoneProgress {
  /** The new zone is in force from then on. */
  readonly at: number
  readonly from: string
  /** Jobs up to this id are planned. */
  readonly after: number
  /** Changes before it, while jobs were still to be planned; absent = none. Schema 4 does not read it. */
  readonly earlier?: readonly ZoneChange[]
}

export function* zoning(): Query<Zoning> {
  // Each submit reads them. SQLite takes five times as long for one statement with a list of keys.
  const [zone, stored] = yield* together(timezone(), metaValue(ZONE_CHANGE))
  if (stored === null) return {zone, changes: [], progress: null}
  const progress = JSON.parse(stored) as ZoneProgress
  const {at, from, earlier = []} = progress
  return {zone, changes: [...earlier, {at, from, to: zone}], progress}
}

export interface Identity {
  readonly clusterId: string
  readonly incarnation: string
}

/** Stores the identity of a new store; an existing identity stays. */
export function* insertIdentity(_tx: Transaction, fresh: Identity): Query<void> {
  const insert = `INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING`
  yield* all(insert, ['cluster_id', fresh.clusterId])
  yield* all(insert, ['incarnation', fresh.incarnation])
}

export function* identity(_tx: Transaction): Query<Identity> {
  const [clusterId, incarnation] = yield* together(
    metaValue('cluster_id'),
    metaValue('incarnation'),
  )
  return {clusterId: clusterId ?? '', incarnation: incarnation ?? ''}
}

/** Readiness check: one write and one read. */
export function* probe(tx: Transaction): Query<void> {
  yield* putMeta('probed_at', String(tx.now))
  yield* metaValue('probed_at')
}

export function* metaValue(key: string): Query<string | null> {
  const row = yield* one<{value: string}>(`SELECT value FROM meta WHERE key = ?`, [key])
  return row?.value ?? null
}

export function* putMeta(key: string, value: string): Query<void> {
  yield* all(
    `INSERT INTO meta (key, value) VALUES (?, ?)
      ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
    [key, value],
  )
}
