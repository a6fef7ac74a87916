/**
 * Submitting and toggling a job, and reading and writing the rows of jobs. Every check runs in the
 * transaction that relies on it. How a definition moves `next` is decided by `planDefinition` in the core.
 */
import {createHash} from 'node:crypto'
import type {JobCounters, JobRecord, JobSpec} from '../../core/job.ts'
import {type DefinitionChange, planDefinition} from '../../core/next-time.ts'
import {assert} from '../../lib/assert.ts'
import type {
  Idempotency,
  PreconditionFailed,
  RevisionMatch,
  RunResult,
  SubmitRequest,
  SubmitResult,
  ToggleResult,
} from '../../ports/job-store.ts'
import {insertRequest, retractPlanned, writePlanned} from './launch-rows.ts'
import {all, each, one, oneEach, type Query, type Transaction, type Values} from './query.ts'
import {jobOf, type JobRow, searchText, SELECT_JOB} from './rows.ts'
import {isPaused, timezone} from './settings.ts'

export function* submit(tx: Transaction, request: SubmitRequest): Query<SubmitResult> {
  const earlier = yield* findReply<SubmitResult>(tx, request.idempotency)
  if (earlier !== null) return earlier
  const {spec} = request
  if (yield* isPaused()) return {kind: 'paused'}
  const existing = yield* lockJob(tx, spec.name)
  const refusal = checkPreconditions(request, existing) ?? (yield* parentProblem(spec))
  if (refusal !== null) return refusal
  const zone = yield* timezone()
  const change = planDefinition(existing, spec, tx.now, zone, true)
  const id = yield* applyChange(tx, existing, spec, change)
  let group: number | null = null
  if (request.runOnCreate) {
    const job = {id, name: spec.name}
    group = yield* insertRequest(tx, {job, cause: 'create', forced: false})
  }
  const job = yield* loadJob(spec.name)
  assert(job !== null, `${spec.name} was just stored`)
  const created = existing === null
  const result: SubmitResult = {kind: 'stored', job, created, changed: change.changed, group}
  yield* storeReply(tx, request.idempotency, result)
  return result
}

export function* toggle(
  tx: Transaction,
  name: string,
  ifMatch: RevisionMatch = null,
): Query<ToggleResult> {
  const existing = yield* lockJob(tx, name)
  if (existing === null) return {kind: 'unknown'}
  const refusal = checkRevision(ifMatch, existing)
  if (refusal !== null) return refusal
  const spec = {...existing.spec, disabled: !existing.spec.disabled}
  const zone = yield* timezone()
  yield* applyChange(tx, existing, spec, planDefinition(existing, spec, tx.now, zone, false))
  const job = yield* loadJob(name)
  assert(job !== null, `${name} is locked and live`)
  return {kind: 'toggled', job}
}

function checkPreconditions(
  request: SubmitRequest,
  existing: JobRecord | null,
): PreconditionFailed | null {
  const {ifMatch, createOnly} = request
  if (createOnly && existing !== null) return {kind: 'precondition', revision: existing.revision}
  return checkRevision(ifMatch, existing)
}

/** Compares the locked job's revision with `If-Match`; `null` = they match, or there is no condition. */
export function checkRevision(
  ifMatch: RevisionMatch,
  existing: JobRecord | null,
): PreconditionFailed | null {
  if (ifMatch === null) return null
  const revision = existing?.revision ?? null
  const isMet = revision !== null && (ifMatch === '*' || ifMatch.includes(revision))
  return isMet ? null : {kind: 'precondition', revision}
}

type ParentProblem = Extract<SubmitResult, {kind: 'parent_unknown' | 'cycle' | 'ephemeral_parent'}>

/** Checks the parent and the dependents of `spec` against the stored jobs; `null` = valid. */
function* parentProblem(spec: JobSpec): Query<ParentProblem | null> {
  if (spec.ephemeral) {
    const dependents = yield* dependentsOf(spec.name)
    if (dependents.length > 0) return {kind: 'ephemeral_parent', parent: spec.name, dependents}
  }
  if (spec.parentJob === '') return null
  const path = [spec.name]
  let name = spec.parentJob
  while (name !== '') {
    path.push(name)
    if (name === spec.name) return {kind: 'cycle', path}
    const row = yield* one<{parent: string; ephemeral: number}>(
      `SELECT parent, ephemeral FROM jobs WHERE name = ? AND deleted_at IS NULL`,
      [name],
    )
    if (row === null) return {kind: 'parent_unknown', parent: spec.parentJob}
    if (row.ephemeral === 1 && name === spec.parentJob)
      return {kind: 'ephemeral_parent', parent: name, dependents: [spec.name]}
    name = row.parent
  }
  return null
}

const ZERO_COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

/** Writes the decision of `planDefinition`; returns the job's id. */
export function* applyChange(
  tx: Transaction,
  existing: JobRecord | null,
  spec: JobSpec,
  change: DefinitionChange,
): Query<number> {
  if (existing === null) return yield* insertJob(tx, {...change, spec, counters: ZERO_COUNTERS})
  yield* applyChanges(tx, [{existing, spec, change}])
  return existing.id
}

/** A stored job, its new definition, and the decision of `planDefinition` about it. */
export interface Redefinition {
  readonly existing: JobRecord
  readonly spec: JobSpec
  readonly change: DefinitionChange
}

