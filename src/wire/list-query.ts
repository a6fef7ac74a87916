/**
 * What the lists can be asked for: paging, sorting, filters. The parameters stand here once, for reading and
 * for the OpenAPI document.
 */
import Type from 'typebox'
import {EXECUTION_STATUSES} from './execution.ts'
import {KEPT_OUTPUT_BYTES} from './output.ts'
import {FILTERS_MAX, type Query, QueryProblem} from './query.ts'

const JOB_SORTS = [
  'name',
  'id',
  'displayname',
  'schedule',
  'success_count',
  'error_count',
  'last_success',
  'last_error',
  'next',
  'status',
] as const
const EXECUTION_SORTS = ['id', 'started_at', 'finished_at', 'attempt'] as const
const JOB_STATUSES = ['success', 'failed', 'partially_failed', 'untriggered'] as const

/**
 * Rows of executions, launches and the like in one answer. Jobs have no such limit: clients expect all of
 * them.
 */
export const PAGE_ROWS_MAX = 1_000

/** Rows `start` (inclusive) to `end` (exclusive); `end` `null` = to the last. */
interface Rows {
  readonly start: number
  readonly end: number | null
}

type Order = 'asc' | 'desc'
type MetadataFilter = {readonly key: string; readonly value: string} | {readonly either: string}

const INDEX_LIMITS = {minimum: 0, maximum: Number.MAX_SAFE_INTEGER}

const Start = Type.Optional(Type.Integer({description: 'Index of the first row, from 0.'}))
const End = Type.Optional(Type.Integer({description: 'Index after the last row.'}))
const OrderBy = Type.Optional(Type.Enum(['ASC', 'DESC'], {description: 'Sort order, in any case.'}))

export const Pretty = Type.Optional(
  Type.String({description: 'Present with any value but `false`: the answer is indented.'}),
)

export const JobListQuery = Type.Object({
  metadata: Type.Optional(
    Type.Array(Type.String(), {
      description: '`key:value` or `key=value`, all must match; also as `metadata[key]=value`.',
    }),
  ),
  q: Type.Optional(Type.String({description: 'Part of the name or displayname, in any case.'})),
  status: Type.Optional(
    Type.Enum([...JOB_STATUSES], {
      description: 'Only those whose newest finished launch ended so.',
    }),
  ),
  disabled: Type.Optional(
    Type.Boolean({description: 'Only those that are disabled, or that are not.'}),
  ),
  _sort: Type.Optional(Type.Enum([...JOB_SORTS], {description: 'Sort field.'})),
  _order: OrderBy,
  _start: Start,
  _end: End,
})

export const ExecutionListQuery = Type.Object({
  status: Type.Optional(
    Type.Enum([...EXECUTION_STATUSES], {description: 'Only those in this state.'}),
  ),
  output_size_limit: Type.Optional(
    Type.Integer({description: 'Bytes of output for each execution; 0 = none.', minimum: 0}),
  ),
  _sort: Type.Optional(Type.Enum([...EXECUTION_SORTS], {description: 'Sort field.'})),
  _order: OrderBy,
  _start: Start,
  _end: End,
})

export const PageQuery = Type.Object({_start: Start, _end: End})

/** `_start` and `_end`, clamped; at most `rowsMax` rows when given. */
export function readSlice(query: Query, rowsMax: number | null = null): Rows {
  const start = query.clamped('_start', 0, INDEX_LIMITS)
  const end = query.clamped('_end', null, INDEX_LIMITS)
  const last = end === null ? null : Math.max(start, end)
  if (rowsMax === null) return {start, end: last}
  return {start, end: Math.min(last ?? Number.MAX_SAFE_INTEGER, start + rowsMax)}
}

export function readJobQuery(query: Query) {
  const sort = query.choice('_sort', JOB_SORTS) ?? 'name'
  return {
    ...readSlice(query),
    metadata: readMetadataFilters(query),
    text: query.first('q') ?? '',
    status: query.choice('status', JOB_STATUSES),
    disabled: query.flag('disabled'),
    sort: sort === 'id' ? 'name' : sort,
    order: readOrder(query, 'asc'),
  }
}

/** `outputBytes` is the caller's wish, `null` when it said nothing; the operation bounds it. */
export function readExecutionQuery(query: Query) {
  return {
    ...readSlice(query, PAGE_ROWS_MAX),
    sort: query.choice('_sort', EXECUTION_SORTS) ?? 'id',
    order: readOrder(query, 'desc'),
    status: query.choice('status', EXECUTION_STATUSES),
    outputBytes: readOutputLimit(query),
  }
}

/** `output_size_limit`; more than is ever kept means all. `null` = not said. */
export function readOutputLimit(query: Query): number | null {
  return query.clamped('output_size_limit', null, {minimum: 0, maximum: KEPT_OUTPUT_BYTES})
}

function readOrder(query: Query, fallback: Order): Order {
  const value = query.text('_order')
  if (value === null) return fallback
  const order = value.toLowerCase()
  if (order !== 'asc' && order !== 'desc')
    throw new QueryProblem(`_order: must be ASC or DESC, not "${value.slice(0, 64)}"`)
  return order
}

/**
 * `metadata[k]=v`; `metadata=k:v`, `metadata=k=v` (also as `metadata[]`); a bare `metadata=x` matches a key
 * or a value.
 */
function readMetadataFilters(query: Query): MetadataFilter[] {
  const filters: MetadataFilter[] = []
  for (const [name, value] of query.pairs) {
    if (name === 'metadata' || name === 'metadata[]') {
      if (value === '') continue
      const border = value.search(/[:=]/)
      filters.push(
        border > 0
          ? {key: value.slice(0, border), value: value.slice(border + 1)}
          : {either: value},
      )
      continue
    }
    const key = /^metadata\[(.+)\]$/s.exec(name)?.[1]
    if (key !== undefined) filters.push({key, value})
  }
  if (filters.length > FILTERS_MAX)
    throw new QueryProblem(`metadata: at most ${FILTERS_MAX} filters are allowed`)
  return filters
}
