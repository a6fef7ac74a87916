/**
 * Decides a submit: whether its definition is stored, and which change that is. `planDefinition` decides how
 * it moves `next`. The store asks with the job locked.
 */
import type {StorePermission} from './access/job-permission.ts'
import {type Actor, type Change, replacedBy} from './audit.ts'
import type {JobRecord, JobSpec} from './job.ts'
import type {ParentProblem} from './parents.ts'

/**
 * Precondition of a change (optimistic concurrency): the stored revision must be in the list. `'*'`: the job
 * must exist. `null`: no condition. Compared in the transaction that makes the change.
 */
export type RevisionMatch = readonly number[] | '*' | null

/** The precondition failed; nothing was changed. `revision`: the stored one, `null` = no such job. */
export interface PreconditionFailed {
  readonly kind: 'precondition'
  readonly revision: number | null
}

/** The caller may not do what this takes. */
interface NotAllowed {
  readonly kind: 'not_allowed'
  readonly capability: 'create' | 'update'
}

export type SubmitRefusal = NotAllowed | PreconditionFailed | ParentProblem

export interface Submission {
  readonly spec: JobSpec
  readonly ifMatch: RevisionMatch
  /** `If-None-Match: *`: the job must not exist. */
  readonly createOnly: boolean
  /** Id of the job to change: another job of its name fails the precondition. Absent = not compared. */
  readonly onlyJob?: number
  /** Changes that the caller may make to this job; absent = both. */
  readonly may?: StorePermission
  /** Owner of a new job that names none; a job that exists keeps its owner. Absent or `''`: no owner. */
  readonly defaultOwner?: string
  /** The definition is that of an earlier revision. */
  readonly revertsTo?: number
  /** Absent = Belfry itself. */
  readonly actor?: Actor
}

/** `existing`: the stored job; `null` = there is none. Returns `null` if the submit is accepted. */
export function refuseSubmit(
  submission: Submission,
  existing: JobRecord | null,
  parent: ParentProblem | null,
): SubmitRefusal | null {
  return (
    checkPermission(submission.may, existing) ?? checkPreconditions(submission, existing) ?? parent
  )
}

/** Capability that the caller lacks; `null` = none. */
export function checkPermission(
  may: StorePermission | undefined,
  existing: JobRecord | null,
): NotAllowed | null {
  const capability = existing === null ? 'create' : 'update'
  return may === undefined || may[capability] ? null : {kind: 'not_allowed', capability}
}

function checkPreconditions(
  {ifMatch, createOnly, onlyJob}: Submission,
  existing: JobRecord | null,
): PreconditionFailed | null {
  const revision = existing?.revision ?? null
  const isOther = onlyJob !== undefined && existing?.id !== onlyJob
  if (isOther || (createOnly && existing !== null)) return {kind: 'precondition', revision}
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

/** A submit that names no owner: a new job gets the default, another keeps its owner. */
export function withOwner(spec: JobSpec, existing: JobRecord | null, fallback = ''): JobSpec {
  if (spec.owner !== '' || fallback === '') return spec
  return {...spec, owner: existing === null ? fallback : existing.spec.owner}
}

/** Result of an accepted submit. */
export interface StoredSubmit {
  /** Id of the job. */
  readonly id: number
  /** New revision; `null` = the definition is unchanged. */
  readonly revision: number | null
  /** Launch number of the run on create; `null` = none. */
  readonly group: number | null
}

/** Change to record of an accepted submit; `null` = nothing. */
export function submitChange(
  {spec, actor, revertsTo}: Submission,
  existing: JobRecord | null,
  {id, revision, group}: StoredSubmit,
): Change | null {
  const detail = group === null ? '' : `launch ${group}`
  const shared = {actor, targetType: 'job', target: spec.name, detail} as const
  if (revision === null) return group === null ? null : {...shared, action: 'job.run'}
  if (existing === null)
    return {...shared, action: 'job.create', job: {id, before: null, after: revision}}
  const replaced = replacedBy(existing, revision)
  if (revertsTo === undefined) return {...shared, action: 'job.update', ...replaced}
  return {...shared, action: 'job.revert', detail: `to revision ${revertsTo}`, ...replaced}
}
