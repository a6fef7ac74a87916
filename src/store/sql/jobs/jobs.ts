/**
 * Toggling a job, and reading and writing the rows of jobs. How a definition moves `next` is decided by
 * `planDefinition` in the core. `submit.ts` stores new definitions.
 */
import {type Actor, BELFRY, replacedBy} from '../../../core/audit.ts'
import type {JobCounters, JobRecord, JobSpec, JobStatus} from '../../../core/job.ts'
import {definitionText} from '../../../core/job-fields.ts'
import {type DefinitionChange, planDefinition} from '../../../core/next-time.ts'
import {checkRevision, type RevisionMatch} from '../../../core/submit.ts'
import {assert} from '../../../lib/assert.ts'
import type {ToggleResult} from '../../../ports/job-store.ts'
import {recordChange} from '../access/audit.ts'
import {writeDecided} from '../launches/dependents.ts'
import {writeSpans} from '../launches/disabled-spans.ts'
import {recordDecided, recordDefinitions} from '../notices/facts.ts'
import {noticeScopes, type Scopes} from '../notices/scopes.ts'
import {retractPlanned} from '../launches/launch-rows.ts'
import {
  all,
  one,
  oneEach,
  type Query,
  sendEach,
  together,
  type Transaction,
  type Values,
} from '../query.ts'
import {jobOf, type JobRow, searchText, SELECT_JOB} from '../rows.ts'
import {timezone, zoning} from '../cluster/settings.ts'

export function* toggle(
  tx: Transaction,
  name: string,
  ifMatch: RevisionMatch = null,
  actor?: Actor,
  disabled?: boolean,
): Query<ToggleResult> {
  const [existing, {zone, changes}, scopes] = yield* together(
    lockJob(tx, name),
    zoning(),
    noticeScopes(),
  )
  if (existing === null) return {kind: 'unknown'}
  const refusal = checkRevision(ifMatch, existing)
  if (refusal !== null) return refusal
  if (existing.spec.disabled === disabled) return {kind: 'unchanged', job: existing}
  const spec = {...existing.spec, disabled: !existing.spec.disabled}
  const change = planDefinition(existing, spec, tx.now, zone, false, changes)
  yield* applyChanges(tx, [{existing, spec, change, actor}], scopes)
  const replaced = replacedBy(existing, change.revision)
  const detail = spec.disabled ? 'disabled' : 'enabled'
  yield* recordChange(tx, {
    actor,
    action: 'job.toggle',
    targetType: 'job',
    target: name,
    detail,
    ...replaced,
  })
  const job = yield* loadJob(name)
  assert(job !== null, `${name} is locked and live`)
  return {kind: 'toggled', job}
}

/** A stored job, its new definition, and the decision of `planDefinition` about it. */
export interface Redefinition {
  readonly existing: JobRecord
  readonly spec: JobSpec
  readonly change: DefinitionChange
  /** Absent = Belfry. */
  readonly actor?: Actor | undefined
}

