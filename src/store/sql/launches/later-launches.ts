/**
 * Jobs with problems: later launches, which say whether a problem is over, since when their history is
 * complete, and the definitions by which they were decided. Each job costs some look-ups in an index.
 */
import {specOf} from '../../../core/job-fields.ts'
import type {LaunchRecord} from '../../../core/launch-record.ts'
import type {LaterLaunch, ProblemFacts} from '../../../core/problems/facts.ts'
import {isUnwanted} from '../../../core/problems/not-run.ts'
import {each, oneEach, type Query, together} from '../query.ts'
import {plannedJobOf, type PlannedJobRow, readableJobs, SELECT_PLANNED_JOB} from '../rows.ts'

/** Jobs whose oldest row is looked up, and those whose rows are counted, as they begin within the range. */
const KEPT_MAX = 500
const COUNTED_MAX = 100
const DEFINITIONS_MAX = 500
/** Jobs whose earlier definitions are read, and definitions of each. */
const REPLACED_JOBS_MAX = 100
const REPLACED_MAX = 5
/** Rows of a job that did not run, as retention keeps them. */
const UNLAUNCHED_KEPT = 1_000

/** A job, with its newest row that did not run, the newest that failed, and whether there are more. */
export interface JobRows {
  readonly id: number
  notRun: LaunchRecord | null
  failed: LaunchRecord | null
  hasMore: boolean
}

export function jobRows(
  notRun: readonly LaunchRecord[],
  failed: readonly LaunchRecord[],
): JobRows[] {
  const jobs = new Map<number, JobRows>()
  const add = (of: 'notRun' | 'failed', row: LaunchRecord) => {
    const job = jobs.get(row.jobId) ?? {id: row.jobId, notRun: null, failed: null, hasMore: false}
    const known = job[of]
    job.hasMore ||= known !== null
    if (known === null || known.group < row.group) job[of] = row
    jobs.set(row.jobId, job)
  }
  for (const row of notRun) if (isUnwanted(row)) add('notRun', row)
  for (const row of failed) add('failed', row)
  return [...jobs.values()]
}

interface LaterRow {
  readonly group_id: number
  readonly scheduled_at: number
  readonly at: number
}

const LAUNCHED = `SELECT group_id, scheduled_at, decided_at AS at FROM launches WHERE job_id = ?
  AND decision = 'launched' AND group_id > ? AND decided_at <= ?`
const SUCCEEDED = `SELECT group_id, scheduled_at, closed_at AS at FROM launches WHERE job_id = ?
  AND decision = 'launched' AND group_id > ? AND launch_status = 'success' AND closed_at <= ?`
const NEWEST = 'ORDER BY group_id DESC LIMIT 1'
const FIRST = 'ORDER BY group_id LIMIT 1'

/**
 * Later launches of each job. An older row may be over although the newest one is not: then the newest
 * launch of the job tells.
 */
export function* laterFacts(jobs: readonly JobRows[], to: number): Query<ProblemFacts['later']> {
  const unlaunched = jobs.filter(({notRun}) => notRun !== null)
  const failing = jobs.filter(({failed}) => failed !== null)
  const [launched, success] = yield* together(
    oneEach<LaterRow>(
      `${LAUNCHED} AND scheduled_at > ? ${FIRST}`,
      unlaunched.map(({id, notRun}) => [id, notRun!.group, to, notRun!.scheduledUntil]),
    ),
    oneEach<LaterRow>(
      `${SUCCEEDED} ${FIRST}`,
      failing.map(({id, failed}) => [id, failed!.group, to]),
    ),
  )
  const others = (of: readonly JobRows[], found: readonly (LaterRow | null)[]) =>
    of.filter(({hasMore}, index) => hasMore && found[index] === null)
  const [more, moreSuccess] = [others(unlaunched, launched), others(failing, success)]
  const [newest, newestSuccess] = yield* together(
    oneEach<LaterRow>(
      `${LAUNCHED} ${NEWEST}`,
      more.map(({id}) => [id, 0, to]),
    ),
    oneEach<LaterRow>(
      `${SUCCEEDED} ${NEWEST}`,
      moreSuccess.map(({id}) => [id, 0, to]),
    ),
  )
  const byJob = (of: readonly JobRows[], found: readonly (LaterRow | null)[]) =>
    of.map(({id}, index) => [id, laterOf(found[index])] as const)
  const launches = new Map([...byJob(unlaunched, launched), ...byJob(more, newest)])
  const successes = new Map([...byJob(failing, success), ...byJob(moreSuccess, newestSuccess)])
  return new Map(
    jobs.map(({id}) => [
      id,
      {launched: launches.get(id) ?? null, success: successes.get(id) ?? null},
    ]),
  )
}

