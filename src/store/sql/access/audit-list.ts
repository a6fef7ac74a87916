/** Reads the audit log: the list of entries, and the history of a job, which is in the same rows. */
import {type JobSpec, specOf} from '../../../core/job-fields.ts'
import type {AuditEntry, AuditQuery, Revision} from '../../../ports/audit-store.ts'
import type {Page, Slice} from '../../../ports/page.ts'
import {type Condition, isShownName} from '../jobs/name-filter.ts'
import {all, one, oneEach, type Query, together, type Transaction} from '../query.ts'

/** A page has up to a thousand rows, each with two of these. */
const LISTED_LENGTH_MAX = 16 * 1024

interface AuditRow {
  readonly id: number
  readonly at: number
  readonly actor: string
  readonly accessor: string
  readonly token_kind: string
  readonly address: string
  readonly action: string
  readonly result: AuditEntry['result']
  readonly target_kind: AuditEntry['targetType']
  readonly target: string
  readonly detail: string
  readonly job_id: number | null
  readonly revision_before: number | null
  readonly revision_after: number | null
  readonly replaced: string | null
}

/** `isShown`: a condition; of other rows, the definitions are left out. */
function columnsFor(isShown: string): string {
  return `id, at, actor, accessor, token_kind, address, action, result, target_kind, target, detail,
    CASE WHEN ${isShown} THEN job_id END AS job_id, revision_before, revision_after,
    CASE WHEN ${isShown} AND length(replaced) <= ${LISTED_LENGTH_MAX} THEN replaced END AS replaced`
}

const COLUMNS = columnsFor('1 = 1')
/** The name of a deleted job may be another's now: who reads the new job must not read the old one. */
const COLUMNS_OF_LIVE_JOBS = columnsFor(
  'EXISTS (SELECT 1 FROM jobs j WHERE j.id = audit.job_id AND j.deleted_at IS NULL)',
)

export function* audit(_tx: Transaction, query: AuditQuery): Query<Page<AuditEntry>> {
  const {sql: where, values} = conditionsOf(query)
  const limit = query.end === null ? Number.MAX_SAFE_INTEGER : Math.max(0, query.end - query.start)
  const columns = query.names === null ? COLUMNS : COLUMNS_OF_LIVE_JOBS
  const [counted, rows] = yield* together(
    one<{total: number}>(`SELECT count(*) AS total FROM audit WHERE ${where}`, values),
    all<AuditRow>(`SELECT ${columns} FROM audit WHERE ${where} ORDER BY id DESC LIMIT ? OFFSET ?`, [
      ...values,
      limit,
      query.start,
    ]),
  )
  const after = yield* replacements(rows)
  return {total: counted?.total ?? 0, rows: rows.map((row) => entryOf(row, after))}
}

