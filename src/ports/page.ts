/** Stretches of long lists, and their order: shared by all reads that can be long. */
export type Order = 'asc' | 'desc'

/** Rows `start` (inclusive) to `end` (exclusive); `end` `null` = to the last. */
export interface Slice {
  readonly start: number
  readonly end: number | null
}

/** `total` is the count before slicing; both are of one snapshot. */
export interface Page<Row> {
  readonly total: number
  readonly rows: readonly Row[]
}
