/**
 * The list of jobs. Its `WHERE` and `ORDER BY` depend on the request, so the text is put together here.
 * It selects the matching ids first and loads the jobs in batches: the ids are one snapshot, and a hundred
 * thousand jobs do not block the event loop. Every value is a parameter; only constants become SQL text.
 */
import type {ShownJob} from '../../../core/job.ts'
import type {JobQuery, JobSort, MetadataFilter} from '../../../ports/job-store.ts'
import type {Page} from '../../../ports/page.ts'
import {PAUSES, type Pauses, shownJobs, type ShownRow, WAITS_FOR_NODE} from './job-conditions.ts'
import {type Condition, escapeLike, isShownName} from './name-filter.ts'
import {FROM_JOBS, JOB_COLUMNS} from '../rows.ts'
import {
  all,
  one,
  oneEach,
  type Query,
  together,
  type Transaction,
  yieldToEventLoop,
} from '../query.ts'

const SORT_COLUMNS: Readonly<Record<JobSort, string>> = {
  name: 'name',
  displayname: 'displayname',
  schedule: 'schedule',
  success_count: 'success_count',
  error_count: 'error_count',
  last_success: 'last_success',
  last_error: 'last_error',
  next: 'next_at',
  status: 'status',
}

/** Jobs loaded before the event loop gets a turn. */
const BATCH_JOBS = 500

const SHOWN_BY_NAME = `SELECT ${JOB_COLUMNS}, ${WAITS_FOR_NODE}, ${PAUSES} ${FROM_JOBS}
  WHERE j.name = ? AND j.deleted_at IS NULL`
const SHOWN_BY_ID = `SELECT ${JOB_COLUMNS}, ${WAITS_FOR_NODE} ${FROM_JOBS}
  WHERE j.id = ? AND j.deleted_at IS NULL`

export function* job(_tx: Transaction, name: string): Query<ShownJob | null> {
  const row = yield* one<ShownRow & Pauses>(SHOWN_BY_NAME, [name])
  if (row === null) return null
  const [shown] = yield* shownJobs([row], row)
  return shown!
}

export function* jobs(_tx: Transaction, query: JobQuery): Query<Page<ShownJob>> {
  const {sql: where, values} = conditionsOf(query)
  const limit = query.end === null ? Number.MAX_SAFE_INTEGER : Math.max(0, query.end - query.start)
  const [counted, ids] = yield* together(
    one<Pauses & {total: number}>(
      `SELECT COUNT(*) AS total, ${PAUSES} FROM jobs WHERE ${where}`,
      values,
    ),
    all<{id: number}>(
      `SELECT id FROM jobs WHERE ${where} ORDER BY ${orderOf(query)} LIMIT ? OFFSET ?`,
      [...values, limit, query.start],
    ),
  )
  const rows: ShownJob[] = []
  for (let from = 0; from < ids.length; from += BATCH_JOBS) {
    if (from > 0) yield* yieldToEventLoop()
    const batch = ids.slice(from, from + BATCH_JOBS).map(({id}) => [id])
    const found = (yield* oneEach<ShownRow>(SHOWN_BY_ID, batch)).filter((row) => row !== null)
    rows.push(...(yield* shownJobs(found, counted!)))
  }
  return {total: counted!.total, rows}
}

/** Jobs without a value are first in ascending order on every engine. Equal values are in order of name. */
function orderOf({sort, order}: JobQuery): string {
  const column = SORT_COLUMNS[sort]
  const direction = order === 'asc' ? 'ASC NULLS FIRST' : 'DESC NULLS LAST'
  return column === 'name' ? `name ${direction}` : `${column} ${direction}, name ASC`
}

function conditionsOf(query: JobQuery): Condition {
  const conditions: Condition[] = [{sql: 'deleted_at IS NULL', values: []}]
  const {names = null} = query
  if (names !== null) conditions.push(isShownName('name', names))
  if (query.text !== '') conditions.push(contains(query.text.toLowerCase()))
  if (query.status !== null) {
    const status = query.status === 'untriggered' ? '' : query.status
    conditions.push({sql: 'status = ?', values: [status]})
  }
  if (query.disabled !== null)
    conditions.push({sql: 'disabled = ?', values: [query.disabled ? 1 : 0]})
  conditions.push(...query.metadata.map(hasMetadata))
  return {
    sql: conditions.map(({sql}) => sql).join(' AND '),
    values: conditions.flatMap(({values}) => values),
  }
}

function contains(text: string): Condition {
  return {sql: `search_text LIKE ? ESCAPE '\\'`, values: [`%${escapeLike(text)}%`]}
}

function hasMetadata(filter: MetadataFilter): Condition {
  const ids = 'id IN (SELECT job_id FROM job_metadata WHERE'
  return 'either' in filter
    ? {sql: `${ids} (key = ? OR value = ?))`, values: [filter.either, filter.either]}
    : {sql: `${ids} key = ? AND value = ?)`, values: [filter.key, filter.value]}
}
