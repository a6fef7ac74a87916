/**
 * The leader's lease and its fencing. One row, whose key is the term: a takeover changes the key. A leader's
 * write looks up its own term in its transaction, and finds no row once the term is over.
 */
import type {HeldLease, Lease, ObservedLease} from '../../../ports/leader-store.ts'
import {TermOver} from '../../../ports/store-errors.ts'
import {all, one, type Query, together, type Transaction} from '../query.ts'
import {noteStandstill, noteStandstillOfLease} from './standstill.ts'

export function* acquireLease(
  tx: Transaction,
  request: {
    readonly holder: string
    readonly nodeId: string
    readonly ttlMs: number
    readonly unchanged?: HeldLease | null
  },
): Query<Lease | null> {
  const {holder, nodeId, ttlMs, unchanged = null} = request
  const expiresAt = tx.now + ttlMs
  // Compare-and-set: a renewal that commits first changes the row, and the update matches nothing.
  const expected =
    unchanged === null
      ? [null, null, null]
      : [unchanged.term, unchanged.holder, unchanged.expiresAt]
  const [, row] = yield* together(
    noteStandstillOfLease(tx),
    one<{term: number}>(
      `UPDATE leader SET term = term + 1, holder = ?, node_id = ?, expires_at = ?
      WHERE holder = '' OR holder = ? OR expires_at <= ? OR (term = ? AND holder = ? AND expires_at = ?)
      RETURNING term`,
      [holder, nodeId, expiresAt, holder, tx.now, ...expected],
    ),
  )
  if (row === null) return null
  yield* tx.dialect.markLeader(row.term)
  return {term: row.term, expiresAt}
}

export function* heldLease(tx: Transaction): Query<ObservedLease | null> {
  const row = yield* one<{term: number; holder: string; expires_at: number}>(
    `SELECT term, holder, expires_at FROM leader WHERE holder <> ''`,
  )
  if (row === null) return null
  const {term, holder, expires_at: expiresAt} = row
  return {term, holder, expiresAt, isConnected: yield* tx.dialect.isLeaderConnected(term)}
}

export function* renewLease(
  tx: Transaction,
  request: {readonly term: number; readonly holder: string; readonly ttlMs: number},
): Query<boolean> {
  const {term, holder, ttlMs} = request
  const [before, row] = yield* together(
    one<{expires_at: number}>(`SELECT expires_at FROM leader WHERE term = ? AND holder = ?`, [
      term,
      holder,
    ]),
    one(`UPDATE leader SET expires_at = ? WHERE term = ? AND holder = ? RETURNING term`, [
      tx.now + ttlMs,
      term,
      holder,
    ]),
  )
  if (row === null) return false
  yield* noteStandstill(tx, before?.expires_at ?? null)
  // The connection may be a new one.
  yield* tx.dialect.markLeader(request.term)
  return true
}

/** Ends the term at once. The new term number, without a holder, also rejects writes still in flight. */
export function* resignLease(
  _tx: Transaction,
  request: {readonly term: number; readonly holder: string},
): Query<void> {
  yield* all(
    `UPDATE leader SET term = term + 1, holder = '', node_id = '', expires_at = 0
      WHERE term = ? AND holder = ?`,
    [request.term, request.holder],
  )
}

/** Removes any holder. For an engine that one process owns: the previous holder no longer runs. */
export function* vacateLease(_tx: Transaction): Query<void> {
  yield* all(
    `UPDATE leader SET term = term + 1, holder = '', node_id = '', expires_at = 0 WHERE holder <> ''`,
  )
}

export function* leader(
  tx: Transaction,
): Query<{readonly term: number; readonly nodeId: string; readonly expiresAt: number} | null> {
  const row = yield* one<{term: number; node_id: string; expires_at: number}>(
    `SELECT term, node_id, expires_at FROM leader WHERE holder <> ''`,
  )
  return row === null || row.expires_at <= tx.now
    ? null
    : {term: row.term, nodeId: row.node_id, expiresAt: row.expires_at}
}

/** Throws `TermOver` unless `term` is current. Its lock delays takeovers until the transaction ends. */
export function* fence(tx: Transaction, term: number): Query<void> {
  const row = yield* one(
    `SELECT term FROM leader WHERE term = ? AND holder <> ''${tx.dialect.forKeyShare}`,
    [term],
  )
  if (row === null) throw new TermOver(`term ${term} is over`)
}
