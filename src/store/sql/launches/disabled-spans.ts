/** Rows of the spans in which jobs are disabled; `core/disabled-span.ts` decides. */
import {
  countSpan,
  isOpenSpan,
  openSpan,
  spanChange,
  spanEnd,
  type SpanJob,
} from '../../../core/disabled-span.ts'
import type {JobSpec, PlannedJob} from '../../../core/job.ts'
import type {LaunchRecord} from '../../../core/launch-record.ts'
import {timezone} from '../cluster/settings.ts'
import {each, type Query, sendEach, together, type Transaction, type Values} from '../query.ts'
import {
  FROM_JOBS,
  INSERT_LAUNCH,
  LAUNCH_COLUMNS,
  launchOf,
  type LaunchRow,
  launchValues,
  PLANNED_JOB_COLUMNS,
  plannedJobOf,
  type PlannedJobRow,
  readableJobs,
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

/** A row of an open span, and the start of the first row after it. */
interface SpanRow extends LaunchRow {
  readonly next_row_at: number | null
}

/** Start of the first row of planned times after `at`, for the row `owner` of launches or jobs. */
function firstRowAt(owner: string, at: string): string {
  return `(SELECT min(n.scheduled_at) FROM launches n
    WHERE n.job_id = ${owner} AND n.cause = 'schedule' AND n.scheduled_at > ${at})`
}

const OPEN_SPANS = `SELECT ${LAUNCH_COLUMNS},
  ${firstRowAt('launches.job_id', 'launches.scheduled_at')} AS next_row_at
  FROM launches WHERE job_id = ? AND planned_count = 0 AND cause = 'schedule'`

/** Ends and begins the spans that follow from these edits. */
export function* writeSpans(tx: Transaction, edits: readonly SpanEdit[]): Query<void> {
  const changes = edits.map((edit) => ({
    edit,
    ...spanChange(edit.existing?.spec ?? null, edit.spec),
  }))
  // A span that begins also ends those that a server of the previous release left open.
  const closing = changes
    .filter(({edit: {existing}, closes, opens}) => existing !== null && (closes || opens))
    .map(({edit}) => edit)
  const opening = changes.filter(({opens}) => opens).map(({edit}) => edit)
  if (closing.length + opening.length === 0) return
  const [zone, ended, groups] = yield* together(
    timezone(),
    openSpans(closing.map(({id}) => id)),
    opening.length === 0 ? together() : tx.dialect.takeNumbers('launch', opening.length),
  )
  const jobs = new Map(closing.map(({id, existing}) => [id, existing!]))
  yield* closeSpans(tx, jobs, ended, zone)
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

function* openSpans(jobIds: readonly number[]): Query<SpanRow[]> {
  const found = yield* each<SpanRow>(
    OPEN_SPANS,
    jobIds.map((id) => [id]),
  )
  return found.flat()
}

/** Stores what spans covered. One without a planned time leaves no row. */
function* closeSpans(
  tx: Transaction,
  jobs: ReadonlyMap<number, SpanJob>,
  rows: readonly SpanRow[],
  zone: string,
): Query<void> {
  const empty: Values[] = []
  const counted: Values[] = []
  for (const row of rows) {
    const job = jobs.get(row.job_id)
    if (job === undefined) continue
    const end = spanEnd(job, row.next_row_at, tx.now)
    const span = countSpan(job, launchOf(row), end, zone)
    if (span === null) empty.push([row.group_id])
    else counted.push([span.scheduledAt, span.scheduledUntil, span.count, end, row.group_id])
  }
  yield* sendEach(`DELETE FROM launches WHERE group_id = ?`, empty)
  yield* sendEach(
    `UPDATE launches SET scheduled_at = ?, scheduled_until = ?, planned_count = ?, decided_at = ?
      WHERE group_id = ?`,
    counted,
  )
}

/** Ends the spans that a server of the previous release left open when it enabled one of these jobs. */
export function* closeLeftSpans(tx: Transaction, jobIds: readonly number[]): Query<void> {
  const found = yield* each<SpanRow>(
    `${OPEN_SPANS} AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = launches.job_id AND j.disabled = 0)`,
    jobIds.map((id) => [id]),
  )
  const left = found.flat()
  if (left.length === 0) return
  const [zone, rows] = yield* together(
    timezone(),
    each<SpanJobRow>(
      SELECT_SPAN_JOB,
      left.map((row) => [row.scheduled_at, row.job_id]),
    ),
  )
  const {jobs} = readableJobs(rows.flat(), spanJobOf)
  yield* closeSpans(tx, new Map(jobs.map((job) => [job.id, job])), left, zone)
}

/** A job, and the start of its first row after a given time. */
interface SpanJobRow extends PlannedJobRow {
  readonly updated_at: number
  readonly next_row_at: number | null
}

/** The span of a disabled job lasts until now, whatever follows. */
const SELECT_SPAN_JOB = `SELECT ${PLANNED_JOB_COLUMNS}, j.updated_at, CASE WHEN j.disabled = 1 THEN NULL
  ELSE ${firstRowAt('j.id', '?')} END AS next_row_at ${FROM_JOBS} WHERE j.id = ?`

function spanJobOf(row: SpanJobRow): PlannedJob & SpanJob & {nextRowAt: number | null} {
  return {...plannedJobOf(row), updatedAt: row.updated_at, nextRowAt: row.next_row_at}
}

/** The same rows, with the open spans counted up to now. */
export function* countOpenSpans(
  tx: Transaction,
  launches: readonly LaunchRecord[],
): Query<LaunchRecord[]> {
  const open = launches.filter(isOpenSpan)
  if (open.length === 0) return [...launches]
  const [zone, rows] = yield* together(
    timezone(),
    each<SpanJobRow>(
      SELECT_SPAN_JOB,
      open.map(({scheduledAt, jobId}) => [scheduledAt, jobId]),
    ),
  )
  const counted = open.map((launch, index): LaunchRecord => {
    const [job] = readableJobs(rows[index]!, spanJobOf).jobs
    if (job === undefined) return launch
    const end = spanEnd(job, job.nextRowAt, tx.now)
    return {...launch, ...countSpan(job, launch, end, zone)}
  })
  const byGroup = new Map(counted.map((launch) => [launch.group, launch]))
  return launches.map((launch) => byGroup.get(launch.group) ?? launch)
}
