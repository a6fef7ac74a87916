/**
 * Query strings: parsed into pairs, and read as numbers, choices, paging and filters. Lists and maps come in
 * several spellings (`metadata[k]=v`, `metadata[]=k:v`, `metadata=k=v`), which no general parser reads. The
 * same constants describe the parameters in the OpenAPI document.
 */
import {Type} from 'typebox'
import {OUTPUT_KEPT_BYTES} from '../core/execution.ts'
import type {KeysetSlice, Position} from '../ports/page.ts'
import {parseTime} from '../lib/rfc3339.ts'
import {EXECUTION_STATUSES} from './execution.ts'

export interface Range {
  readonly minimum: number
  readonly maximum: number
}

/** More filters than any client sends. Bounds the work of one request. */
export const FILTERS_MAX = 64

/** An invalid parameter. `message` is a sentence that names it. */
export class QueryProblem extends Error {
  override readonly name = 'QueryProblem'
  readonly code: 'query_invalid' | 'cursor_invalid'

  constructor(message: string, code: QueryProblem['code'] = 'query_invalid') {
    super(message)
    this.code = code
  }
}

/** Names and values in the order sent, percent-decoded. An invalid escape stays as it is. */
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

  /** Value as of `first`; an empty value counts as absent. */
  text(name: string): string | null {
    const value = this.first(name)
    return value === '' ? null : value
  }

  /** Choice, case-sensitive; `null` when absent or empty. */
  choice<Choice extends string>(name: string, choices: readonly Choice[]): Choice | null {
    const value = this.text(name)
    if (value === null) return null
    const choice = choices.find((known) => known === value)
    if (choice === undefined)
      throw new QueryProblem(
        `${name}: "${shortened(value)}" is not known; use ${choices.join(', ')}`,
      )
    return choice
  }

  /** `null` when absent or empty. */
  boolean(name: string): boolean | null {
    const choice = this.choice(name, ['true', 'false'])
    return choice === null ? null : choice === 'true'
  }

  /** True when present with any value but `false`. */
  isSet(name: string): boolean {
    const value = this.first(name)
    return value !== null && value !== 'false'
  }

  /** An integer within the range; `fallback` when absent or empty. Throws outside of the range. */
  integer(name: string, fallback: number, range: Range): number {
    const value = this.text(name)
    if (value === null) return fallback
    const number = /^-?\d{1,15}$/.test(value) ? Number(value) : NaN
    if (!(number >= range.minimum && number <= range.maximum))
      throw new QueryProblem(
        `${name}: must be an integer from ${range.minimum} to ${range.maximum}, not "${shortened(value)}"`,
      )
    return number
  }

  /** An integer, clamped to the range; `fallback` when absent or empty. */
  clamped<Fallback extends number | null>(
    name: string,
    fallback: Fallback,
    range: Range,
  ): number | Fallback {
    const value = this.text(name)
    if (value === null) return fallback
    if (!/^-?\d+$/.test(value))
      throw new QueryProblem(`${name}: must be an integer, not "${shortened(value)}"`)
    return Math.min(range.maximum, Math.max(range.minimum, Number(value)))
  }
}

const SHOWN_LENGTH_MAX = 64

export function shortened(value: string): string {
  return value.length > SHOWN_LENGTH_MAX ? `${value.slice(0, SHOWN_LENGTH_MAX)}…` : value
}

/** Parameter of requests that define jobs. */
export const Strict = Type.Optional(
  Type.Boolean({description: 'An unknown field or parameter is an error, not ignored.'}),
)

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
/** Executions that have not been claimed are no runs: a list has them only on request. */
const ALL = 'all'
export const EXECUTION_FILTERS = [...EXECUTION_STATUSES, ALL] as const
export const JOB_STATUSES = ['success', 'failed', 'partially_failed', 'untriggered'] as const

/** Rows in one response, except for jobs: clients of this API expect the complete list of them. */
export const PAGE_ROWS_MAX = 1_000

/** Rows from `start` to before `end`; `null` = to the last. */
interface Rows {
  readonly start: number
  readonly end: number | null
}

