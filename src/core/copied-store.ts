/** Copies of a store: whether tables in another place are the same store, or a copy that was put back. */

/** Place of the tables of a store, to notice that it was put back from a copy. */
export interface Place {
  readonly engine: 'sqlite' | 'postgres'
  /** Differs between a store and its copy; `null` = unknown. */
  readonly id: string | null
  /** The store was changed from outside at this time, or not at all: then it is no copy. */
  readonly changedAt: number | null
  /** Creation of its file; `null` = unknown. A file created after its last write is a copy. */
  readonly createdAt: number | null
}

/** Heartbeats are stored every 2 s. Files change a little later than the clock was read. */
const LAST_SIGN_MS = 10_000

/**
 * True if a store in a new place is a copy. `heartbeatAt`, `startedAt`: the newest heartbeat and start of its
 * members; `null` = it has none.
 */
export function isCopiedStore(
  {changedAt, createdAt}: Pick<Place, 'changedAt' | 'createdAt'>,
  {heartbeatAt, startedAt}: Record<'heartbeatAt' | 'startedAt', number | null>,
): boolean {
  const isUnchanged = changedAt !== null && changedAt <= (heartbeatAt ?? 0) + LAST_SIGN_MS
  // A copy of a store that is open was last written a moment before.
  const isYounger = createdAt !== null && createdAt > (startedAt ?? Infinity)
  return !isUnchanged || isYounger
}
