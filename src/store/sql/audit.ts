/**
 * The audit log. A row is written in the transaction of the change it records: no change without its row, no
 * row without its change. The row of a changed job holds the definition that the change replaced. The new one
 * is the job's current definition, or is in the row of the next change.
 */
import {BELFRY} from '../../core/audit.ts'
import type {JobRecord} from '../../core/job.ts'
import type {AuditEntry, AuditQuery, Change} from '../../ports/audit-store.ts'
import type {Page} from '../../ports/page.ts'
import {type Condition, isShownName} from './name-filter.ts'
import {all, one, type Query, sendEach, together, type Transaction, type Values} from './query.ts'

const COLUMNS = `at, actor, accessor, token_kind, address, action, result, target_kind, target,
  detail, job_id, revision_before, revision_after, replaced`
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
  const {actor = BELFRY, action, result = 'done', on, target, detail = '', job, replaced} = change
  const {name, accessor, kind, address} = actor
  const revisions = [job?.id ?? null, job?.before ?? null, job?.after ?? null]
  const what = [action, result, on, target, detail]
  return [now, name, accessor, kind, address, ...what, ...revisions, replaced ?? null]
}

/** What a change did to the definition of a stored job. `after` `null` = the job was deleted. */
export function replacedBy(
  {id, revision, spec}: JobRecord,
  after: number | null,
): Pick<Change, 'job' | 'replaced'> {
  return {job: {id, before: revision, after}, replaced: JSON.stringify(spec)}
}

const LISTED = `id, at, actor, accessor, token_kind, address, action, result, target_kind, target, detail,
  revision_before, revision_after`

interface AuditRow {
  readonly id: number
  readonly at: number
  readonly actor: string
  readonly accessor: string
  readonly token_kind: string
  readonly address: string
  readonly action: string
  readonly result: AuditEntry['result']
  readonly target_kind: AuditEntry['on']
  readonly target: string
  readonly detail: string
  readonly revision_before: number | null
  readonly revision_after: number | null
}

export function* audit(_tx: Transaction, query: AuditQuery): Query<Page<AuditEntry>> {
  const {sql: where, values} = conditionsOf(query)
  const limit = query.end === null ? Number.MAX_SAFE_INTEGER : Math.max(0, query.end - query.start)
  const [counted, rows] = yield* together(
    one<{total: number}>(`SELECT count(*) AS total FROM audit WHERE ${where}`, values),
    all<AuditRow>(`SELECT ${LISTED} FROM audit WHERE ${where} ORDER BY id DESC LIMIT ? OFFSET ?`, [
      ...values,
      limit,
      query.start,
    ]),
  )
  return {total: counted?.total ?? 0, rows: rows.map(entryOf)}
}

function conditionsOf({actor, action, on, target, result, from, to, names}: AuditQuery): Condition {
  const conditions: Condition[] = [{sql: '1 = 1', values: []}]
  const add = (sql: string, ...values: readonly (string | number)[]) => {
    conditions.push({sql, values})
  }
  if (actor !== '') add('(actor = ? OR accessor = ?)', actor, actor)
  // `job.` is before all actions of jobs, and `job/` is after them.
  if (action !== '')
    add('(action = ? OR action > ? AND action < ?)', action, `${action}.`, `${action}/`)
  if (on !== null) add('target_kind = ?', on)
  if (target !== '') add('target = ?', target)
  if (result !== null) add('result = ?', result)
  if (from !== null) add('at >= ?', from)
  if (to !== null) add('at < ?', to)
  if (names !== null) {
    add(`target_kind = 'job'`)
    conditions.push(isShownName('target', names))
  }
  return {
    sql: conditions.map(({sql}) => sql).join(' AND '),
    values: conditions.flatMap(({values}) => values),
  }
}

function entryOf(row: AuditRow): AuditEntry {
  return {
    id: row.id,
    at: row.at,
    actor: {
      name: row.actor,
      accessor: row.accessor,
      kind: row.token_kind,
      address: row.address,
    },
    action: row.action,
    result: row.result,
    on: row.target_kind,
    target: row.target,
    detail: row.detail,
    revisionBefore: row.revision_before,
    revisionAfter: row.revision_after,
  }
}
