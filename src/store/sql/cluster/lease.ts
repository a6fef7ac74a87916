/**
 * The leader's lease and its fencing. One row, whose key is the term: a takeover changes the key. A leader's
 * write looks up its own term in its transaction, and finds no row once the term is over.
 */
import {STORE_FAILED} from '../../../core/cluster-event.ts'
import type {HeldLease, Lease, ObservedLease} from '../../../ports/leader-store.ts'
import {TermOver} from '../../../ports/store-errors.ts'
import {all, one, type Query, together, type Transaction} from '../query.ts'
import {endEvents, recordEvent} from './cluster-events.ts'
import {noteStandstill, noteStandstillOfLease} from './standstill.ts'

export function* acquireLease(
  tx: Transaction,
  request: {
    readonly holder: string
    readonly nodeId: string
    readonly ttlMs: number
    readonly unchanged?: HeldLease | null
    readonly storeFailed?: boolean
  },
): Query<Lease | null> {
  const {holder, nodeId, ttlMs, unchanged = null, storeFailed = false} = request
  const expiresAt = tx.now + ttlMs
  // Compare-and-set: a renewal that commits first changes the row, and the update matches nothing.
  const expected =
    unchanged === null
      ? [null, null, null]
      : [unchanged.term, unchanged.holder, unchanged.expiresAt]
  const [, before, row] = yield* together(
    noteStandstillOfLease(tx),
    one<{holder: string; expires_at: number}>(`SELECT holder, expires_at FROM leader`),
    one<{term: number}>(
      `UPDATE leader SET term = term + 1, holder = ?, node_id = ?, expires_at = ?
      WHERE holder = '' OR holder = ? OR expires_at <= ? OR (term = ? AND holder = ? AND expires_at = ?)
      RETURNING term`,
      [holder, nodeId, expiresAt, holder, tx.now, ...expected],
    ),
  )
  if (row === null) return null
  yield* tx.dialect.markLeader(row.term)
  const leaseEnd = before?.expires_at ?? 0
  // A lease that is taken early was renewed last when its holder was seen last.
  const isEarly = before?.holder !== holder && leaseEnd > tx.now
  yield* recordTerm(tx, {
    nodeId,
    term: row.term,
    endedAt: isEarly ? leaseEnd - ttlMs : leaseEnd,
    storeFailed,
  })
  return {term: row.term, expiresAt}
}

/** A shorter time without a leader delays nothing that anyone would ask about. */
const GAP_SHOWN_MS = 1_000

/** `endedAt`: when the holder before led last; 0 = it gave up the lease, and the event of that is open. */
function* recordTerm(
  tx: Transaction,
  {
    nodeId,
    term,
    endedAt,
    storeFailed,
  }: {
    readonly nodeId: string
    readonly term: number
    readonly endedAt: number
    readonly storeFailed: boolean
  },
): Query<void> {
  const node = yield* one<{name: string}>(`SELECT name FROM members WHERE id = ?`, [nodeId])
  const subject = node?.name ?? nodeId
  yield* endEvents(tx, 'no_leader', '')
  // The new leader notes it again if its clock guard still holds it.
  yield* endEvents(tx, 'clock_held', '')
  if (endedAt > 0 && tx.now - endedAt >= GAP_SHOWN_MS)
    yield* recordEvent(tx, {
      kind: 'no_leader',
      subject: '',
      detail: storeFailed ? STORE_FAILED : '',
      at: endedAt,
      until: tx.now,
    })
  yield* recordEvent(tx, {kind: 'term_began', subject, detail: `term ${term}`})
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
  tx: Transaction,
  request: {readonly term: number; readonly holder: string},
): Query<void> {
  const resigned = yield* one(
    `UPDATE leader SET term = term + 1, holder = '', node_id = '', expires_at = 0
      WHERE term = ? AND holder = ? RETURNING term`,
    [request.term, request.holder],
  )
  if (resigned !== null) yield* recordEvent(tx, {kind: 'no_leader', subject: ''})
}

/** Removes any holder. */
export function* removeHolder(): Query<void> {
  yield* all(
    `UPDATE leader SET term = term + 1, holder = '', node_id = '', expires_at = 0 WHERE holder <> ''`,
  )
}

/**
 * Removes any holder, and records when it led last. Only for an engine that one process owns: the previous
 * holder no longer runs.
 */
export function* vacateLease(tx: Transaction): Query<void> {
  const before = yield* one<{expires_at: number}>(
    `SELECT expires_at FROM leader WHERE holder <> ''`,
  )
  if (before === null) return
  yield* removeHolder()
  const at = Math.min(before.expires_at, tx.now)
  yield* recordEvent(tx, {kind: 'no_leader', subject: '', at})
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