function laterOf(row: LaterRow | null | undefined): LaterLaunch | null {
  return row == null ? null : {group: row.group_id, scheduledAt: row.scheduled_at, at: row.at}
}

/** Jobs of which retention has deleted rows of the range, with the time of their oldest row. */
export function* keptFrom(
  jobs: readonly JobRows[],
  from: number,
  keepLaunches: number,
): Query<ReadonlyMap<number, number>> {
  const oldest = yield* oneEach<{job_id: number; stored_at: number}>(
    `SELECT job_id, stored_at FROM launches WHERE job_id = ? ORDER BY group_id LIMIT 1`,
    jobs.slice(0, KEPT_MAX).map(({id}) => [id]),
  )
  const begun = oldest
    .filter((row) => row !== null)
    .filter((row) => row.stored_at > from)
    .slice(0, COUNTED_MAX)
  const counts = yield* oneEach<{launched: number; total: number}>(
    `SELECT count(CASE WHEN decision = 'launched' THEN 1 END) AS launched, count(*) AS total
      FROM launches WHERE job_id = ?`,
    begun.map((row) => [row.job_id]),
  )
  const cut = begun.filter((_row, index) => {
    const {launched = 0, total = 0} = counts[index] ?? {}
    return launched >= keepLaunches || total - launched >= UNLAUNCHED_KEPT
  })
  return new Map(cut.map((row) => [row.job_id, row.stored_at]))
}

/** Definitions by which the rows were decided, and the current ones. A damaged definition is left out. */
export function* definitionsOf(rows: readonly LaunchRecord[]): Query<ProblemFacts['specs']> {
  const byJob = [...Map.groupBy(rows, ({jobId}) => jobId)].slice(0, DEFINITIONS_MAX)
  const decided = byJob.slice(0, REPLACED_JOBS_MAX).flatMap(([id, of]) => {
    const first = Math.min(...of.map(({decidedAt}) => decidedAt ?? Infinity))
    return first === Infinity ? [] : [[id, first]]
  })
  const [current, replaced] = yield* together(
    each<PlannedJobRow>(
      `${SELECT_PLANNED_JOB} WHERE j.id = ?`,
      byJob.map(([id]) => [id]),
    ),
    each<{id: number; name: string; at: number; replaced: string}>(
      `SELECT job_id AS id, target AS name, at, replaced FROM audit
        WHERE job_id = ? AND revision_after IS NOT NULL AND at > ? AND replaced IS NOT NULL
        ORDER BY revision_after LIMIT ${REPLACED_MAX}`,
      decided,
    ),
  )
  const dated = readableJobs(replaced.flat(), ({id, at, replaced: text}) => ({
    id,
    spec: specOf(text),
    until: at,
  })).jobs
  const earlier = Map.groupBy(dated, ({id}) => id)
  const read = readableJobs(current.flat(), plannedJobOf).jobs
  return new Map(
    read.map(({id, spec}) => [id, [...(earlier.get(id) ?? []), {spec, until: Infinity}]]),
  )
}
