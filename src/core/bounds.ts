/** Bound of a table whose rows people create: the same rule for all of them. */

/** True if the table takes no new row: `total` of at most `most` are stored. A stored row can be replaced. */
export function isFull(total: number, most: number, isNew = true): boolean {
  return isNew && total >= most
}
