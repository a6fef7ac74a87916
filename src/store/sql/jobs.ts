/**
 * Reading and writing one job inside a transaction: what the steps that change jobs share. Decides nothing.
 */
import type {JobCounters, JobRecord, JobSpec} from '../../core/job.ts'
import {each, one, oneEach, all, type Step, type Values} from './query.ts'
import {jobOf, searchText, SELECT_JOB, type JobRow} from './rows.ts'
import type {Transaction} from './transaction.ts'

const JOB_BY_NAME = `${SELECT_JOB} WHERE j.name = ? AND j.deleted_at IS NULL`
const JOB_BY_ID = `${SELECT_JOB} WHERE j.id = ? AND j.deleted_at IS NULL`

/** The live job of that name, or `null`. */
export function* loadJob(name: string): Step<JobRecord | null> {
  const row = yield* one<JobRow>(JOB_BY_NAME, [name])
  return row === null ? null : jobOf(row)
}

/** The same, locked until the transaction ends: nobody else changes the job meanwhile. */
export function* lockJob(tx: Transaction, name: string): Step<JobRecord | null> {
  if (tx.dialect.forUpdate !== '') {
    const lock = `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL${tx.dialect.forUpdate}`
    if ((yield* one(lock, [name])) === null) return null
  }
  return yield* loadJob(name)
}

/** The same for several, in the order of `names`; locks in the order of their names. */
export function* lockJobs(tx: Transaction, names: readonly string[]): Step<(JobRecord | null)[]> {
  if (tx.dialect.forUpdate !== '')
    yield* each(
      `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL${tx.dialect.forUpdate}`,
      names.toSorted().map((name) => [name]),
    )
  const rows = yield* oneEach<JobRow>(
    JOB_BY_NAME,
    names.map((name) => [name]),
  )
  return rows.map((row) => (row === null ? null : jobOf(row)))
}

/** Live jobs in the order of `ids`; `null` for one that is gone. */
export function* loadJobs(ids: readonly number[]): Step<(JobRecord | null)[]> {
  const rows = yield* oneEach<JobRow>(
    JOB_BY_ID,
    ids.map((id) => [id]),
  )
  return rows.map((row) => (row === null ? null : jobOf(row)))
}

/** Names of the live jobs whose parent is `name`, sorted. */
export function* dependentsOf(name: string): Step<string[]> {
  const rows = yield* all<{name: string}>(
    `SELECT name FROM jobs WHERE parent = ? AND deleted_at IS NULL AND parent <> '' ORDER BY name`,
    [name],
  )
  return rows.map((row) => row.name)
}

export interface NewJob {
  readonly spec: JobSpec
  readonly revision: number
  readonly anchorAt: number
  readonly nextAt: number | null
  readonly counters: JobCounters
}

/** What follows from a definition; `definedValues` gives the values. */
const DEFINED_COLUMNS = [
  'displayname',
  'search_text',
  'schedule',
  'parent',
  'ephemeral',
  'retries',
  'disabled',
  'revision',
  'next_at',
  'anchor_at',
]

function definedValues({spec, revision, nextAt, anchorAt}: Omit<NewJob, 'counters'>): Values {
  return [
    spec.displayname,
    searchText(spec),
    spec.schedule,
    spec.parentJob,
    spec.ephemeral ? 1 : 0,
    spec.retries,
    spec.disabled ? 1 : 0,
    revision,
    nextAt,
    anchorAt,
  ]
}

const INSERT_JOB = `INSERT INTO jobs (id, name, ${DEFINED_COLUMNS.join(', ')}, success_count, error_count,
  last_success, last_error, status, status_group, created_at, updated_at, deleted_why)
  VALUES (?, ?, ${DEFINED_COLUMNS.map(() => '?').join(', ')}, ?, ?, ?, ?, '', 0, ?, ?, '')`

/** Inserts a job; answers its id. */
export function* insertJob(tx: Transaction, job: NewJob): Step<number> {
  const [id] = yield* insertJobs(tx, [job])
  return id!
}

/** Inserts jobs of different names; answers their ids, in order. */
export function* insertJobs(tx: Transaction, jobs: readonly NewJob[]): Step<number[]> {
  if (jobs.length === 0) return []
  const ids = yield* tx.dialect.takeNumbers('job', jobs.length)
  yield* each(
    INSERT_JOB,
    jobs.map((job, index) => insertValues(ids[index]!, job, tx.now)),
  )
  yield* each(
    `INSERT INTO definitions (job_id, definition) VALUES (?, ?)`,
    jobs.map(({spec}, index) => [ids[index]!, JSON.stringify(spec)]),
  )
  yield* each(
    INSERT_METADATA,
    jobs.flatMap(({spec}, index) => metadataValues(ids[index]!, spec)),
  )
  return ids
}

function insertValues(id: number, job: NewJob, now: number): Values {
  const {successCount, errorCount, lastSuccess, lastError} = job.counters
  const counted = [successCount, errorCount, lastSuccess, lastError]
  return [id, job.spec.name, ...definedValues(job), ...counted, now, now]
}

const INSERT_METADATA = `INSERT INTO job_metadata (job_id, key, value) VALUES (?, ?, ?)`

function metadataValues(id: number, spec: JobSpec): Values[] {
  return Object.entries(spec.metadata).map(([key, value]) => [id, key, value])
}

const UPDATE_JOB = `UPDATE jobs SET ${DEFINED_COLUMNS.map((column) => `${column} = ?`).join(', ')},
  updated_at = ? WHERE id = ?`

/** A stored job as it is from now on. */
export interface RedefinedJob extends Omit<NewJob, 'counters'> {
  readonly id: number
}

/**
 * Replaces the definitions of different jobs and what follows from them; counters, status and decided times
 * stay.
 */
export function* updateJobs(tx: Transaction, jobs: readonly RedefinedJob[]): Step<void> {
  yield* each(
    UPDATE_JOB,
    jobs.map((job) => [...definedValues(job), tx.now, job.id]),
  )
  yield* each(
    `UPDATE definitions SET definition = ? WHERE job_id = ?`,
    jobs.map(({id, spec}) => [JSON.stringify(spec), id]),
  )
  yield* each(
    `DELETE FROM job_metadata WHERE job_id = ?`,
    jobs.map(({id}) => [id]),
  )
  yield* each(
    INSERT_METADATA,
    jobs.flatMap(({id, spec}) => metadataValues(id, spec)),
  )
}
