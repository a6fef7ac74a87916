/**
 * Submit: creates or replaces a job, in one operation. The order of its checks is part of the API contract:
 * known idempotency key, paused, not JSON, not allowed, invalid, unknown parent. Runs share the idempotency
 * keys.
 */
import {createHash} from 'node:crypto'
import type {Actor} from '../core/audit.ts'
import {type Principal, shownJobs} from '../core/access/authorization.ts'
import {requireRun, requireStore, storeRefusal} from '../core/access/job-permission.ts'
import {DomainError} from '../core/errors.ts'
import {type Finding, sentenceOf} from '../core/findings.ts'
import type {JobRecord, JobSpec} from '../core/job.ts'
import {secretsOf} from '../core/secret.ts'
import type {RevisionMatch} from '../core/submit.ts'
import type {Idempotency, SubmitResult} from '../ports/job-store.ts'
import {decodeJob, isMisspelt} from '../wire/decode-job.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {isObject, readJsonBytes} from '../wire/json.ts'
import type {OperationsContext} from './context.ts'
import {missingSecrets} from './secrets.ts'
import {openTagCheck, validateDefinition} from './validate.ts'

export interface SubmitCall {
  readonly caller: Principal
  readonly actor: Actor
  readonly body: Uint8Array
  /** The name in the path, which must equal the name in the body; `null` = the path has none. */
  readonly pathName: string | null
  /** Revisions of `If-Match`. */
  readonly ifMatch: RevisionMatch
  /** `If-None-Match: *` */
  readonly createOnly: boolean
  /** `onlyJob` of `SubmitRequest`. */
  readonly onlyJob?: number
  readonly runOnCreate: boolean
  readonly idempotencyKey: string | null
  /** An unknown field or parameter is a fault. */
  readonly strict?: boolean
  /** The body is the definition of this revision. */
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
  const {store, access, runLimit} = context
  const idempotency = new IdempotencyGuard()

  /** Throws `submissions_paused`, `payload_unparsable`, `not_allowed`, `job_invalid`, `parent_unknown`, … */
  async function submit(call: SubmitCall): Promise<SubmitReply> {
    const {caller, actor, idempotencyKey, ifMatch, createOnly, runOnCreate} = call
    const parts = [call.pathName ?? '', runOnCreate ? 'run' : '', call.body]
    return idempotency.run(caller.accessor, idempotencyKey, 'submit', parts, async (identity) => {
      // A repeated request gets the first reply, even if submissions are paused since.
      const earlier = identity === null ? null : await store.earlierSubmit(identity)
      if (earlier?.kind === 'idempotency_mismatch') throw idempotencyMismatch()
      const {spec, may, warnings, ignored, ignoredFields} = await decode(call, earlier === null)
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
      if (earlier === null) announce(context, stored)
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
  async function decode(call: SubmitCall, isNew: boolean) {
    try {
      const decoded = await decodeAllowed(call, readBody(call))
      const names = secretsOf(decoded.spec)
      const missing = isNew && names.length > 0 ? missingSecrets(names, await store.secrets()) : []
      if (missing.length > 0) throw jobInvalid(missing)
      return decoded
    } catch (error) {
      if (isNew && (await store.submissionsPaused())) throw submissionsPaused()
      throw error
    }
  }

  /** Permissions are checked before the problems of a definition, which may be of another's job. */
  async function decodeAllowed(call: SubmitCall, body: unknown) {
    const {caller, runOnCreate} = call
    const name = nameIn(body)
    const may = requireStore(caller, name, null)
    if (runOnCreate) requireRun(caller, name)
    try {
      return decodeDefinition(context, call, body)
    } catch (error) {
      if (may.create === may.update) throw error
      const capability = (await store.job(name)) === null ? 'create' : 'update'
      if (may[capability]) throw error
      throw new DomainError('not_allowed', storeRefusal(caller, capability, name, null), {
        job: name,
        cause: error,
      })
    }
  }

  return {submit}
}

/** Throws `payload_unparsable`, `job_invalid`. */
export function readBody({body, pathName}: Pick<SubmitCall, 'body' | 'pathName'>): unknown {
  const json = readJsonBytes(body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw jobInvalid([json.finding])
  return withPathName(json.value, pathName)
}

/** The name of the job that a body defines; `''` without one. */
export function nameIn(body: unknown): string {
  return isObject(body) && typeof body.name === 'string' ? body.name : ''
}

function decodeDefinition(
  context: OperationsContext,
  {caller, pathName, strict = false}: SubmitCall,
  body: unknown,
) {
  const decoded = decodeJob(body)
  const {spec, ignoredFields} = decoded
  const {faults, warnings, ignored} = validateDefinition(context, decoded, strict)
  const isValid = spec !== null && decoded.faults.length === 0
  if (!isValid) throw jobInvalid(faults)
  const may = requireStore(caller, spec.name, spec)
  const misnamed = misnamedFaults(spec, pathName)
  const all = [...misnamed, ...faults]
  if (all.length > 0) throw jobInvalid(all)
  return {spec, may, warnings, ignored, ignoredFields}
}

export function misnamedFaults({name}: JobSpec, pathName: string | null): readonly Finding[] {
  if (pathName === null || name === pathName) return []
  return [{field: 'name', problem: `is "${name}" in the body and "${pathName}" in the path`}]
}

/** A body without a name gets the name in the path. */
function withPathName(body: unknown, pathName: string | null): unknown {
  if (pathName === null || !isObject(body)) return body
  return (body.name ?? null) === null ? {...body, name: pathName} : body
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

function announce({wakeup, events}: OperationsContext, stored: Stored): void {
  const {job, created, changed, group} = stored
  if (changed || group !== null) wakeup.notify('launch')
  if (changed) events.emit('job_stored', {job: job.spec.name, revision: job.revision, created})
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

/**
 * Idempotency keys: computes the identity of a request, and rejects a second request with the same key while
 * the first is in progress on this server. The store keeps the replies of finished requests.
 */
export class IdempotencyGuard {
  readonly #inProgress = new Set<string>()

  /**
   * Runs `work` with the identity of the request; `null` = it has no key. The token and `operation` scope the
   * key, `parts` are everything that distinguishes two requests. Throws `idempotency_in_progress`,
   * `request_malformed`.
   */
  async run<Result>(
    accessor: string,
    key: string | null,
    operation: string,
    parts: readonly (string | Uint8Array)[],
    work: (identity: Idempotency | null) => Promise<Result>,
  ): Promise<Result> {
    if (key === null) return work(null)
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
      return await work({key, scope, fingerprint: fingerprintOf(parts)})
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

/** Lengths are hashed too, so that `ab`, `c` differs from `a`, `bc`. */
function fingerprintOf(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(String(part.length)).update('\n').update(part)
  return hash.digest('hex')
}
