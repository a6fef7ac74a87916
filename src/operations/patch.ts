/**
 * Changes fields of a job by a JSON merge patch (RFC 7396): reads the definition, merges, and submits the
 * result for the revision that was read. If another change comes between, it starts again, so that both take
 * effect.
 */
import {check, jobPath, type Principal, refusalSentence} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {requireStore} from '../core/access/job-permission.ts'
import type {JobRecord} from '../core/job.ts'
import type {RevisionMatch} from '../core/submit.ts'
import type {SentPatch} from '../wire/definition.ts'
import type {OperationsContext} from './context.ts'
import type {DryRun} from './dry-run.ts'
import {requireJob} from './jobs.ts'
import {
  preconditionFailed,
  requireReadable,
  type SubmitCall,
  type SubmitReply,
  submissionsPaused,
} from './submit.ts'

/** More changes of one job at the same moment than clients make: bounds the work of one request. */
const ATTEMPTS_MAX = 20

export interface PatchCall extends Omit<
  SubmitCall,
  'definition' | 'pathName' | 'createOnly' | 'runOnCreate' | 'idempotency' | 'revertsTo'
> {
  readonly name: string
  readonly patch: SentPatch
}

type Submit<Reply> = (call: SubmitCall) => Promise<Reply>

export function createPatch(
  {store}: OperationsContext,
  submit: Submit<SubmitReply>,
  dryRun: Submit<DryRun>,
) {
  /** Throws `job_unknown`, and as `submit`. */
  async function patch(call: PatchCall): Promise<SubmitReply> {
    requireChange(call)
    if (await store.submissionsPaused()) throw submissionsPaused()
    for (let attempt = 1; ; attempt += 1) {
      const merged = await merge(call)
      try {
        return await submit(merged)
      } catch (error) {
        const isStale = error instanceof DomainError && error.code === 'precondition_failed'
        if (!isStale || attempt === ATTEMPTS_MAX) throw error
      }
    }
  }

  /** Throws `job_unknown`, and as `dryRun`. */
  async function patchDryRun(call: PatchCall): Promise<DryRun> {
    requireChange(call)
    return dryRun(await merge(call))
  }

  /** The submit of the merged definition, for the revision that it was merged with. */
  async function merge({name, patch: sent, ...call}: PatchCall): Promise<SubmitCall> {
    const {apply} = requireReadable(sent)
    const job = requireJob(name, await store.job(name))
    const {id, revision} = requireMatch(job, call.ifMatch)
    return {
      ...call,
      definition: {kind: 'definition', decoded: apply(job.spec)},
      pathName: name,
      ifMatch: [revision],
      // A job that was deleted and created again has the same revisions.
      onlyJob: id,
      createOnly: false,
      runOnCreate: false,
      idempotency: null,
    }
  }

  return {patch, patchDryRun}
}

/** Faults and warnings show what is merged, so the caller must be allowed to read it. */
function requireChange({caller, name}: PatchCall): void {
  requireRead(caller, name)
  requireStore(caller, name, null)
}

function requireRead(caller: Principal, name: string): void {
  const wanted = check(caller, 'read', jobPath(name))
  if (!wanted.allowed)
    throw new DomainError('not_allowed', refusalSentence(caller, wanted), {job: name})
}

/** Throws `precondition_failed`. */
function requireMatch(job: JobRecord, ifMatch: RevisionMatch): JobRecord {
  const isMet = ifMatch === null || ifMatch === '*' || ifMatch.includes(job.revision)
  if (!isMet) throw preconditionFailed(job.revision)
  return job
}
