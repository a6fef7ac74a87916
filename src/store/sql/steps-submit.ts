/**
 * Storing definitions: submit and toggle. Every check that must see what it protects runs inside the
 * transaction.
 */
import type {JobRecord, JobSpec} from '../../core/job.ts'
import {planDefinition, type DefinitionChange} from '../../core/next-time.ts'
import {assert} from '../../lib/assert.ts'
import type {
  PreconditionFailed,
  RevisionMatch,
  SubmitRequest,
  SubmitResult,
  ToggleResult,
} from '../../ports/job-store.ts'
import {each, one, type Step} from './query.ts'
import {recall, remember} from './idempotency.ts'
import {isPaused, timezone} from './settings.ts'
import {dependentsOf, insertJob, loadJob, lockJob, updateJobs} from './jobs.ts'
import {insertRequest, writePlanned} from './launch-rows.ts'
import type {Transaction} from './transaction.ts'

const FRESH = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

export function* submit(tx: Transaction, request: SubmitRequest): Step<SubmitResult> {
  const known = yield* recall<SubmitResult>(tx, request.idempotency)
  if (known !== null) return known
  const {spec} = request
  if (yield* isPaused()) return {kind: 'paused'}
  const existing = yield* lockJob(tx, spec.name)
  const refusal = unmet(request, existing) ?? (yield* familyProblem(spec))
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
  yield* remember(tx, request.idempotency, result)
  return result
}

/** Writes what `planDefinition` decided; answers the job's id. */
export function* applyChange(
  tx: Transaction,
  existing: JobRecord | null,
  spec: JobSpec,
  change: DefinitionChange,
): Step<number> {
  if (existing === null) return yield* insertJob(tx, {...change, spec, counters: FRESH})
  yield* applyChanges(tx, [{existing, spec, change}])
  return existing.id
}

/** A stored job, how it is to be defined, and what was decided about that. */
export interface Redefinition {
  readonly existing: JobRecord
  readonly spec: JobSpec
  readonly change: DefinitionChange
}

/** The same for stored jobs, all different: as many statements for a thousand as for one. */
export function* applyChanges(tx: Transaction, given: readonly Redefinition[]): Step<void> {
  const changed = given.filter(({change}) => change.changed)
  yield* updateJobs(
    tx,
    changed.map(({existing, spec, change}) => ({...change, id: existing.id, spec})),
  )
  yield* passOver(
    tx,
    changed.map(({existing, change}) => ({job: existing, rows: change.missed})),
  )
}

/** Records planned times that a change moved `next` past; jobs that have none are left as they are. */
export function* passOver(
  tx: Transaction,
  given: readonly {readonly job: JobRecord; readonly rows: DefinitionChange['missed']}[],
): Step<void> {
  const planned = given.flatMap(({job, rows}) => {
    return rows.length === 0 ? [] : [{job: {id: job.id, name: job.spec.name}, rows}]
  })
  yield* writePlanned(tx, planned, null)
  yield* each(
    `UPDATE jobs SET decided_until = ? WHERE id = ?`,
    planned.map(({job, rows}) => [rows.at(-1)!.scheduledUntil, job.id]),
  )
}

function unmet(request: SubmitRequest, existing: JobRecord | null): PreconditionFailed | null {
  const {ifMatch, createOnly} = request
  if (createOnly && existing !== null) return {kind: 'precondition', revision: existing.revision}
  return unmatched(ifMatch, existing)
}

/** What is refused when the job as it is locked is not the one the caller means; `null` = it is. */
export function unmatched(
  ifMatch: RevisionMatch,
  existing: JobRecord | null,
): PreconditionFailed | null {
  if (ifMatch === null) return null
  const revision = existing?.revision ?? null
  const isMet = revision !== null && (ifMatch === '*' || ifMatch.includes(revision))
  return isMet ? null : {kind: 'precondition', revision}
}

type FamilyProblem = Extract<SubmitResult, {kind: 'parent_unknown' | 'cycle' | 'ephemeral_parent'}>

/** What is wrong with the place of `spec` among parents and dependents, as they are stored. */
function* familyProblem(spec: JobSpec): Step<FamilyProblem | null> {
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

export function* toggle(tx: Transaction, name: string, ifMatch: RevisionMatch): Step<ToggleResult> {
  const existing = yield* lockJob(tx, name)
  if (existing === null) return {kind: 'unknown'}
  const refusal = unmatched(ifMatch, existing)
  if (refusal !== null) return refusal
  const spec = {...existing.spec, disabled: !existing.spec.disabled}
  const zone = yield* timezone()
  yield* applyChange(tx, existing, spec, planDefinition(existing, spec, tx.now, zone, false))
  const job = yield* loadJob(name)
  assert(job !== null, `${name} is locked and live`)
  return {kind: 'toggled', job}
}
