/**
 * Retention of the audit log, in bounded batches in the order of its rows. The rows that hold the newest
 * earlier definitions of a live job stay, whatever their age.
 */
import type {PruneAuditRequest, PruneAuditResult} from '../../../ports/audit-store.ts'
import {fence} from '../cluster/lease.ts'
import {all, one, type Query, sendEach, type Transaction} from '../query.ts'
import {tooOldAt} from '../cluster/standstill.ts'

/** True for an entry whose definition is one of the last of a live job. The value is `keepRevisions`. */
const IS_NEEDED = `EXISTS
  (SELECT 1 FROM jobs j WHERE j.id = audit.job_id AND j.deleted_at IS NULL
    AND audit.revision_before >= j.revision - ?)`

export function* pruneAudit(tx: Transaction, request: PruneAuditRequest): Query<PruneAuditResult> {
  yield* fence(tx, request.term)
  const {keepMs, keepEntries, keepRefused, after, limit} = request
  const refused = yield* all(
    `DELETE FROM audit WHERE id IN
      (SELECT id FROM audit WHERE result = 'refused' ORDER BY id DESC LIMIT ? OFFSET ?)
      RETURNING 1 AS gone`,
    [limit, keepRefused],
  )
  const beyond = yield* one<{id: number}>(
    `SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET ?`,
    [keepEntries],
  )
  const newestBeyond = beyond?.id ?? 0
  const cut = yield* cutDefinitions(request)
  const oldAt = yield* tooOldAt(tx, keepMs)
  const rows = yield* all<{id: number; at: number}>(
    `SELECT id, at FROM audit WHERE id > ? ORDER BY id LIMIT ?`,
    [after, limit],
  )
  // Rows are in the order of time: behind the first one that stays, all stay.
  const first = rows.findIndex(({id, at}) => id > newestBeyond && at >= oldAt)
  const visited = first === -1 ? rows : rows.slice(0, first)
  const next = visited.at(-1)?.id ?? after
  const gone = yield* all(
    `DELETE FROM audit WHERE id > ? AND id <= ? AND NOT ${IS_NEEDED} RETURNING 1 AS gone`,
    [after, next, request.keepRevisions],
  )
  return {
    next,
    isRoundOver: [visited, refused, cut].every(({length}) => length < limit),
    rowsDeleted: refused.length + gone.length,
  }
}

/**
 * Drops the oldest definitions beyond the size. The rows stay: many changes of a large job must not delete
 * who changed what.
 */
function* cutDefinitions(request: PruneAuditRequest): Query<readonly unknown[]> {
  const {keepBytes, keepRevisions, limit} = request
  const stored = yield* one<{total: number | null}>(
    `SELECT CAST(sum(replaced_bytes) AS bigint) AS total FROM audit
      WHERE replaced_bytes IS NOT NULL`,
  )
  let total = stored?.total ?? 0
  if (total <= keepBytes) return []
  const oldest = yield* all<{id: number; size: number}>(
    `SELECT id, replaced_bytes AS size FROM audit WHERE replaced_bytes IS NOT NULL
      AND job_id IS NOT NULL AND NOT ${IS_NEEDED} ORDER BY id LIMIT ?`,
    [keepRevisions, limit],
  )
  const cut: number[] = []
  for (const {id, size} of oldest) {
    if (total <= keepBytes) break
    total -= size
    cut.push(id)
  }
  yield* sendEach(
    `UPDATE audit SET replaced = NULL, replaced_bytes = NULL WHERE id = ?`,
    cut.map((id) => [id]),
  )
  return cut
}
