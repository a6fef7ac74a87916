/**
 * The list of jobs, built at run time because its filters vary. Finds the matching ids first and then reads
 * the jobs in pieces of one snapshot, so that 100,000 jobs do not block the event loop.
 */
import {
  DummyDriver,
  type Expression,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryCompiler,
  sql,
  type SqlBool,
  SqliteQueryCompiler,
} from 'kysely'
import type {JobRecord} from '../../core/job.ts'
import type {JobQuery, JobSort, MetadataFilter} from '../../ports/job-store.ts'
import type {Page} from '../../ports/page.ts'
import {loadJob, loadJobs} from './jobs.ts'
import {all, yieldToEventLoop, one, type Query, type Transaction, type Value} from './query.ts'

/** The columns that the list filters and sorts by. */
interface Tables {
  readonly jobs: {
    readonly id: number
    readonly name: string
    readonly displayname: string
    readonly search_text: string
    readonly schedule: string
    readonly disabled: number
    readonly success_count: number
    readonly error_count: number
    readonly last_success: number | null
    readonly last_error: number | null
    readonly next_at: number | null
    readonly status: string
    readonly deleted_at: number | null
  }
  readonly job_metadata: {readonly job_id: number; readonly key: string; readonly value: string}
}

const SORT_COLUMNS = {
  name: 'name',
  displayname: 'displayname',
  schedule: 'schedule',
  success_count: 'success_count',
  error_count: 'error_count',
  last_success: 'last_success',
  last_error: 'last_error',
  next: 'next_at',
  status: 'status',
} as const satisfies Record<JobSort, keyof Tables['jobs']>

/** Jobs read before the query yields to the event loop. */
const JOBS_PER_YIELD = 500

export function* job(_tx: Transaction, name: string): Query<JobRecord | null> {
  return yield* loadJob(name)
}

export function* jobs(tx: Transaction, query: JobQuery): Query<Page<JobRecord>> {
  const filtered = matching(builders[tx.dialect.engine], query)
  const counting = filtered.select(({fn}) => fn.countAll<number>().as('total')).compile()
  const counted = yield* one<{total: number}>(counting.sql, counting.parameters as Value[])
  const column = SORT_COLUMNS[query.sort]
  let listing = filtered
    .select('jobs.id')
    .orderBy(`jobs.${column}`, (by) =>
      query.order === 'asc' ? by.asc().nullsFirst() : by.desc().nullsLast(),
    )
    .limit(query.end === null ? Number.MAX_SAFE_INTEGER : Math.max(0, query.end - query.start))
    .offset(query.start)
  if (column !== 'name') listing = listing.orderBy('jobs.name', 'asc')
  const {sql: text, parameters} = listing.compile()
  const ids = yield* all<{id: number}>(text, parameters as Value[])
  const rows: JobRecord[] = []
  for (let from = 0; from < ids.length; from += JOBS_PER_YIELD) {
    if (from > 0) yield* yieldToEventLoop()
    const piece = ids.slice(from, from + JOBS_PER_YIELD).map(({id}) => id)
    for (const found of yield* loadJobs(piece)) if (found !== null) rows.push(found)
  }
  return {total: counted?.total ?? 0, rows}
}

const builders = {
  sqlite: builder(new SqliteQueryCompiler()),
  postgres: builder(new PostgresQueryCompiler()),
}

/** Builds SQL texts for one engine; has no connection and runs nothing. */
function builder(compiler: QueryCompiler): Kysely<Tables> {
  return new Kysely<Tables>({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => new DummyDriver(),
      createIntrospector: (db) => new PostgresIntrospector(db),
      createQueryCompiler: () => compiler,
    },
  })
}

function matching(builder: Kysely<Tables>, query: JobQuery) {
  let filtered = builder.selectFrom('jobs').where('jobs.deleted_at', 'is', null)
  if (query.text !== '') filtered = filtered.where(contains(query.text.toLowerCase()))
  if (query.status !== null) {
    const status = query.status === 'untriggered' ? '' : query.status
    filtered = filtered.where('jobs.status', '=', status)
  }
  if (query.disabled !== null)
    filtered = filtered.where('jobs.disabled', '=', query.disabled ? 1 : 0)
  for (const filter of query.metadata) filtered = filtered.where(hasMetadata(builder, filter))
  return filtered
}

function contains(text: string): Expression<SqlBool> {
  const pattern = `%${text.replaceAll(/[\\%_]/g, (found) => `\\${found}`)}%`
  return sql<SqlBool>`jobs.search_text LIKE ${pattern} ESCAPE '\\'`
}

function hasMetadata(builder: Kysely<Tables>, filter: MetadataFilter): Expression<SqlBool> {
  const ids = builder.selectFrom('job_metadata').select('job_metadata.job_id')
  const found =
    'either' in filter
      ? ids.where(({eb, or}) =>
          or([eb('key', '=', filter.either), eb('value', '=', filter.either)]),
        )
      : ids.where('key', '=', filter.key).where('value', '=', filter.value)
  return sql<SqlBool>`jobs.id IN ${found}`
}