function conditionsOf({
  actor,
  action,
  targetType,
  target,
  result,
  from,
  to,
  names,
}: AuditQuery): Condition {
  const conditions: Condition[] = [{sql: '1 = 1', values: []}]
  const add = (sql: string, ...values: readonly (string | number)[]) => {
    conditions.push({sql, values})
  }
  if (actor !== '') add('(actor = ? OR accessor = ?)', actor, actor)
  // The order of texts has `job.` before all actions of jobs, and `job/` after them.
  if (action !== '')
    add('(action = ? OR action > ? AND action < ?)', action, `${action}.`, `${action}/`)
  if (targetType !== null) add('target_kind = ?', targetType)
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

/**
 * The definition of a revision: the row of the next change has it, else it is the current one. The values are
 * those of `definitionValues`.
 */
const DEFINITION = `coalesce(
  (SELECT replaced FROM audit WHERE job_id = ? AND revision_after = ?),
  (SELECT replaced FROM audit WHERE job_id = ? AND revision_after IS NULL AND revision_before = ?),
  (SELECT d.definition FROM definitions d JOIN jobs j ON j.id = d.job_id
    WHERE j.id = ? AND j.revision = ?))`

function definitionValues(jobId: number, revision: number): number[] {
  return [jobId, revision + 1, jobId, revision, jobId, revision]
}

/** The rules that a row stored: the next row of the policy has them, else they are the current ones. */
const RULES = `coalesce(
  (SELECT replaced FROM audit WHERE target = ? AND id > ? AND target_kind = 'policy'
    ORDER BY id LIMIT 1),
  (SELECT rules FROM policies WHERE name = ?))`

function listed(text: string): string {
  return `SELECT text FROM (SELECT ${text} AS text) AS found WHERE length(text) <= ${LISTED_LENGTH_MAX}`
}

/** Texts that the rows stored, by the id of the row. */
function* replacements(rows: readonly AuditRow[]): Query<ReadonlyMap<number, string>> {
  const ofJobs = rows.filter((row) => row.job_id !== null && row.revision_after !== null)
  const ofPolicies = rows.filter(({action}) => action === 'policy.set')
  const [definitions, rules] = yield* together(
    oneEach<{text: string}>(
      listed(DEFINITION),
      ofJobs.map((row) => definitionValues(row.job_id!, row.revision_after!)),
    ),
    oneEach<{text: string}>(
      listed(RULES),
      ofPolicies.map(({id, target}) => [target, id, target]),
    ),
  )
  const texts = [...definitions, ...rules]
  return new Map(
    [...ofJobs, ...ofPolicies].flatMap(({id}, at) => {
      const found = texts[at] ?? null
      return found === null ? [] : [[id, found.text]]
    }),
  )
}

function entryOf(row: AuditRow, after: ReadonlyMap<number, string>): AuditEntry {
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
    targetType: row.target_kind,
    target: row.target,
    detail: row.detail,
    revisionBefore: row.revision_before,
    revisionAfter: row.revision_after,
    before: row.replaced,
    after: after.get(row.id) ?? null,
  }
}

/** Revisions of a job whose definition or whose change is known. */
const REVISIONS = `SELECT revision_after AS revision FROM audit
    WHERE job_id = ? AND revision_after IS NOT NULL
  UNION SELECT revision_before FROM audit WHERE job_id = ? AND revision_before IS NOT NULL
  UNION SELECT revision FROM jobs WHERE id = ?`

const MADE_BY = `SELECT ${COLUMNS} FROM audit WHERE job_id = ? AND revision_after = ?`

export function* revisions(
  _tx: Transaction,
  name: string,
  {start, end}: Slice,
): Query<Page<Revision> | null> {
  const id = yield* liveJob(name)
  if (id === null) return null
  const limit = end === null ? Number.MAX_SAFE_INTEGER : Math.max(0, end - start)
  const [counted, rows] = yield* together(
    one<{total: number}>(`SELECT count(*) AS total FROM (${REVISIONS}) AS known`, [id, id, id]),
    all<{revision: number}>(`${REVISIONS} ORDER BY revision DESC LIMIT ? OFFSET ?`, [
      id,
      id,
      id,
      limit,
      start,
    ]),
  )
  const made = yield* oneEach<AuditRow>(
    MADE_BY,
    rows.map(({revision}) => [id, revision]),
  )
  return {
    total: counted?.total ?? 0,
    rows: rows.map(({revision}, at) => revisionOf(revision, made[at] ?? null)),
  }
}

export function* revision(
  _tx: Transaction,
  name: string,
  number: number,
): Query<{revision: Revision; spec: JobSpec} | null> {
  const id = yield* liveJob(name)
  if (id === null) return null
  const [found, made] = yield* together(
    one<{definition: string | null}>(
      `SELECT ${DEFINITION} AS definition`,
      definitionValues(id, number),
    ),
    one<AuditRow>(MADE_BY, [id, number]),
  )
  const definition = found?.definition ?? null
  if (definition === null) return null
  return {revision: revisionOf(number, made), spec: specOf(definition)}
}

function* liveJob(name: string): Query<number | null> {
  const row = yield* one<{id: number}>(
    `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL`,
    [name],
  )
  return row?.id ?? null
}

function revisionOf(number: number, row: AuditRow | null): Revision {
  if (row === null) return {revision: number, change: null}
  const {at, actor, action, detail} = entryOf(row, new Map())
  return {revision: number, change: {at, actor, action, detail}}
}
