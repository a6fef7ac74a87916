/**
 * Turns a restored backup, or a copy that was put back, into a store of its own. Nothing of the past runs:
 * running and pending executions end as lost, pending requests are skipped, due times are recorded as missed,
 * and firing is paused until an operator resumes it.
 */
import type {ExecutionKey} from '../../../core/execution.ts'
import type {PausedSinceRestore} from '../../../ports/job-store.ts'
import {BACKUP_STATE} from './backup-state.ts'
import {endAll} from '../executions/finish.ts'
import {planFromNow} from '../jobs/planning.ts'
import {all, type Query, type Transaction} from '../query.ts'
import {recordEvent} from './cluster-events.ts'
import {vacateLease} from './lease.ts'
import {type ExecutionRow, keyOf} from '../rows.ts'
import {FIRING_PAUSED, MARK, MARK_COUNT, putMeta, SIGN_IN_KEY} from './settings.ts'

/**
 * Launch numbers that the original store may have used after the backup; file names and logs carry them, so
 * they are skipped. Enough for weeks of heavy use.
 */
const SKIPPED_NUMBERS = 1_000_000_000
/** Executions ended, or jobs planned, with one statement. */
const BATCH_SIZE = 500

/** Runs on a fresh copy of a backup, or at the start of a server on a store that was put back. */
export function* startNewIncarnation(
  tx: Transaction,
  incarnation: string,
  reason: PausedSinceRestore,
): Query<void> {
  yield* putMeta('incarnation', incarnation)
  // No write of a leader that runs on a database that was loaded from a dump meanwhile.
  yield* vacateLease(tx)
  yield* tx.dialect.skipNumbers('launch', SKIPPED_NUMBERS)
  yield* all(`DELETE FROM members`)
  yield* all(`DELETE FROM node_claims`)
  // The stored replies are about the original store.
  yield* all(`DELETE FROM idempotency`)
  // A sender marks a notice as repeated: the original store may have sent it since.
  yield* all(
    `UPDATE notice_messages SET sender = 'restored', claim_until = NULL
      WHERE message_state = 'waiting'`,
  )
  yield* endOpenLaunches(tx)
  yield* planAgain(tx)
  // Whenever it is first started: the times until then have run elsewhere, or must not run here.
  yield* putMeta(FIRING_PAUSED, reason)
  yield* recordEvent(tx, {kind: 'store_restored', subject: '', detail: reason})
  // The new store makes backups of its own.
  yield* all(`DELETE FROM meta WHERE key IN (?, ?)`, [SIGN_IN_KEY, BACKUP_STATE])
}

/** Clears the place of a store that moves to a directory of its own. */
export function* forgetPlace(): Query<void> {
  const sql = `DELETE FROM meta WHERE key LIKE 'place%' OR key IN (?, ?)`
  yield* all(sql, [MARK, MARK_COUNT])
}

function* endOpenLaunches(tx: Transaction): Query<void> {
  yield* all(`UPDATE launches SET retries_ended = 1 WHERE open = 1`)
  for (;;) {
    const rows = yield* all<ExecutionRow>(
      `SELECT group_id, node_name, attempt FROM executions WHERE status IN ('pending', 'running')
        ORDER BY group_id, node_name, attempt LIMIT ?`,
      [BATCH_SIZE],
    )
    if (rows.length === 0) break
    const keys: ExecutionKey[] = rows.map(keyOf)
    yield* endAll(tx, keys, 'lost', 'restored', 0, ['pending', 'running'])
  }
  yield* all(
    `UPDATE launches SET decision = 'skipped', reason = 'restored', decided_at = ?, open = 0
      WHERE decision = 'pending'`,
    [tx.now],
  )
}

function* planAgain(tx: Transaction): Query<void> {
  for (let after: number | null = 0; after !== null;)
    after = yield* planFromNow(tx, after, BATCH_SIZE)
}
