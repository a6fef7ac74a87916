/**
 * The query string: read into pairs by hand, because lists and maps come in several spellings
 * (`metadata[k]=v`, `metadata[]=k:v`, `metadata=k=v`), and into numbers and choices with a sentence for what
 * they are not.
 */
import Type from 'typebox'
import {EXECUTION_STATUSES, KEPT_OUTPUT_BYTES} from './execution.ts'

export interface Limits {
  readonly minimum: number
  readonly maximum: number
}

/** More filters than any client sends; bounds the work of one request. */
export const FILTERS_MAX = 64

/** A parameter that cannot be read. `message` is a sentence that names it. */
export class QueryProblem extends Error {
  override readonly name = 'QueryProblem'
}

/** Names and values in the order sent, percent-decoded; a wrong escape is taken as the text it is. */
export class Query {
  readonly pairs: readonly (readonly [string, string])[]

  constructor(text: string) {
    this.pairs = text === '' ? [] : [...new URLSearchParams(text)]
  }

  has(name: string): boolean {
    return this.pairs.some(([key]) => key === name)
  }

  /** The first value; `null` when absent. */
  first(name: string): string | null {
    return this.pairs.find(([key]) => key === name)?.[1] ?? null
  }

  /** As `first`, an empty value counting as absent. */
  text(name: string): string | null {
    const value = this.first(name)
    return value === '' ? null : value
  }

  /** One of the choices, compared as written; `null` when absent or empty. */
  choice<Choice extends string>(name: string, choices: readonly Choice[]): Choice | null {
    const value = this.text(name)
    if (value === null) return null
    const choice = choices.find((known) => known === value)
    if (choice === undefined)
      throw new QueryProblem(`${name}: "${shown(value)}" is not known; use ${choices.join(', ')}`)
    return choice
  }

  /** True or false; `null` when absent or empty. */
  flag(name: string): boolean | null {
    const choice = this.choice(name, ['true', 'false'])
    return choice === null ? null : choice === 'true'
  }

  /** Present with any value but `false`. */
  switched(name: string): boolean {
    const value = this.first(name)
    return value !== null && value !== 'false'
  }

  /** An integer inside the limits, else a problem; `fallback` when absent or empty. */
  integer(name: string, fallback: number, limits: Limits): number {
    const value = this.text(name)
    if (value === null) return fallback
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : NaN
    if (!(number >= limits.minimum && number <= limits.maximum))
      throw new QueryProblem(
        `${name}: must be an integer from ${limits.minimum} to ${limits.maximum}, not "${shown(value)}"`,
      )
    return number
  }

  /** An integer that is moved into the limits when it lies outside; `fallback` when absent or empty. */
  clamped<Fallback extends number | null>(
    name: string,
    fallback: Fallback,
    limits: Limits,
  ): number | Fallback {
    const value = this.text(name)
    if (value === null) return fallback
    if (!/^-?\d+$/.test(value))
      throw new QueryProblem(`${name}: must be an integer, not "${shown(value)}"`)
    return Math.min(limits.maximum, Math.max(limits.minimum, Number(value)))
  }
}

const SHOWN_LENGTH_MAX = 64

function shown(value: string): string {
  return value.length > SHOWN_LENGTH_MAX ? `${value.slice(0, SHOWN_LENGTH_MAX)}…` : value
}

/*
 * What the lists can be asked for: paging, sorting, filters. The parameters stand here once, for reading and
 * for the OpenAPI document.
 */

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
