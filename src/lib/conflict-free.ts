/**
 * Splits items into batches in which no two items share a key, so that one statement can apply a batch. Items
 * with a common key keep their order.
 */

/** `keysOf`: `null` = the item conflicts with all others: it has a batch of its own, in order. */
export function conflictFreeBatches<Item>(
  items: readonly Item[],
  keysOf: (item: Item) => readonly (string | number)[] | null,
): Item[][] {
  const batches: Item[][] = []
  /** The first batch that an item with this key can join. */
  const free = new Map<string | number, number>()
  let firstFree = 0
  for (const item of items) {
    const keys = keysOf(item)
    const index =
      keys === null
        ? batches.length
        : Math.max(firstFree, ...keys.map((key) => free.get(key) ?? firstFree))
    const batch = batches[index]
    if (batch === undefined) batches.push([item])
    else batch.push(item)
    if (keys === null) firstFree = index + 1
    else for (const key of keys) free.set(key, index + 1)
  }
  return batches
}
