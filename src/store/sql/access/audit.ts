/**
 * The audit log. A row is written in the transaction of the change it records: no change without its row, no
 * row without its change. The row of a changed job holds the definition that the change replaced. The new one
 * is the job's current definition, or is in the row of the next change.
 */
import {BELFRY, type Change} from '../../../core/audit.ts'
import {type Query, sendEach, type Transaction, type Values} from '../query.ts'

const COLUMNS = `at, actor, accessor, token_kind, address, action, result, target_kind, target,
  detail, job_id, revision_before, revision_after, replaced, replaced_bytes`
const INSERT = `INSERT INTO audit (${COLUMNS}) VALUES (${COLUMNS.replaceAll(/\w+/g, '?')})`

export function* recordChange(tx: Transaction, change: Change): Query<void> {
  yield* recordChanges(tx, [change])
}

/** Records changes of one transaction, without a round trip of its own. */
export function* recordChanges(tx: Transaction, changes: readonly Change[]): Query<void> {
  yield* sendEach(
    INSERT,
    changes.map((change) => valuesOf(tx.now, change)),
  )
}

function valuesOf(now: number, change: Change): Values {
  const {
    actor = BELFRY,
    action,
    result = 'done',
    targetType,
    target,
    detail = '',
    job,
    replaced,
  } = change
  const {name, accessor, kind, address} = actor
  const revisions = [job?.id ?? null, job?.before ?? null, job?.after ?? null]
  const what = [action, result, targetType, target, detail]
  const bytes = replaced === undefined ? null : Buffer.byteLength(replaced)
  return [now, name, accessor, kind, address, ...what, ...revisions, replaced ?? null, bytes]
}
