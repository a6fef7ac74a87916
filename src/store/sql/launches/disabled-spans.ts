/** Rows of the spans in which jobs are disabled; `core/disabled-span.ts` decides. */
import {
  countSpan,
  isOpenSpan,
  openSpan,
  spanChange,
  type SpanJob,
} from '../../../core/disabled-span.ts'
import type {JobSpec} from '../../../core/job.ts'
import type {LaunchRecord} from '../../../core/launch-record.ts'
import {timezone} from '../cluster/settings.ts'
import {
  each,
  oneEach,
  type Query,
  sendEach,
  together,
  type Transaction,
  type Values,
} from '../query.ts'
import {
  INSERT_LAUNCH,
  LAUNCH_COLUMNS,
  launchOf,
  type LaunchRow,
  launchValues,
  type PlannedJobRow,
  readableJobs,
  SELECT_PLANNED_JOB,
  plannedJobOf,
} from '../rows.ts'
import {newLaunch} from './launch-rows.ts'

/** A new or changed definition. */
export interface SpanEdit {
  readonly id: number
  /** `null` = the job is created. */
  readonly existing: SpanJob | null
  readonly spec: JobSpec
  readonly anchorAt: number
  /** Name of the token that changes it. */
  readonly by: string
}

/** A disabled job gets no other row for planned times, so the scan ends at the first row. */
const OPEN_SPAN = `SELECT ${LAUNCH_COLUMNS} FROM launches WHERE job_id = ? AND cause = 'schedule'
  AND planned_count = 0 ORDER BY scheduled_at DESC LIMIT 1`

/** Ends and begins the spans that follow from these edits. */
export function* writeSpans(tx: Transaction, edits: readonly SpanEdit[]): Query<void> {
  const changes = edits.map((edit) => ({
    edit,
    ...spanChange(edit.existing?.spec ?? null, edit.spec),
  }))
  const closing = changes.filter(({closes}) => closes).map(({edit}) => edit)
  const opening = changes.filter(({opens}) => opens).map(({edit}) => edit)
  if (closing.length + opening.length === 0) return
  const [zone, ended, groups] = yield* together(
    timezone(),
    oneEach<LaunchRow>(
      OPEN_SPAN,
      closing.map(({id}) => [id]),
    ),
    opening.length === 0 ? together() : tx.dialect.takeNumbers('launch', opening.length),
  )
  yield* closeSpans(tx, closing, ended, zone)
  const begun = opening.flatMap(({id, spec, anchorAt, by}) => {
    const row = openSpan({spec, anchorAt}, tx.now, zone, by)
    return row === null ? [] : [{job: {id, name: spec.name}, row}]
  })
  yield* sendEach(
    // A clock that was set back may have decided the instant already.
    `${INSERT_LAUNCH} ON CONFLICT DO NOTHING`,
    begun.map(({job, row: {targets: _none, ...row}}, index) => {
      const fields = {cause: 'schedule', decidedAt: tx.now, ...row} as const
      return launchValues(newLaunch(job, groups[index]!, tx.now, fields))
    }),
  )
}

/** Stores what a span covered. One without a planned time leaves no row. */
function* closeSpans(
  tx: Transaction,
  edits: readonly SpanEdit[],
  rows: readonly (LaunchRow | null)[],
  zone: string,
): Query<void> {
  const empty: Values[] = []
  const counted: Values[] = []
  for (const [index, {existing}] of edits.entries()) {
    const row = rows[index]
    if (row == null || existing === null) continue
    const span = countSpan(existing, launchOf(row), tx.now, zone)
    if (span === null) empty.push([row.group_id])
    else counted.push([span.scheduledAt, span.scheduledUntil, span.count, tx.now, row.group_id])
  }
  yield* sendEach(`DELETE FROM launches WHERE group_id = ?`, empty)
  yield* sendEach(
    `UPDATE launches SET scheduled_at = ?, scheduled_until = ?, planned_count = ?, decided_at = ?
      WHERE group_id = ?`,
    counted,
  )
}

/** The same rows, with the open spans counted up to now. */
export function* countOpenSpans(
  tx: Transaction,
  launches: readonly LaunchRecord[],
): Query<LaunchRecord[]> {
  const open = launches.filter(isOpenSpan)
  if (open.length === 0) return [...launches]
  const zone = yield* timezone()
  const rows = yield* each<PlannedJobRow>(
    `${SELECT_PLANNED_JOB} WHERE j.id = ?`,
    open.map(({jobId}) => [jobId]),
  )
  const jobs = new Map(
    readableJobs(rows.flat(), plannedJobOf).jobs.map((job) => [job.id, job] as const),
  )
  return launches.map((launch) => {
    const job = isOpenSpan(launch) ? jobs.get(launch.jobId) : undefined
    return job === undefined ? launch : {...launch, ...countSpan(job, launch, tx.now, zone)}
  })
}
