/**
 * Submit: creates or replaces a job, in one operation. The order of its checks is part of the API contract:
 * known idempotency key, paused, not JSON, not allowed, invalid, unknown parent. Runs share the idempotency
 * keys.
 */
import type {Actor} from '../core/audit.ts'
import {type Principal, shownJobs} from '../core/access/authorization.ts'
import {requireRun, requireStore, storeRefusal} from '../core/access/job-permission.ts'
import {DomainError} from '../core/errors.ts'
import {type Finding, sentenceOf} from '../core/findings.ts'
import type {JobRecord, JobSpec} from '../core/job.ts'
import {secretsOf} from '../core/secret.ts'
import type {RevisionMatch} from '../core/submit.ts'
import type {Idempotency, SubmitResult} from '../ports/job-store.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {type DecodedJob, isMisspelt} from '../wire/decode-job.ts'
import type {SentDefinition, SentPatch} from '../wire/definition.ts'
import type {OperationsContext} from './context.ts'
import {missingSecrets} from './secrets.ts'
import {openTagCheck, validateDefinition} from './validate.ts'

export interface SubmitCall {
  readonly caller: Principal
  readonly actor: Actor
  readonly definition: SentDefinition
  /** The name in the path, which must equal the name in the body; `null` = the path has none. */
  readonly pathName: string | null
  /** Revisions of `If-Match`. */
  readonly ifMatch: RevisionMatch
  /** `If-None-Match: *` */
  readonly createOnly: boolean
  /** `onlyJob` of `SubmitRequest`. */
  readonly onlyJob?: number
  readonly runOnCreate: boolean
  /** `null` = the request has no key. */
  readonly idempotency: RequestKey | null
  /** An unknown field or parameter is a fault. */
  readonly strict?: boolean
  /** The definition is that of this revision. */
  readonly revertsTo?: number
}

/** Effect of a submit; a definition equal to the stored one leaves it unchanged. */
export type SubmitAction = 'create' | 'update' | 'unchanged'

export interface SubmitReply {
  readonly job: JobRecord
  readonly action: SubmitAction
  /** Launch number of the run on create; `null` without one. */
  readonly group: number | null
  readonly warnings: readonly string[]
  /** Sentences about `ignoredFields`. */
  readonly ignored: readonly string[]
  /** Unknown fields that are probably misspelt. The others belong to clients that know more fields. */
  readonly misspelt: readonly string[]
  readonly ignoredFields: readonly string[]
}

export function createSubmit(context: OperationsContext) {
  const {store, access, runLimit, wakeup, events} = context
  const idempotency = new IdempotencyGuard()

  /** Throws `submissions_paused`, `payload_unparsable`, `not_allowed`, `job_invalid`, `parent_unknown`, … */
  async function submit(call: SubmitCall): Promise<SubmitReply> {
    const {caller, actor, ifMatch, createOnly, runOnCreate} = call
    return idempotency.run(caller.accessor, call.idempotency, 'submit', async (identity) => {
      // A repeated request gets the first reply, even if submissions are paused since.
      const earlier = identity === null ? null : await store.earlierSubmit(identity)
      if (earlier?.kind === 'idempotency_mismatch') throw idempotencyMismatch()
      const {spec, may, warnings, ignored, ignoredFields} = await check(call, earlier === null)
      const reverted = call.revertsTo === undefined ? {} : {revertsTo: call.revertsTo}
      const only = call.onlyJob === undefined ? {} : {onlyJob: call.onlyJob}
      const options = {ifMatch, createOnly, runOnCreate, ...reverted, ...only}
      const request = {spec, may, ...options, idempotency: identity}
      // Read beside the write: it costs no round trip of its own.
      const hasTags = Object.keys(spec.tags).length > 0
      const tagCheck = hasTags ? openTagCheck(() => store.members()) : null
      if (earlier === null && runOnCreate) runLimit.take(access.holderOf(caller), spec.name)
      const result = earlier ?? (await store.submit({...request, actor, defaultOwner: caller.name}))
      const stored = requireStored(caller, spec, result)
      if (earlier === null) {
        const {job, created, changed} = stored
        if (changed || stored.group !== null) wakeup.notify('launch')
        if (changed)
          events.emit('job_stored', {job: job.spec.name, revision: job.revision, created})
      }
      const unmatched = (await tagCheck)?.(spec.tags) ?? []
      return {
        // A large definition is not kept with the reply to the first request: this one is the same.
        job: {...stored.job, spec: {...spec, owner: stored.job.spec.owner}},
        action: actionOf(stored),
        group: stored.group,
        warnings: [...warnings, ...unmatched].map(sentenceOf),
        ignored: ignored.map(sentenceOf),
        misspelt: ignored.filter((_, index) => isMisspelt(ignoredFields[index]!)).map(sentenceOf),
        ignoredFields,
      }
    })
  }

  /** A pause is reported before the problems of a definition. For a valid one the store checks it. */
  async function check(call: SubmitCall, isNew: boolean) {
    try {
      const checked = await checkAllowed(call, requireReadable(call.definition).decoded)
      const names = secretsOf(checked.spec)
      const missing = isNew && names.length > 0 ? missingSecrets(names, await store.secrets()) : []
      if (missing.length > 0) throw jobInvalid(missing)
      return checked
    } catch (error) {
      if (isNew && (await store.submissionsPaused())) throw submissionsPaused()
      throw error
    }
  }

  /** Permissions are checked before the problems of a definition, which may be of another's job. */
  async function checkAllowed(call: SubmitCall, decoded: DecodedJob) {
    const {caller, runOnCreate} = call
    const {name} = decoded
    const permitted = specToPermit(decoded)
    const may = requireStore(caller, name, permitted)
    if (runOnCreate) requireRun(caller, name)
    try {
      return {may, ...requireValid(context, call, decoded)}
    } catch (error) {
      if (may.create === may.update) throw error
      const capability = (await store.job(name)) === null ? 'create' : 'update'
      if (may[capability]) throw error
      throw new DomainError('not_allowed', storeRefusal(caller, capability, name, permitted), {
        job: name,
        cause: error,
      })
    }
  }

  return {submit}
}

