/**
 * Pages of a list by keyset: a page begins after the position that the previous one returned. It costs the
 * same however far it is from the first, and rows that are added meanwhile shift nothing.
 */
import type {KeysetPage, KeysetSlice, Order, Position} from '../../ports/page.ts'
import {all, one, type Query, type Row, type Values} from './query.ts'

export interface KeysetList {
  /** Columns to read, among them those of `key`. */
  readonly columns: string
  /** Tables with the columns of `key`. */
  readonly from: string
  /** Joins that neither add nor remove rows. */
  readonly joins?: string
  /** Condition that the index of the list serves. */
  readonly where: string
  readonly values?: Values
  /**
   * Range of the list, in its order: rows beyond `begin`, up to `end` included. Either may have only the
   * first columns of `key`. A page replaces them by its own bounds: of two bounds on a column, a planner may
   * seek the wrong one.
   */
  readonly range?: {readonly begin: Position | null; readonly end: Position | null}
  /**
   * Condition for the rows of a page, of which at most `visitedMax` are read: a page may be short, or empty,
   * and still have a next one. Absent = all.
   */
  readonly filter?: {
    readonly where: string
    readonly values: Values
    readonly visitedMax: number
  }
  /** Columns that order the list, as in its index: together unique, never null. */
  readonly key: readonly string[]
  readonly order: Order
}

export function* keysetPage<Item extends object = Row>(
  list: KeysetList,
  {after, limit}: KeysetSlice,
): Query<KeysetPage<Item>> {
  const {columns, from, joins = '', where, values = [], filter, key, order} = list
  const {range = {begin: null, end: null}} = list
  const begin = after ?? range.begin
  const [beyond, within] = order === 'asc' ? ['>', '<='] : ['<', '>=']
  const bounded = (comparison: string, position: Position | null) => {
    if (position === null) return ''
    const bound = key.slice(0, position.length).join(', ')
    return ` AND (${bound}) ${comparison} (${position.map(() => '?').join(', ')})`
  }
  const beyondBegin = `WHERE ${where}${bounded(beyond, begin)}`
  const beginValues = [...values, ...(begin ?? [])]
  const inOrder = `ORDER BY ${key.map((column) => `${column} ${order}`).join(', ')}`
  const positionOf = (row: object | null | undefined): Position | null => {
    if (row === null || row === undefined) return null
    const named = row as Readonly<Record<string, string | number>>
    return key.map((column) => named[column.slice(column.lastIndexOf('.') + 1)]!)
  }
  // Reads only the index.
  const visitedEnd =
    filter === undefined
      ? null
      : positionOf(
          yield* one(
            `SELECT ${key.join(', ')} FROM ${from} ${beyondBegin}${bounded(within, range.end)}
              ${inOrder} LIMIT 1 OFFSET ?`,
            [...beginValues, ...(range.end ?? []), filter.visitedMax - 1],
          ),
        )
  const end = visitedEnd ?? range.end
  const filtered = filter === undefined ? '' : ` AND (${filter.where})`
  const rows = yield* all<Item>(
    `SELECT ${columns} FROM ${from} ${joins} ${beyondBegin}${bounded(within, end)}${filtered}
      ${inOrder} LIMIT ?`,
    // A further row shows that this is not the last page.
    [...beginValues, ...(end ?? []), ...(filter?.values ?? []), limit + 1],
  )
  const hasMore = rows.length > limit
  return {items: rows.slice(0, limit), next: hasMore ? positionOf(rows[limit - 1]) : visitedEnd}
}
