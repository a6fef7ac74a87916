/** Lists that a server sends in pages. A page may be short, or empty, and have a next one. */
import type {Session} from './session.ts'

/** Rows that a server sends at once. */
const PAGE_ROWS = 1_000

export interface Pages<Row, Reply> {
  readonly rows: readonly Row[]
  /** The first reply. */
  readonly first: Reply
  /** Position of the next page; `null` = the list ends here. */
  readonly next: string | null
}

/** At most `limit` rows. `key`: the field of the reply that has them. */
export async function pages<Row, Reply = unknown>(
  {client}: Session,
  path: string,
  key: string,
  query: Readonly<Record<string, string | number | undefined>>,
  limit: number,
): Promise<Pages<Row, Reply>> {
  const rows: Row[] = []
  let first: Reply | null = null
  let after: string | null = null
  do {
    const page = {limit: Math.min(PAGE_ROWS, limit - rows.length), after: after ?? undefined}
    const {value} = await client.call<Record<string, unknown>>('GET', path, {
      query: {...query, ...page},
    })
    first ??= value as Reply
    rows.push(...(value[key] as readonly Row[]))
    after = value['next'] as string | null
  } while (after !== null && rows.length < limit)
  return {rows, first, next: after}
}
