/** State of the scheduled backups, as one setting of the store: all servers show it, and the next leader. */
import {type BackupState, NO_BACKUP} from '../../../core/backup.ts'
import {fence} from './lease.ts'
import type {Query, Transaction} from '../query.ts'
import {metaValue, putMeta} from './settings.ts'

export const BACKUP_STATE = 'backup_state'

export function* backupState(
  tx: Transaction,
): Query<{readonly now: number; readonly state: BackupState | null}> {
  const text = yield* metaValue(BACKUP_STATE)
  const state = text === null ? null : {...NO_BACKUP, ...(JSON.parse(text) as Partial<BackupState>)}
  return {now: tx.now, state}
}

export function* recordBackup(
  tx: Transaction,
  {term, state}: {readonly term: number; readonly state: BackupState},
): Query<void> {
  yield* fence(tx, term)
  yield* putMeta(BACKUP_STATE, JSON.stringify(state))
}