/** Redefines different stored jobs; the number of statements does not depend on the number of jobs. */
export function* applyChanges(
  tx: Transaction,
  redefinitions: readonly Redefinition[],
  scopes: Scopes,
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
  yield* writeSpans(
    tx,
    changed.map(({existing, spec, change: {anchorAt}, actor = BELFRY}) => {
      return {id: existing.id, existing, spec, anchorAt, by: actor.name}
    }),
  )
  const switched = changed.filter(({existing, spec}) => existing.spec.disabled !== spec.disabled)
  yield* recordDefinitions(
    tx,
    switched.map(({existing: {id: jobId}, spec}) => {
      return {jobId, kind: spec.disabled ? 'disabled' : 'enabled', spec}
    }),
    scopes,
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
  if (planned.length === 0) return
  const [written, scopes] = yield* together(writeDecided(tx, planned, null), noticeScopes())
  const launches = written.filter(({isNew}) => isNew).map(({launch}) => launch)
  yield* recordDecided(tx, launches, new Set(), scopes)
  yield* sendEach(
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

/** An ephemeral job that has succeeded has a row for a day; deletions by a request are in the audit log. */
const LAST_REVISIONS = `SELECT
  (SELECT revision FROM jobs
    WHERE name = ? AND deleted_at IS NOT NULL ORDER BY id DESC LIMIT 1) AS gone,
  (SELECT revision_before FROM audit
    WHERE target = ? AND action = 'job.delete' AND result = 'done'
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE name = ? AND deleted_at IS NULL)
    ORDER BY id DESC LIMIT 1) AS deleted`

/**
 * First revisions of jobs to be created, by name: above that of a deleted job of the name, whose `ETag` must
 * not match the new one. That of a live job is not looked up in its audit entries, which may be many.
 */
export function* firstRevisions(names: readonly string[]): Query<ReadonlyMap<string, number>> {
  const rows = yield* oneEach<{gone: number | null; deleted: number | null}>(
    LAST_REVISIONS,
    names.map((name) => [name, name, name]),
  )
  return new Map(
    names.map((name, index) => {
      const {gone, deleted} = rows[index]!
      return [name, Math.max(gone ?? 0, deleted ?? 0) + 1]
    }),
  )
}

const LOCK_BY_NAME = `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL FOR UPDATE`

/** Loads the job and locks it until the transaction ends. */
export function* lockJob(tx: Transaction, name: string): Query<JobRecord | null> {
  const [job] = yield* lockJobs(tx, [name])
  return job ?? null
}

/** Loads jobs in the order of `names`. Locks them in the order of their names, which avoids deadlocks. */
export function* lockJobs(tx: Transaction, names: readonly string[]): Query<(JobRecord | null)[]> {
  const rows = names.map((name) => [name])
  const sorted = names.toSorted().map((name) => [name])
  // The locks come first, so that the rows are what the earlier holder of a lock has stored.
  const [, found] = yield* together(
    sendEach(LOCK_BY_NAME, tx.dialect.locking ? sorted : []),
    oneEach<JobRow>(JOB_BY_NAME, rows),
  )
  return found.map((row) => (row === null ? null : jobOf(row)))
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
  readonly status: JobStatus
  /** Absent = Belfry. */
  readonly actor?: Actor | undefined
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

function definedValues({
  spec,
  revision,
  nextAt,
  anchorAt,
}: Omit<NewJob, 'counters' | 'status' | 'actor'>): Values {
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
  VALUES (?, ?, ${DEFINED_COLUMNS.map(() => '?').join(', ')}, ?, ?, ?, ?, ?, 0, ?, ?, '')`

/** Inserts jobs of different names, with numbers taken for them. */
export function* insertJobs(
  tx: Transaction,
  jobs: readonly NewJob[],
  ids: readonly number[],
  scopes: Scopes,
): Query<void> {
  yield* sendEach(
    INSERT_JOB,
    jobs.map((job, index) => insertValues(ids[index]!, job, tx.now)),
  )
  yield* sendEach(
    `INSERT INTO definitions (job_id, definition) VALUES (?, ?)`,
    jobs.map(({spec}, index) => [ids[index]!, definitionText(spec)]),
  )
  yield* sendEach(
    INSERT_METADATA,
    jobs.flatMap(({spec}, index) => metadataValues(ids[index]!, spec)),
  )
  yield* writeSpans(
    tx,
    jobs.map(({spec, anchorAt, actor = BELFRY}, index) => {
      return {id: ids[index]!, existing: null, spec, anchorAt, by: actor.name}
    }),
  )
  yield* recordDefinitions(
    tx,
    jobs.map(({spec}, index) => ({jobId: ids[index]!, kind: 'created', spec})),
    scopes,
  )
}

function insertValues(id: number, job: NewJob, now: number): Values {
  const {successCount, errorCount, lastSuccess, lastError} = job.counters
  const counted = [successCount, errorCount, lastSuccess, lastError]
  return [id, job.spec.name, ...definedValues(job), ...counted, job.status, now, now]
}

const INSERT_METADATA = `INSERT INTO job_metadata (job_id, key, value) VALUES (?, ?, ?)`

function metadataValues(id: number, spec: JobSpec): Values[] {
  return Object.entries(spec.metadata).map(([key, value]) => [id, key, value])
}

const UPDATE_JOB = `UPDATE jobs SET ${DEFINED_COLUMNS.map((column) => `${column} = ?`).join(', ')},
  updated_at = ? WHERE id = ?`

/** A stored job with its new definition. */
export interface RedefinedJob extends Omit<NewJob, 'counters' | 'status' | 'actor'> {
  readonly id: number
}

/** Replaces the definitions of different jobs; counters, status and decided times stay. */
export function* updateJobs(tx: Transaction, jobs: readonly RedefinedJob[]): Query<void> {
  yield* sendEach(
    UPDATE_JOB,
    jobs.map((job) => [...definedValues(job), tx.now, job.id]),
  )
  yield* sendEach(
    `UPDATE definitions SET definition = ? WHERE job_id = ?`,
    jobs.map(({id, spec}) => [definitionText(spec), id]),
  )
  yield* sendEach(
    `DELETE FROM job_metadata WHERE job_id = ?`,
    jobs.map(({id}) => [id]),
  )
  yield* sendEach(
    INSERT_METADATA,
    jobs.flatMap(({id, spec}) => metadataValues(id, spec)),
  )
}
