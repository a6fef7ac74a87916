/** Pages of long lists and their order, for all reads that can be long. */
export type Order = 'asc' | 'desc'

/** Rows from `start` (inclusive) to `end` (exclusive); `end` `null` = to the last row. */
export interface Slice {
  readonly start: number
  readonly end: number | null
}

/** `total`: the count before slicing. Both fields are of one snapshot. */
export interface Page<Row> {
  readonly total: number
  readonly rows: readonly Row[]
}

/** Place between two rows of a list: the values of the columns that order it. */
export type Position = readonly (string | number)[]

/** Rows of a list without an end; `after` `null` = from its beginning. */
export interface KeysetSlice {
  readonly after: Position | null
  readonly limit: number
}

/** `next`: `after` of the next page, also if this one is short; `null` = this is the last. */
export interface KeysetPage<Row> {
  readonly items: readonly Row[]
  readonly next: Position | null
}
