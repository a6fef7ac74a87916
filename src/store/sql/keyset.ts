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
  const [beyond, within] = order === 'asc' ? ['>', '<='] : ['<', '>=']
  const bounded = (comparison: string, position: Position | null) =>
    position === null
      ? ''
      : ` AND (${key.join(', ')}) ${comparison} (${key.map(() => '?').join(', ')})`
  const inRange = `WHERE ${where}${bounded(beyond, after)}`
  const rangeValues = [...values, ...(after ?? [])]
  const inOrder = `ORDER BY ${key.map((column) => `${column} ${order}`).join(', ')}`
  const positionOf = (row: object | null | undefined): Position | null => {
    if (row === null || row === undefined) return null
    const named = row as Readonly<Record<string, string | number>>
    return key.map((column) => named[column.slice(column.lastIndexOf('.') + 1)]!)
  }
  // Reads only the index.
  const end =
    filter === undefined
      ? null
      : positionOf(
          yield* one(
            `SELECT ${key.join(', ')} FROM ${from} ${inRange} ${inOrder} LIMIT 1 OFFSET ?`,
            [...rangeValues, filter.visitedMax - 1],
          ),
        )
  const filtered = filter === undefined ? '' : ` AND (${filter.where})`
  const rows = yield* all<Item>(
    `SELECT ${columns} FROM ${from} ${joins} ${inRange}${bounded(within, end)}${filtered}
      ${inOrder} LIMIT ?`,
    // A further row shows that this is not the last page.
    [...rangeValues, ...(end ?? []), ...(filter?.values ?? []), limit + 1],
  )
  const hasMore = rows.length > limit
  return {items: rows.slice(0, limit), next: hasMore ? positionOf(rows[limit - 1]) : end}
}
