/** Rows of `cluster_events`, written in the transaction of each change. */
import type {ClusterEvent, ClusterEventKind} from '../../../core/cluster-event.ts'
import type {HistoryStore} from '../../../ports/history-store.ts'
import {all, type Query, send, type Transaction} from '../query.ts'
import {tooOldAt} from './standstill.ts'

/** A year of a cluster whose nodes come and go a dozen times a day has fewer. */
const EVENTS_KEPT = 10_000
const EVENTS_KEPT_MS = 400 * 86_400_000

interface EventRow {
  readonly id: number
  readonly began_at: number
  readonly event_kind: ClusterEventKind
  readonly subject: string
  readonly detail: string
  readonly over_at: number | null
}

/** `at`: absent = now. `until`: absent = it is not over, or has no length. */
export function* recordEvent(
  tx: Transaction,
  event: Pick<ClusterEvent, 'kind' | 'subject'> & Partial<ClusterEvent>,
): Query<void> {
  const {kind, subject, at = tx.now, detail = '', until = null} = event
  yield* send(
    `INSERT INTO cluster_events (began_at, event_kind, subject, detail, over_at) VALUES (?, ?, ?, ?, ?)`,
    [at, kind, subject, detail, until],
  )
}

/** Ends what is not over. */
export function* endEvents(tx: Transaction, kind: ClusterEventKind, subject: string): Query<void> {
  yield* send(
    `UPDATE cluster_events SET over_at = ? WHERE event_kind = ? AND subject = ? AND over_at IS NULL`,
    [tx.now, kind, subject],
  )
}

/** Kinds that last: without an end they are not over. */
const LASTING = `event_kind IN ('no_leader', 'node_failed', 'clock_held', 'store_restored')`

export function* clusterEvents(
  _tx: Transaction,
  {from, to, limit}: Parameters<HistoryStore['clusterEvents']>[0],
): Query<readonly ClusterEvent[]> {
  const rows = yield* all<EventRow>(
    `SELECT id, began_at, event_kind, subject, detail, over_at FROM cluster_events
      WHERE began_at < ? AND (began_at >= ? OR (${LASTING} AND COALESCE(over_at, ?) >= ?))
      ORDER BY began_at DESC, id DESC LIMIT ?`,
    [to, from, to, from, limit],
  )
  return rows.map((row) => ({
    id: row.id,
    at: row.began_at,
    kind: row.event_kind,
    subject: row.subject,
    detail: row.detail,
    until: row.over_at,
  }))
}

/** Deletes the oldest beyond what is kept. Returns the number of deleted rows. */
export function* pruneEvents(tx: Transaction): Query<number> {
  const gone = yield* all(
    `DELETE FROM cluster_events WHERE began_at < ?
      OR id <= (SELECT max(id) FROM cluster_events) - ${EVENTS_KEPT} RETURNING 1 AS gone`,
    [yield* tooOldAt(tx, EVENTS_KEPT_MS)],
  )
  return gone.length
}