type Order = 'asc' | 'desc'
type MetadataFilter = {readonly key: string; readonly value: string} | {readonly either: string}

const INDEX_LIMITS = {minimum: 0, maximum: Number.MAX_SAFE_INTEGER}

const Start = Type.Optional(Type.Integer({description: 'Index of the first row, from 0.'}))
const End = Type.Optional(Type.Integer({description: 'Index after the last row.'}))
const OrderBy = Type.Optional(
  Type.Enum(['ASC', 'DESC'], {description: 'Sort order, case-insensitive.'}),
)

export const Pretty = Type.Optional(
  Type.String({description: 'Indents the JSON. Any value but `false` counts.'}),
)

export const JobListQuery = Type.Object({
  metadata: Type.Optional(
    Type.Array(Type.String(), {
      description: '`key:value` or `key=value`; all must match. Also as `metadata[key]=value`.',
    }),
  ),
  q: Type.Optional(
    Type.String({description: 'Part of the name or displayname, case-insensitive.'}),
  ),
  status: Type.Optional(
    Type.Enum([...JOB_STATUSES], {
      description: 'Only jobs whose newest finished launch has this status.',
    }),
  ),
  disabled: Type.Optional(Type.Boolean({description: 'Only disabled jobs, or only enabled jobs.'})),
  _sort: Type.Optional(Type.Enum([...JOB_SORTS], {description: 'Sort field.'})),
  _order: OrderBy,
  _start: Start,
  _end: End,
})

export const OutputSizeLimit = Type.Optional(
  Type.Integer({
    description: `Bytes of output for each execution; at most ${OUTPUT_KEPT_BYTES} are returned.`,
    minimum: 0,
  }),
)

export const ExecutionListQuery = Type.Object({
  status: Type.Optional(
    Type.Enum([...EXECUTION_FILTERS], {
      description: 'Only executions in this state; without it all but `pending`.',
    }),
  ),
  output_size_limit: OutputSizeLimit,
  _sort: Type.Optional(Type.Enum([...EXECUTION_SORTS], {description: 'Sort field.'})),
  _order: OrderBy,
  _start: Start,
  _end: End,
})

export const PLANNED_COUNT = {minimum: 1, maximum: 100, default: 10}

const PLANNED_BOUND =
  'A time with offset; a date, or a date and time without offset, is in the time zone of the schedule.'

/** Parameters that choose planned times. */
export const PlannedQuery = {
  count: Type.Optional(
    Type.Integer({
      ...PLANNED_COUNT,
      description: `Number of planned times; with \`to\` the default is ${PLANNED_COUNT.maximum}.`,
    }),
  ),
  from: Type.Optional(
    Type.String({
      description: `First planned time, if there is one. Default: now. ${PLANNED_BOUND}`,
    }),
  ),
  to: Type.Optional(Type.String({description: `Planned times before it. ${PLANNED_BOUND}`})),
}

export const PageQuery = Type.Object({_start: Start, _end: End})

/** Instant of a parameter; `null` when absent or empty. */
export function readTime(query: Query, name: string): number | null {
  const value = query.text(name)
  if (value === null) return null
  const at = parseTime(value)
  if (at === null)
    throw new QueryProblem(`${name}: is not a time; write it as "2026-05-01T08:30:00Z"`)
  return at
}

const KEYSET_LIMIT = {minimum: 1, maximum: PAGE_ROWS_MAX, default: 100}

/** Parameters of lists without an end: their reply has the rows and `next`. */
export const KeysetQuery = {
  limit: Type.Optional(Type.Integer({...KEYSET_LIMIT, description: 'Rows of the page, at most.'})),
  after: Type.Optional(
    Type.String({description: '`next` of the previous page. Without it the list begins.'}),
  ),
}

/** Values that every store compares with its columns: a client may send anything. */
const IS_OF_KIND = {
  integer: (value: unknown) => Number.isSafeInteger(value),
  text: (value: unknown) => typeof value === 'string' && !value.includes('\0'),
}

