/** Spans of disabled jobs that have not ended. */
import type {LaunchRecord} from '../../../core/launch-record.ts'
import type {ProblemQuery} from '../../../ports/history-store.ts'
import {keysetPage} from '../keyset.ts'
import type {Query, Transaction} from '../query.ts'
import {LAUNCH_COLUMNS, launchOf, type LaunchRow} from '../rows.ts'
import {allOf, condition, hasMetadata, ofNames} from './across-jobs.ts'
import {countOpenSpans} from './disabled-spans.ts'
import type {Rows} from './problem-attempts.ts'

/** Spans that are counted, some 10 microseconds each, and those that are looked through for them. */
const DISABLED_MAX = 1_000
const VISITED_MAX = 10_000

/** Counted from the begin of the range; none if it is not a range up to now. */
export function* openSpans(
  tx: Transaction,
  query: ProblemQuery,
  from: number,
  isNow: boolean,
): Query<Rows<LaunchRecord>> {
  if (!isNow) return {rows: [], isPartial: false}
  const conditions = [
    ...ofNames('l', query),
    ...query.metadata.map((filter) => hasMetadata(filter)),
    condition(`(SELECT j.disabled FROM jobs j WHERE j.id = l.job_id AND j.deleted_at IS NULL) = 1`),
  ]
  const {items, next} = yield* keysetPage<LaunchRow>(
    {
      columns: LAUNCH_COLUMNS,
      from: 'launches l',
      where: `l.planned_count = 0`,
      key: ['l.job_id'],
      filter: {
        ...allOf([condition(`l.cause = 'schedule'`), ...conditions]),
        visitedMax: VISITED_MAX,
      },
      order: 'desc',
    },
    {after: null, limit: DISABLED_MAX},
  )
  // A server of the previous release may have left an older span of the job open.
  const newest = new Map<number, LaunchRecord>()
  for (const row of items.map(launchOf)) {
    const known = newest.get(row.jobId)
    if (known === undefined || known.scheduledAt < row.scheduledAt) newest.set(row.jobId, row)
  }
  const rows = [...newest.values()].map((row) => {
    return {...row, scheduledAt: Math.max(row.scheduledAt, from)}
  })
  const counted = yield* countOpenSpans(tx, rows)
  return {rows: counted.filter(({count}) => count > 0), isPartial: next !== null}
}
