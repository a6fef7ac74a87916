/**
 * Standstills: the store's clock moved on while no server was seen alive. Either the cluster was off, or the
 * clock is wrong, and nothing here can tell which. Retention by age then keeps what is older than the
 * standstill until the cluster has run for as long as the limit: what it deletes does not come back.
 */
import {one, type Query, type Transaction} from '../query.ts'
import {metaValue, putMeta} from './settings.ts'

const KEY = 'standstill'
/** A shorter one deletes no more than a usual outage does. */
const SHORTEST_MS = 3_600_000

/** `seenAt`: newest instant at which the cluster was alive; `null` = never. */
export function* noteStandstill(tx: Transaction, seenAt: number | null): Query<void> {
  if (seenAt === null || tx.now - seenAt < SHORTEST_MS) return
  const before = yield* lastStandstill()
  // A second one, before the limits of the first are over, must not shorten it.
  const from =
    before !== null && before.to > seenAt - (before.to - before.from) ? before.from : seenAt
  yield* putMeta(KEY, `${Math.min(from, seenAt)} ${tx.now}`)
}

/** A lease that expired long ago: no leader renewed it. Call before another server takes it. */
export function* noteStandstillOfLease(tx: Transaction): Query<void> {
  const row = yield* one<{expires_at: number}>(`SELECT expires_at FROM leader WHERE holder <> ''`)
  yield* noteStandstill(tx, row?.expires_at ?? null)
}

/** Call before a join changes the newest heartbeat. */
export function* noteStandstillOfMembers(tx: Transaction): Query<void> {
  const row = yield* one<{at: number | null}>(`SELECT max(heartbeat_at) AS at FROM members`)
  yield* noteStandstill(tx, row?.at ?? null)
}

function* lastStandstill(): Query<{readonly from: number; readonly to: number} | null> {
  const [from, to] = ((yield* metaValue(KEY)) ?? '').split(' ').map(Number)
  return from === undefined || to === undefined ? null : {from, to}
}

/**
 * The instant before which rows are too old for this limit. Rows older than a standstill that was longer than
 * the limit are not, until the cluster has run for the limit since. A clock that was set back is right again.
 */
export function* tooOldAt(tx: Transaction, keepMs: number): Query<number> {
  const last = yield* lastStandstill()
  const isHeld =
    last !== null && last.to - last.from > keepMs && last.to <= tx.now && tx.now - last.to < keepMs
  return isHeld ? Math.min(last.from, tx.now) - keepMs : tx.now - keepMs
}