/** `limit` and `after`. `kinds`: those of the values of a position of this list. */
export function readKeyset(query: Query, kinds: readonly (keyof typeof IS_OF_KIND)[]): KeysetSlice {
  const limit = query.integer('limit', KEYSET_LIMIT.default, KEYSET_LIMIT)
  const text = query.text('after')
  if (text === null) return {after: null, limit}
  const position = decodeCursor(text)
  const isOfList =
    position?.length === kinds.length && kinds.every((kind, at) => IS_OF_KIND[kind](position[at]))
  if (!isOfList)
    throw new QueryProblem(
      'after: must be the `next` of a page of this list; begin without it',
      'cursor_invalid',
    )
  return {after: position as Position, limit}
}

/** `next` of a page: opaque to clients, in the letters of an URL. */
export function encodeCursor(position: Position | null): string | null {
  if (position === null) return null
  const bytes = new TextEncoder().encode(JSON.stringify(position))
  return bytes.toBase64({alphabet: 'base64url', omitPadding: true})
}

/** `null` = it is no cursor. */
function decodeCursor(text: string): readonly unknown[] | null {
  try {
    const bytes = Uint8Array.fromBase64(text, {alphabet: 'base64url'})
    const position: unknown = JSON.parse(new TextDecoder().decode(bytes))
    return Array.isArray(position) ? position : null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

/** `count`, `from` and `to` of planned times. */
export function readPlannedRange(query: Query) {
  const to = query.text('to')
  const preset = to === null ? PLANNED_COUNT.default : PLANNED_COUNT.maximum
  return {count: query.integer('count', preset, PLANNED_COUNT), from: query.text('from'), to}
}

/** `_start` and `_end`, clamped; at most `rowsMax` rows unless it is `null`. */
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
    disabled: query.boolean('disabled'),
    sort: sort === 'id' ? 'name' : sort,
    order: readOrder(query, 'asc'),
  }
}

/** `outputBytes` = the requested limit, `null` without one. The operation bounds it. */
export function readExecutionQuery(query: Query) {
  const status = query.choice('status', EXECUTION_FILTERS) ?? ('not_pending' as const)
  return {
    ...readSlice(query, PAGE_ROWS_MAX),
    sort: query.choice('_sort', EXECUTION_SORTS) ?? 'id',
    order: readOrder(query, 'desc'),
    status: status === ALL ? null : status,
    outputBytes: readOutputLimit(query),
  }
}

/** `output_size_limit`, at most what is stored; `null` when absent. */
export function readOutputLimit(query: Query): number | null {
  const text = query.text('output_size_limit')
  if (text?.startsWith('-') === true)
    throw new QueryProblem(`output_size_limit: must be an integer from 0, not "${shortened(text)}"`)
  return query.clamped('output_size_limit', null, {minimum: 0, maximum: OUTPUT_KEPT_BYTES})
}

function readOrder(query: Query, fallback: Order): Order {
  const value = query.text('_order')
  if (value === null) return fallback
  const order = value.toLowerCase()
  if (order !== 'asc' && order !== 'desc')
    throw new QueryProblem(`_order: must be ASC or DESC, not "${shortened(value)}"`)
  return order
}

/** Lists as clients encode them: `metadata=…`, `metadata[]=…` and, only for pairs, `metadata[0]=…`. */
const LIST_NAME = /^metadata(?:\[\d*\])?$/
const PAIR = /^([^:=]+)[:=](.*)$/s

/**
 * `metadata[k]=v`; as a list `k:v` or `k=v`; a bare text in a list matches a key or a value. A number in
 * brackets is the index of a list if the value is a pair, else a key.
 */
export function readMetadataFilters(query: Query): MetadataFilter[] {
  const filters: MetadataFilter[] = []
  for (const [name, value] of query.pairs) {
    const pair = LIST_NAME.test(name) ? PAIR.exec(value) : null
    const key = /^metadata\[(.+)\]$/s.exec(name)?.[1]
    if (pair !== null) filters.push({key: pair[1]!, value: pair[2]!})
    else if (key !== undefined) filters.push({key, value})
    else if (LIST_NAME.test(name) && value !== '') filters.push({either: value})
  }
  if (filters.length > FILTERS_MAX)
    throw new QueryProblem(`metadata: at most ${FILTERS_MAX} filters are allowed`)
  return filters
}
