/** Reading, toggling and deleting jobs. Submitting them stands in `submit.ts`, running them in `runs.ts`. */
import type {JobRecord} from '../core/job.ts'
import {DomainError} from '../core/errors.ts'
import type {JobQuery, RevisionMatch} from '../ports/job-store.ts'
import type {Page} from '../ports/page.ts'
import type {OperationsDependencies} from './context.ts'
import type {PatientStore} from './store-deadlines.ts'
import {preconditionFailed} from './submit.ts'

export function createJobs({wakeup, events}: OperationsDependencies, store: PatientStore) {
  /** Throws `job_unknown`. */
  async function job(name: string): Promise<JobRecord> {
    return known(name, await store.read((data) => data.job(name)))
  }

  /** From one snapshot. */
  function jobs(query: JobQuery): Promise<Page<JobRecord>> {
    return store.readSlice(query, (data) => data.jobs(query))
  }

  /** Throws `job_unknown`, `precondition_failed`. */
  async function toggle(name: string, match: RevisionMatch): Promise<JobRecord> {
    const result = await store.write((data) => data.toggle(name, match))
    switch (result.kind) {
      case 'unknown':
        throw jobUnknown(name)
      case 'precondition':
        throw preconditionFailed(result.revision)
      case 'toggled': {
        const {revision} = result.job
        wakeup.ring('launch')
        events.emit('job_stored', {job: name, revision, created: false})
        return result.job
      }
    }
  }

  /** Throws `job_unknown`, `precondition_failed`, `job_has_dependents`. */
  async function deleteJob(name: string, match: RevisionMatch): Promise<JobRecord> {
    const result = await store.write((data) => data.deleteJob(name, match))
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
        wakeup.ring('cancel')
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
