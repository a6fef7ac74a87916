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