/** Definition that a permission is asked for; `null` = only its name, because a part could not be decoded. */
export function specToPermit({spec, faults}: DecodedJob): JobSpec | null {
  return faults.length === 0 ? spec : null
}

/** Throws `payload_unparsable`, `job_invalid`. */
export function requireReadable<Sent extends SentDefinition | SentPatch>(
  sent: Sent,
): Exclude<Sent, {readonly kind: 'syntax' | 'content'}> {
  if (sent.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${sent.problem}`)
  if (sent.kind === 'content') throw jobInvalid([sent.finding])
  return sent as Exclude<Sent, {readonly kind: 'syntax' | 'content'}>
}

/** Throws `job_invalid`. */
function requireValid(
  context: OperationsContext,
  {pathName, strict = false}: SubmitCall,
  decoded: DecodedJob,
) {
  const {spec, ignoredFields} = decoded
  const {faults, warnings, ignored} = validateDefinition(context, decoded, strict)
  if (spec === null || decoded.faults.length > 0) throw jobInvalid(faults)
  const all = [...misnamedFaults(spec, pathName), ...faults]
  if (all.length > 0) throw jobInvalid(all)
  return {spec, warnings, ignored, ignoredFields}
}

export function misnamedFaults({name}: JobSpec, pathName: string | null): readonly Finding[] {
  if (pathName === null || name === pathName) return []
  return [{field: 'name', problem: `is "${name}" in the body and "${pathName}" in the path`}]
}

export function actionOf({created, changed}: Pick<Stored, 'created' | 'changed'>): SubmitAction {
  if (created) return 'create'
  return changed ? 'update' : 'unchanged'
}

type Stored = Extract<SubmitResult, {kind: 'stored'}>

function requireStored(caller: Principal, spec: JobSpec, result: SubmitResult): Stored {
  if (result.kind === 'stored') return result
  throw refusalOf(caller, spec, result)
}

export function refusalOf(
  caller: Principal,
  spec: JobSpec,
  result: Exclude<SubmitResult, Stored>,
): DomainError {
  switch (result.kind) {
    case 'paused':
      return submissionsPaused()
    case 'parent_unknown':
      return parentUnknown(result.parent)
    case 'cycle':
      return jobInvalid([cycleFault(caller, result.path)])
    case 'ephemeral_parent': {
      const dependents = shownJobs(caller, result.dependents)
      return jobInvalid([ephemeralFault(spec, result.parent, dependents)])
    }
    case 'precondition':
      return preconditionFailed(result.revision)
    case 'idempotency_mismatch':
      return idempotencyMismatch()
    case 'not_allowed': {
      const sentence = storeRefusal(caller, result.capability, spec.name, spec)
      return new DomainError('not_allowed', sentence, {job: spec.name})
    }
  }
}

/** The message has the first fault, the member `errors` all of them. */
function jobInvalid(faults: readonly Finding[]): DomainError {
  const first = sentenceOf(faults[0]!)
  return new DomainError(
    'job_invalid',
    `Job validation failed: the job definition is invalid: ${first}`,
    {members: {errors: faults}},
  )
}

function parentUnknown(parent: string): DomainError {
  const problem = `there is no job named ${quoteForMessage(parent)}`
  const fault: Finding = {field: 'parent_job', problem, code: 'parent_unknown'}
  const message = `specified parent job not found: ${sentenceOf(fault)}`
  return new DomainError('parent_unknown', message, {members: {errors: [fault]}})
}

function cycleFault(caller: Principal, path: readonly string[]): Finding {
  return {field: 'parent_job', problem: `makes a cycle, ${shownPath(caller, path)}`}
}

/** Jobs that the caller may not read are in it without their names. */
export function shownPath(caller: Principal, path: readonly string[]): string {
  const shown = new Set(shownJobs(caller, path))
  return path.map((name) => (shown.has(name) ? name : '…')).join(' -> ')
}

function ephemeralFault(spec: JobSpec, parent: string, dependents: readonly string[]): Finding {
  if (parent !== spec.name) {
    const problem = `${quoteForMessage(parent)} is ephemeral, and an ephemeral job cannot have dependents`
    return {field: 'parent_job', problem}
  }
  const named = dependents.length === 0 ? '' : ` (${dependents.join(', ')})`
  return {field: 'ephemeral', problem: `must be false: jobs depend on this one${named}`}
}

export function submissionsPaused(): DomainError {
  return new DomainError(
    'submissions_paused',
    'Submissions are paused: no job can be created, replaced, restored or reverted. Jobs still run as ' +
      'planned, and can be run, enabled, disabled and deleted.',
  )
}

/** `revision` `null` = the job does not exist. */
export function preconditionFailed(revision: number | null): DomainError {
  const state = revision === null ? 'the job does not exist' : `the job is at revision ${revision}`
  return new DomainError('precondition_failed', `The precondition does not hold: ${state}.`, {
    members: {revision},
  })
}

const KEY_LENGTH_MAX = 255
/** Part of the stored scope for callers whose token is not stored. */
const SCOPE_OWNER = 'server'

/** The key of a request, and a digest of everything that distinguishes it from another one. */
export interface RequestKey {
  readonly key: string
  readonly fingerprint: string
}

/**
 * Idempotency keys: scopes the key of a request, and rejects a second request with the same key while
 * the first is in progress on this server. The store keeps the replies of finished requests.
 */
export class IdempotencyGuard {
  readonly #inProgress = new Set<string>()

  /**
   * Runs `work` with the identity of the request; `null` = it has no key. The token and `operation` scope the
   * key. Throws `idempotency_in_progress`, `request_malformed`.
   */
  async run<Result>(
    accessor: string,
    sent: RequestKey | null,
    operation: string,
    work: (identity: Idempotency | null) => Promise<Result>,
  ): Promise<Result> {
    if (sent === null) return work(null)
    const {key, fingerprint} = sent
    if (key === '' || key.length > KEY_LENGTH_MAX)
      throw new DomainError(
        'request_malformed',
        `Idempotency-Key must have 1 to ${KEY_LENGTH_MAX} characters.`,
      )
    const scope = `${accessor || SCOPE_OWNER}:${operation}`
    const scopedKey = `${scope}\n${key}`
    if (this.#inProgress.has(scopedKey))
      throw new DomainError(
        'idempotency_in_progress',
        'A request with this Idempotency-Key is still in progress. Retry in a moment.',
        {retryAfterSeconds: 1},
      )
    this.#inProgress.add(scopedKey)
    try {
      return await work({key, scope, fingerprint})
    } finally {
      this.#inProgress.delete(scopedKey)
    }
  }
}

export function idempotencyMismatch(): DomainError {
  return new DomainError(
    'idempotency_mismatch',
    'This Idempotency-Key was used for another request. Use a new key.',
  )
}
