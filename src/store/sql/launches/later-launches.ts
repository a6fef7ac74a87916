/**
 * Jobs with problems: later launches, which say whether a problem is over, since when their history is
 * complete, and the definitions by which they were decided. Each job costs some look-ups in an index.
 */
import {specOf} from '../../../core/job-fields.ts'
import type {LaunchRecord} from '../../../core/launch-record.ts'
import type {LaterLaunch, ProblemFacts} from '../../../core/problems/facts.ts'
import {isUnwanted} from '../../../core/problems/not-run.ts'
import {each, oneEach, type Query, together} from '../query.ts'
import {readableJobs} from '../rows.ts'

/** Jobs whose oldest row is looked up, and those whose rows are counted, as they begin within the range. */
const KEPT_MAX = 500
const COUNTED_MAX = 100
const COUNTED_AT_ONCE = 20
/** Jobs whose definitions are read, for the tags: each costs some 10 microseconds. */
export const DEFINITIONS_MAX = 1_000
/** Jobs whose earlier definitions are read, and definitions of each. */
const REPLACED_JOBS_MAX = 100
const REPLACED_MAX = 5
/** Rows of a job that did not run, as retention keeps them. */
const UNLAUNCHED_KEPT = 1_000

/** A job, with its newest row that did not run, the newest that failed, and the numbers of the oldest. */
export interface JobRows {
  readonly id: number
  notRun: LaunchRecord | null
  failed: LaunchRecord | null
  oldest: {notRun: number; failed: number}
}

export function jobRows(
  notRun: readonly LaunchRecord[],
  failed: readonly LaunchRecord[],
): JobRows[] {
  const jobs = new Map<number, JobRows>()
  const add = (of: 'notRun' | 'failed', row: LaunchRecord) => {
    const job = jobs.get(row.jobId) ?? {
      id: row.jobId,
      notRun: null,
      failed: null,
      oldest: {notRun: Infinity, failed: Infinity},
    }
    const known = job[of]
    job.oldest[of] = Math.min(job.oldest[of], row.group)
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
  const others = (
    of: 'notRun' | 'failed',
    among: readonly JobRows[],
    found: readonly (LaterRow | null)[],
  ) => among.filter((job, index) => job.oldest[of] < job[of]!.group && found[index] === null)
  const more = others('notRun', unlaunched, launched)
  const moreSuccess = others('failed', failing, success)
  // A launch before the oldest row tells nothing, and a job that always fails may have thousands.
  const [newest, newestSuccess] = yield* together(
    oneEach<LaterRow>(
      `${LAUNCHED} ${NEWEST}`,
      more.map(({id, oldest}) => [id, oldest.notRun, to]),
    ),
    oneEach<LaterRow>(
      `${SUCCEEDED} ${NEWEST}`,
      moreSuccess.map(({id, oldest}) => [id, oldest.failed, to]),
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

/** The job of which retention has deleted the newest rows of the range, with the time of its oldest row. */
export function* keptFrom(
  jobs: readonly JobRows[],
  from: number,
  keepLaunches: number,
): Query<ReadonlyMap<number, number>> {
  const oldest = yield* oneEach<{job_id: number; stored_at: number}>(
    `SELECT job_id, stored_at FROM launches WHERE job_id = ? ORDER BY group_id LIMIT 1`,
    jobs.slice(0, KEPT_MAX).map(({id}) => [id]),
  )
  // The reply has only the newest begin: most often it is among the first few.
  const begun = oldest
    .filter((row) => row !== null)
    .filter((row) => row.stored_at > from)
    .toSorted((one, other) => other.stored_at - one.stored_at)
    .slice(0, COUNTED_MAX)
  for (let at = 0; at < begun.length; at += COUNTED_AT_ONCE) {
    const some = begun.slice(at, at + COUNTED_AT_ONCE)
    const counts = yield* oneEach<{launched: number; total: number}>(
      `SELECT count(CASE WHEN decision = 'launched' THEN 1 END) AS launched, count(*) AS total
        FROM launches WHERE job_id = ?`,
      some.map((row) => [row.job_id]),
    )
    const cut = some.find((_row, index) => {
      const {launched = 0, total = 0} = counts[index] ?? {}
      return launched >= keepLaunches || total - launched >= UNLAUNCHED_KEPT
    })
    if (cut !== undefined) return new Map([[cut.job_id, cut.stored_at]])
  }
  return new Map()
}

/** Definitions by which the rows were decided, and the current ones. A damaged definition is left out. */
export function* definitionsOf(rows: readonly LaunchRecord[]): Query<ProblemFacts['specs']> {
  const byJob = [...Map.groupBy(rows, ({jobId}) => jobId)].slice(0, DEFINITIONS_MAX)
  const decided = byJob.slice(0, REPLACED_JOBS_MAX).flatMap(([id, of]) => {
    const first = Math.min(...of.map(({decidedAt}) => decidedAt ?? Infinity))
    return first === Infinity ? [] : [[id, first]]
  })
  const [current, replaced] = yield* together(
    each<{id: number; name: string; definition: string}>(
      `SELECT job_id AS id, '' AS name, definition FROM definitions WHERE job_id = ?`,
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
  const read = readableJobs(current.flat(), ({id, definition}) => ({
    id,
    spec: specOf(definition),
  })).jobs
  return new Map(
    read.map(({id, spec}) => [id, [...(earlier.get(id) ?? []), {spec, until: Infinity}]]),
  )
}