/** Redefines different stored jobs; the number of statements does not depend on the number of jobs. */
export function* applyChanges(
  tx: Transaction,
  redefinitions: readonly Redefinition[],
): Query<void> {
  const changed = redefinitions.filter(({change}) => change.changed)
  yield* updateJobs(
    tx,
    changed.map(({existing, spec, change}) => ({...change, id: existing.id, spec})),
  )
  const retracting = changed.filter(({change}) => change.retracts)
  if (retracting.length > 0)
    yield* retractPlanned(
      tx,
      retracting.map(({existing}) => existing),
      yield* timezone(),
    )
  yield* recordMissed(
    tx,
    changed.map(({existing, change}) => ({job: existing, rows: change.missed})),
  )
}

/** Records as launch rows the planned times that a change moved `next` past. */
export function* recordMissed(
  tx: Transaction,
  missed: readonly {readonly job: JobRecord; readonly rows: DefinitionChange['missed']}[],
): Query<void> {
  const planned = missed.flatMap(({job, rows}) => {
    return rows.length === 0 ? [] : [{job: {id: job.id, name: job.spec.name}, rows}]
  })
  yield* writePlanned(tx, planned, null)
  yield* each(
    `UPDATE jobs SET decided_until = ? WHERE id = ?`,
    planned.map(({job, rows}) => [rows.at(-1)!.scheduledUntil, job.id]),
  )
}

const JOB_BY_NAME = `${SELECT_JOB} WHERE j.name = ? AND j.deleted_at IS NULL`
const JOB_BY_ID = `${SELECT_JOB} WHERE j.id = ? AND j.deleted_at IS NULL`

export function* loadJob(name: string): Query<JobRecord | null> {
  const row = yield* one<JobRow>(JOB_BY_NAME, [name])
  return row === null ? null : jobOf(row)
}

/** Live jobs in the order of `ids`; `null` = the job is deleted. */
export function* loadJobs(ids: readonly number[]): Query<(JobRecord | null)[]> {
  const rows = yield* oneEach<JobRow>(
    JOB_BY_ID,
    ids.map((id) => [id]),
  )
  return rows.map((row) => (row === null ? null : jobOf(row)))
}

/** Loads the job and locks it until the transaction ends. */
export function* lockJob(tx: Transaction, name: string): Query<JobRecord | null> {
  if (tx.dialect.locking) {
    const lock = `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL${tx.dialect.forUpdate}`
    if ((yield* one(lock, [name])) === null) return null
  }
  return yield* loadJob(name)
}

/** Loads jobs in the order of `names`. Locks them in the order of their names, which avoids deadlocks. */
export function* lockJobs(tx: Transaction, names: readonly string[]): Query<(JobRecord | null)[]> {
  if (tx.dialect.locking)
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

/** Names of the live jobs whose parent is `name`, sorted. */
export function* dependentsOf(name: string): Query<string[]> {
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

/** Columns derived from a definition, in the order of `definedValues`. */
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

/** Returns the new job's id. */
export function* insertJob(tx: Transaction, job: NewJob): Query<number> {
  const [id] = yield* insertJobs(tx, [job])
  return id!
}

/** Inserts jobs of different names; returns their ids, in order. */
export function* insertJobs(tx: Transaction, jobs: readonly NewJob[]): Query<number[]> {
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

/** A stored job with its new definition. */
export interface RedefinedJob extends Omit<NewJob, 'counters'> {
  readonly id: number
}

/** Replaces the definitions of different jobs; counters, status and decided times stay. */
export function* updateJobs(tx: Transaction, jobs: readonly RedefinedJob[]): Query<void> {
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

/* Idempotency keys: the reply to a request with a key is kept for its repetitions. */

/** Long enough for a client that repeats after an outage; the API documents it. */
export const IDEMPOTENCY_KEPT_MS = 24 * 3_600_000

/** A longer key is stored as its digest: clients choose keys, and PostgreSQL limits index rows. */
const KEY_LENGTH_MAX = 256

function keyOf({scope, key}: Idempotency): [scope: string, key: string] {
  const kept = key.length <= KEY_LENGTH_MAX ? key : createHash('sha256').update(key).digest('hex')
  return [scope, kept]
}

/** The reply to the first request with this key; a mismatch if that was another request; `null` = new key. */
export function* findReply<Result>(
  tx: Transaction,
  idempotency: Idempotency | null,
): Query<Result | {readonly kind: 'idempotency_mismatch'} | null> {
  if (idempotency === null) return null
  const row = yield* one<{fingerprint: string; answer: string}>(
    `SELECT fingerprint, answer FROM idempotency WHERE scope = ? AND key = ? AND created_at > ?`,
    [...keyOf(idempotency), tx.now - IDEMPOTENCY_KEPT_MS],
  )
  if (row === null) return null
  if (row.fingerprint !== idempotency.fingerprint) return {kind: 'idempotency_mismatch'}
  return JSON.parse(row.answer) as Result
}

/** Read-only: a repeated request gets its reply even if a new one would be refused, as in a pause. */
export const earlierSubmit = findReply<SubmitResult>
export const earlierRun = findReply<RunResult>

/** Stores the reply under the key; replaces an expired one. */
export function* storeReply(
  tx: Transaction,
  idempotency: Idempotency | null,
  reply: unknown,
): Query<void> {
  if (idempotency === null) return
  yield* all(
    `INSERT INTO idempotency (scope, key, fingerprint, answer, created_at) VALUES (?, ?, ?, ?, ?)
      ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint,
      answer = excluded.answer, created_at = excluded.created_at`,
    [...keyOf(idempotency), idempotency.fingerprint, JSON.stringify(reply), tx.now],
  )
}
