/**
 * Jobs and their runs: reading, toggling, deleting and run requests. A run request is stored for the leader;
 * no process is started here. `submit.ts` creates and replaces jobs.
 */
import type {Actor} from '../core/audit.ts'
import {type Principal, readableJobs, shownJobs} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import type {JobRecord, ShownJob} from '../core/job.ts'
import type {RevisionMatch} from '../core/submit.ts'
import type {JobQuery} from '../ports/job-store.ts'
import type {Page} from '../ports/page.ts'
import type {OperationsContext} from './context.ts'
import type {Store} from '../ports/store.ts'
import {
  IdempotencyGuard,
  idempotencyMismatch,
  preconditionFailed,
  type RequestKey,
} from './submit.ts'

export function createJobs({wakeup, events, store}: OperationsContext) {
  /** Throws `job_unknown`. */
  async function job(name: string): Promise<ShownJob> {
    return requireJob(name, await store.job(name))
  }

  /** The jobs that the caller may read. All rows are from one snapshot. */
  function jobs(query: JobQuery, caller: Principal): Promise<Page<ShownJob>> {
    return store.jobs({...query, names: readableJobs(caller)})
  }

  /** Sets `disabled`; if absent, flips it. Throws `job_unknown`, `precondition_failed`. */
  async function toggle({name, match, actor, disabled}: ToggleCall): Promise<JobRecord> {
    const result = await store.toggle(name, match, actor, disabled)
    switch (result.kind) {
      case 'unknown':
        throw jobUnknown(name)
      case 'precondition':
        throw preconditionFailed(result.revision)
      case 'unchanged':
        return result.job
      case 'toggled': {
        const {revision} = result.job
        wakeup.notify('launch')
        events.emit('job_stored', {job: name, revision, created: false})
        return result.job
      }
    }
  }

  /** Throws `job_unknown`, `precondition_failed`, `job_has_dependents`. */
  async function deleteJob({name, match, caller, actor}: DeleteCall): Promise<JobRecord> {
    const result = await store.deleteJob(name, match, actor)
    switch (result.kind) {
      case 'unknown':
        throw jobUnknown(name)
      case 'precondition':
        throw preconditionFailed(result.revision)
      case 'dependents': {
        const names = shownJobs(caller, result.names)
        const first = names.length === 0 ? 'them' : names.slice(0, 20).join(', ')
        throw new DomainError(
          'job_has_dependents',
          `The job "${name}" cannot be deleted: jobs depend on it. Delete or change ${first} first.`,
          {members: {dependent_jobs: names}},
        )
      }
      case 'deleted':
        wakeup.notify('cancel')
        events.emit('job_deleted', {job: name})
        return result.job
    }
  }

  return {job, jobs, toggle, deleteJob}
}

export interface ToggleCall {
  readonly name: string
  readonly match: RevisionMatch
  readonly actor: Actor
  /** Absent = the other value than now. */
  readonly disabled?: boolean
}

export interface DeleteCall {
  readonly name: string
  readonly match: RevisionMatch
  readonly caller: Principal
  readonly actor: Actor
}

export interface RunCall {
  readonly caller: Principal
  readonly actor: Actor
  readonly name: string
  /** Ignores `concurrency: forbid`. */
  readonly forced: boolean
  /** `null` = the request has no key. */
  readonly idempotency: RequestKey | null
}

export function createRuns(context: OperationsContext) {
  const {wakeup, store, access, countTargets, runLimit} = context
  const idempotency = new IdempotencyGuard()

  /** Returns as soon as the request is stored. Throws `job_unknown`, `no_target`, `too_many_runs`, … */
  async function run(call: RunCall): Promise<{job: JobRecord; group: number}> {
    const {caller, actor, name, forced} = call
    const result = await idempotency.run(
      caller.accessor,
      call.idempotency,
      'run',
      async (identity) => {
        // A repeated request gets the first reply, even if the job or its nodes are gone since.
        const earlier = identity === null ? null : await store.earlierRun(identity)
        if (earlier !== null) return earlier
        const job = requireJob(name, await store.job(name))
        const {matching, cordoned} = await countTargets(job.spec.tags)
        if (matching === 0) throw noTarget(job, cordoned)
        runLimit.take(access.holderOf(caller), name)
        return store.requestRun({name, forced, idempotency: identity, actor})
      },
    )
    switch (result.kind) {
      case 'unknown':
        throw jobUnknown(name)
      case 'forbidden':
        throw launchOpen(name, result.openGroup)
      case 'idempotency_mismatch':
        throw idempotencyMismatch()
      case 'accepted':
        wakeup.notify('launch')
        return {job: result.job, group: result.group}
    }
  }

  return {run}
}

export function jobUnknown(name: string): DomainError {
  return new DomainError('job_unknown', `There is no job named "${name.slice(0, 200)}".`)
}

/** Throws `job_unknown` for `null`. */
export function requireJob<Job extends JobRecord>(name: string, job: Job | null): Job {
  if (job === null) throw jobUnknown(name)
  return job
}

/** `execution_unknown`, or `job_unknown` when the job does not exist either. */
export async function executionUnknown(
  store: Store,
  name: string,
  id: string,
): Promise<DomainError> {
  const job = await store.job(name)
  if (job === null) return jobUnknown(name)
  return new DomainError(
    'execution_unknown',
    `The job "${name}" has no execution "${id.slice(0, 100)}".`,
  )
}

/** `cordoned`: how many cordoned nodes match. */
function noTarget(job: JobRecord, cordoned: number): DomainError {
  if (cordoned > 0) {
    const cause = cordoned === 1 ? 'the node that matches is' : `all ${cordoned} matching nodes are`
    const sentence = `The job cannot run: ${cause} cordoned. Nothing was started.`
    throw new DomainError('no_target', `${sentence} Uncordon a node, or add one.`)
  }
  const tags = Object.entries(job.spec.tags).map(([key, value]) => `${key}=${value}`)
  const cause =
    tags.length === 0
      ? 'no alive node runs jobs'
      : `no alive node has the tags ${tags.join(', ').slice(0, 500)}`
  return new DomainError('no_target', `The job cannot run: ${cause}. Nothing was started.`)
}

/** `group` `null` = processes of a deleted job with this name: there is no launch to show or to cancel. */
function launchOpen(name: string, group: number | null): DomainError {
  if (group === null)
    return new DomainError(
      'launch_open',
      `The job cannot run while its concurrency is forbid: processes of a deleted job "${name}" are still ` +
        'running. Wait for their end, or add ?force=true.',
    )
  return new DomainError(
    'launch_open',
    `The job cannot run while its concurrency is forbid: launch ${group} of "${name}" is still open. ` +
      'Wait for its end, cancel it, or add ?force=true.',
    {members: {group}, job: name},
  )
}
