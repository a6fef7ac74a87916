/** Reading, toggling and deleting jobs. Submitting them stands in `submit.ts`, running them in `runs.ts`. */
import {DomainError} from '../core/errors.ts'
import {parseExecutionId} from '../core/execution.ts'
import type {JobRecord} from '../core/job.ts'
import type {ExecutionView} from '../ports/history-store.ts'
import type {JobQuery, RevisionMatch} from '../ports/job-store.ts'
import type {Page} from '../ports/page.ts'
import {LISTED_OUTPUT_BYTES} from '../wire/execution.ts'
import type {Principal, OperationsDependencies} from './context.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'
import {idempotencyMismatch, Idempotent, preconditionFailed} from './submit.ts'

export function createJobs({wakeup, events}: OperationsDependencies, store: StoreWithDeadlines) {
  /** Throws `job_unknown`. */
  async function job(name: string): Promise<JobRecord> {
    return known(name, await store.job(name))
  }

  /** From one snapshot. */
  function jobs(query: JobQuery): Promise<Page<JobRecord>> {
    return store.jobs(query)
  }

  /** Throws `job_unknown`, `precondition_failed`. */
  async function toggle(name: string, match: RevisionMatch): Promise<JobRecord> {
    const result = await store.toggle(name, match)
    switch (result.kind) {
      case 'unknown':
        throw jobUnknown(name)
      case 'precondition':
        throw preconditionFailed(result.revision)
      case 'toggled': {
        const {revision} = result.job
        wakeup.notify('launch')
        events.emit('job_stored', {job: name, revision, created: false})
        return result.job
      }
    }
  }

  /** Throws `job_unknown`, `precondition_failed`, `job_has_dependents`. */
  async function deleteJob(name: string, match: RevisionMatch): Promise<JobRecord> {
    const result = await store.deleteJob(name, match)
    switch (result.kind) {
      case 'unknown':
        throw jobUnknown(name)
      case 'precondition':
        throw preconditionFailed(result.revision)
      case 'dependents': {
        const advice = `delete or change them first: ${result.names.slice(0, 20).join(', ')}`
        throw new DomainError('job_has_dependents', `Jobs depend on "${name}"; ${advice}.`, {
          members: {dependent_jobs: result.names},
        })
      }
      case 'deleted':
        wakeup.notify('cancel')
        events.emit('job_deleted', {job: name})
        return result.job
    }
  }

  return {job, jobs, toggle, deleteJob}
}

export function jobUnknown(name: string): DomainError {
  return new DomainError('job_unknown', `There is no job named "${name.slice(0, 200)}".`)
}

export function known(name: string, job: JobRecord | null): JobRecord {
  if (job === null) throw jobUnknown(name)
  return job
}

/*
 * Asking for a run and for the end of one. Both are stored requests: nothing here starts or ends a process.
 */

export interface RunCall {
  readonly caller: Principal
  readonly name: string
  /** Goes past `forbid`. */
  readonly forced: boolean
  readonly idempotencyKey: string | null
}

export function createRuns(dependencies: OperationsDependencies, store: StoreWithDeadlines) {
  const {wakeup, events, hasTarget} = dependencies
  const idempotent = new Idempotent()

  /** Answers as soon as the request is stored. Throws `job_unknown`, `no_target`, `launch_open`, … */
  async function run(call: RunCall): Promise<{job: JobRecord; group: number}> {
    const {name, forced} = call
    const parts = ['run', name, forced ? 'force' : '']
    const result = await idempotent.run(
      call.caller,
      call.idempotencyKey,
      'run',
      parts,
      async (idempotency) => {
        // The first answer holds, though the job or its nodes may be gone since.
        const earlier = idempotency === null ? null : await store.earlierRun(idempotency)
        if (earlier !== null) return earlier
        const job = await store.job(name)
        if (job === null) throw jobUnknown(name)
        if (!(await hasTarget(job.spec.tags))) throw noTarget(job)
        return store.requestRun({name, forced, idempotency})
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

  /** Asks for the end of a pending or running execution. Throws `execution_unknown`, `execution_over`. */
  async function cancel(name: string, id: string): Promise<ExecutionView> {
    const key = parseExecutionId(id)
    if (key === null) throw await executionUnknown(store, name, id)
    const result = await store.cancelExecution(name, key)
    if (result.kind === 'unknown') throw await executionUnknown(store, name, id)
    if (result.kind === 'over')
      throw new DomainError('execution_over', `The execution is already over: ${result.status}.`, {
        members: {execution_status: result.status},
      })
    wakeup.notify('cancel')
    const {status} = result.execution
    events.emit('execution_changed', {job: name, execution: id, status})
    dependencies.announce(result.ended)
    const view = await store.execution(name, key, LISTED_OUTPUT_BYTES)
    return view ?? {...result.execution, output: new Uint8Array(), outputTruncated: false}
  }

  return {run, cancel}
}

function noTarget(job: JobRecord): DomainError {
  const tags = Object.entries(job.spec.tags).map(([key, value]) => `${key}=${value}`)
  const wanted = tags.length === 0 ? 'runs jobs' : `has the tags ${tags.join(', ').slice(0, 500)}`
  return new DomainError('no_target', `No alive node ${wanted}; nothing was started.`)
}

/** `group` is `null` for what a deleted namesake left behind: nothing there to look at or to cancel. */
function launchOpen(name: string, group: number | null): DomainError {
  if (group === null)
    return new DomainError(
      'launch_open',
      `Processes of a deleted job "${name}" have not ended yet, and this one's concurrency is forbid; ` +
        'wait for their end, or add ?force=true.',
    )
  const advice = 'wait for it, cancel it, or add ?force=true'
  return new DomainError(
    'launch_open',
    `Launch ${group} of "${name}" is still open and its concurrency is forbid; ${advice}.`,
    {members: {group, location: `/v1/jobs/${encodeURIComponent(name)}/launches/${group}`}},
  )
}

/** The refusal for an execution that is not there: of a job that is not there either, or not. */
export async function executionUnknown(
  store: StoreWithDeadlines,
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
