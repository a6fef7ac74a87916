/** The audit log, and the history of jobs, which is in the same rows. */
import type {Actor} from '../core/audit.ts'
import {type NameFilter, type Principal, readableJobs} from '../core/access/authorization.ts'
import {requireStore} from '../core/access/job-permission.ts'
import {DomainError} from '../core/errors.ts'
import type {JobSpec} from '../core/job.ts'
import type {AuditEntry, AuditQuery, Revision} from '../ports/audit-store.ts'
import type {RevisionMatch} from '../core/submit.ts'
import type {Page, Slice} from '../ports/page.ts'
import type {OperationsContext} from './context.ts'
import {jobUnknown, requireJob} from './jobs.ts'
import type {createSubmit, RequestKey, SubmitReply} from './submit.ts'

export interface RevertCall {
  readonly caller: Principal
  readonly actor: Actor
  readonly name: string
  /** Revision as in the path. */
  readonly revision: string
  /** Revisions of `If-Match`. */
  readonly ifMatch: RevisionMatch
  /** `null` = the request has no key. */
  readonly idempotency: RequestKey | null
}

export interface Diff {
  /** `null` = the job did not exist. */
  readonly from: number | null
  readonly to: number
  readonly before: JobSpec | null
  readonly after: JobSpec
}

const EVERY_JOB: NameFilter = [{pattern: '*', shown: true}]

export function createAudit({store}: OperationsContext) {
  /** Newest first. A client token sees the entries of the jobs that it may read, and no others. */
  function audit(query: Omit<AuditQuery, 'names'>, caller: Principal): Promise<Page<AuditEntry>> {
    const names = readableJobs(caller)
    const seesOnlyJobs = caller.kind === 'client' && !caller.rules.readsAll
    return store.audit({...query, names: seesOnlyJobs ? (names ?? EVERY_JOB) : names})
  }

  return {audit}
}

export function createRevisions(
  {store}: OperationsContext,
  submit: ReturnType<typeof createSubmit>['submit'],
) {
  /** Newest first. Throws `job_unknown`. */
  async function revisions(name: string, slice: Slice): Promise<Page<Revision>> {
    const page = await store.revisions(name, slice)
    if (page === null) throw jobUnknown(name)
    return page
  }

  /** Throws `job_unknown`, `revision_unknown`. */
  async function revision(
    name: string,
    text: string,
  ): Promise<{readonly revision: Revision; readonly spec: JobSpec}> {
    const number = /^[1-9]\d{0,14}$/.test(text) ? Number(text) : null
    const found = number === null ? null : await store.revision(name, number)
    if (found !== null) return found
    requireJob(name, await store.job(name))
    const sentence = `The job "${name}" has no revision "${text.slice(0, 20)}", or it is not kept any more.`
    throw new DomainError('revision_unknown', sentence)
  }

  /** Differences between two revisions; without `other`, the change of the revision. Throws as `revision`. */
  async function diff(name: string, text: string, other: string | null): Promise<Diff> {
    const {revision: after, spec} = await revision(name, text)
    const to = after.revision
    if (other === null && to === 1) return {from: null, to, before: null, after: spec}
    const before = await revision(name, other ?? String(to - 1))
    return {from: before.revision.revision, to, before: before.spec, after: spec}
  }

  /**
   * Submits the definition of an earlier revision, with all checks of a submit. Only for a job that exists.
   * Throws `not_allowed`, as `revision`, and as `submit`.
   */
  async function revert(call: RevertCall): Promise<SubmitReply> {
    const {caller, actor, name, ifMatch, idempotency} = call
    requireStore(caller, name, null)
    const {revision: found, spec} = await revision(name, call.revision)
    const decoded = {name, spec, faults: [], warnings: [], ignoredFields: []}
    return submit({
      caller,
      actor,
      definition: {kind: 'definition', decoded},
      pathName: name,
      ifMatch: ifMatch ?? '*',
      createOnly: false,
      runOnCreate: false,
      idempotency,
      revertsTo: found.revision,
    })
  }

  return {revisions, revision, diff, revert}
}
