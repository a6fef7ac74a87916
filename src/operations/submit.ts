/**
 * Creating and replacing a job, which is one operation. The order of its checks is part of the interface:
 * a key known already, paused, not JSON, invalid, unknown parent.
 */
import {createHash} from 'node:crypto'
import {DomainError} from '../core/errors.ts'
import type {JobRecord, JobSpec, StringMap} from '../core/job.ts'
import {type Findings, validateSpec} from '../core/validate.ts'
import type {Idempotency, RevisionMatch, SubmitResult} from '../ports/job-store.ts'
import {decodeJob} from '../wire/decode-job.ts'
import {isObject, readJsonBytes} from '../wire/json.ts'
import type {Principal, OperationsDependencies} from './context.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

export interface SubmitCall {
  readonly caller: Principal
  readonly body: Uint8Array
  /** The name in the path, which the body's must equal; `null` when the path has none. */
  readonly pathName: string | null
  /** From `If-Match`. */
  readonly ifMatch: RevisionMatch
  /** `If-None-Match: *` */
  readonly createOnly: boolean
  readonly runOnCreate: boolean
  readonly idempotencyKey: string | null
}

export interface SubmitReply {
  readonly job: JobRecord
  /** Launch number of the run on create; `null` without one. */
  readonly group: number | null
  readonly warnings: readonly string[]
  readonly ignoredFields: readonly string[]
}

export function createSubmit(dependencies: OperationsDependencies, store: StoreWithDeadlines) {
  const idempotent = new Idempotent()

  /** Throws `submissions_paused`, `payload_unparsable`, `job_invalid`, `parent_unknown`, … */
  return async function submit(call: SubmitCall): Promise<SubmitReply> {
    const {caller, idempotencyKey, runOnCreate} = call
    const parts = [call.pathName ?? '', runOnCreate ? 'run' : '', call.body]
    return idempotent.run(caller, idempotencyKey, 'submit', parts, async (idempotency) => {
      // The first answer holds, though submissions may be paused since.
      const earlier = idempotency === null ? null : await store.earlierSubmit(idempotency)
      if (earlier?.kind === 'idempotency_mismatch') throw idempotencyMismatch()
      if (earlier === null && (await store.paused())) throw submissionsPaused()
      const {spec, warnings, ignoredFields} = readDefinition(dependencies, call)
      const {ifMatch, createOnly} = call
      const request = {spec, ifMatch, createOnly, runOnCreate, idempotency}
      const result = earlier ?? (await store.submit(request))
      const stored = refuseUnlessStored(spec, result)
      if (earlier === null) announce(dependencies, stored)
      return {job: stored.job, group: stored.group, warnings, ignoredFields}
    })
  }
}

export function submissionsPaused(): DomainError {
  return new DomainError(
    'submissions_paused',
    'Submissions are paused: no job can be created or changed until they are resumed.',
  )
}

function readDefinition(dependencies: OperationsDependencies, call: SubmitCall) {
  const json = readJsonBytes(call.body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw jobInvalid(json.problem)
  const reading = decodeJob(withPathName(json.value, call.pathName))
  if (!reading.ok) throw jobInvalid(reading.problem)
  const {pathName} = call
  if (pathName !== null && reading.spec.name !== pathName)
    throw jobInvalid(`name: is "${reading.spec.name}" in the body and "${pathName}" in the path`)
  const spec = {...reading.spec, owner: reading.spec.owner || call.caller.name}
  const found = validateDefinition(dependencies, spec)
  const [problem] = found.problems
  if (problem !== undefined) throw jobInvalid(problem)
  return {
    spec,
    warnings: [...reading.warnings, ...found.warnings],
    ignoredFields: reading.ignoredFields,
  }
}

/** A body without a name takes the one in the path. */
function withPathName(body: unknown, pathName: string | null): unknown {
  if (pathName === null || !isObject(body)) return body
  return (body.name ?? null) === null ? {...body, name: pathName} : body
}

function jobInvalid(problem: string): DomainError {
  return new DomainError(
    'job_invalid',
    `Job validation failed: the job definition is invalid: ${problem}`,
  )
}

type Stored = Extract<SubmitResult, {kind: 'stored'}>

function refuseUnlessStored(spec: JobSpec, result: SubmitResult): Stored {
  switch (result.kind) {
    case 'stored':
      return result
    case 'paused':
      throw submissionsPaused()
    case 'parent_unknown':
      throw new DomainError('parent_unknown', 'specified parent job not found')
    case 'cycle':
      throw jobInvalid(`parent_job: makes a cycle, ${result.path.join(' -> ')}`)
    case 'ephemeral_parent':
      throw jobInvalid(ephemeralProblem(spec, result.parent, result.dependents))
    case 'precondition':
      throw preconditionFailed(result.revision)
    case 'idempotency_mismatch':
      throw idempotencyMismatch()
  }
}

export function ephemeralProblem(
  spec: JobSpec,
  parent: string,
  dependents: readonly string[],
): string {
  return parent === spec.name
    ? `ephemeral: jobs depend on this one (${dependents.join(', ')}), so it cannot be ephemeral`
    : `parent_job: "${parent}" is ephemeral, and an ephemeral job cannot have dependents`
}

export function preconditionFailed(revision: number | null): DomainError {
  const stands = revision === null ? 'does not exist' : `is at revision ${revision}`
  return new DomainError('precondition_failed', `The condition does not hold: the job ${stands}.`, {
    members: {revision},
  })
}

function announce({wakeup, events}: OperationsDependencies, stored: Stored): void {
  const {job, created, changed, group} = stored
  if (changed || group !== null) wakeup.notify('launch')
  if (changed) events.emit('job_stored', {job: job.spec.name, revision: job.revision, created})
}

/*
 * Whether a definition can be accepted on this server: the pure rules of the core, and what the executors and
 * processors known here say about their parameters. Shared by submitting and restoring, so that a file is
 * held to the same rules.
 */

export type ValidationDependencies = Pick<
  OperationsDependencies,
  'clock' | 'executors' | 'processors' | 'settings'
>

/** Problems and warnings are sentences that begin with the field's name. */
export function validateDefinition(dependencies: ValidationDependencies, spec: JobSpec): Findings {
  const own = validateSpec(spec, {
    defaultTimezone: dependencies.settings.defaultTimezone(),
    now: dependencies.clock.now(),
  })
  const executor = validateExecutor(dependencies, spec)
  return {
    problems: [...own.problems, ...executor.problems, ...validateProcessors(dependencies, spec)],
    warnings: [...own.warnings, ...executor.warnings],
  }
}

function validateExecutor({executors}: ValidationDependencies, spec: JobSpec): Findings {
  if (spec.executor === '') {
    const warning = 'executor: is not set, so every run of this job will fail'
    return {problems: [], warnings: [warning]}
  }
  const executor = executors.get(spec.executor)
  if (executor === null) {
    const known = executors.names().join(', ')
    const problem = `executor: "${spec.executor}" is not known; known are ${known}`
    return {problems: [problem], warnings: []}
  }
  const found = executor.check(spec.executorConfig)
  const named = (sentence: string) => `executor_config: ${sentence}`
  return {problems: found.problems.map(named), warnings: found.warnings.map(named)}
}

function validateProcessors({processors}: ValidationDependencies, spec: JobSpec): string[] {
  return Object.entries(spec.processors).flatMap(([name, parameters]) => {
    const processor = processors.get(name)
    if (processor === null) {
      const known = processors.names().join(', ')
      return [`processors: "${name.slice(0, 64)}" is not known; known are ${known}`]
    }
    return processor
      .check(withoutType(parameters))
      .map((sentence) => `processors.${name}: ${sentence}`)
  })
}

/** Some clients send the processor's name once more as `type`; it is kept and means nothing. */
function withoutType(parameters: StringMap): StringMap {
  const {type: _type, ...rest} = parameters
  return rest
}

/*
 * Repeating a request under the same key: who asked for what, as the store needs it, and the refusal of a
 * second one while the first is still on its way here. What the first one answered is remembered by the
 * store, not here.
 */

const KEY_LENGTH_MAX = 255

export class Idempotent {
  readonly #inProgress = new Set<string>()

  /**
   * Runs `work` with the identity of the request; `null` when it has no key. `parts` tell one request from
   * another. Throws `idempotency_in_progress` when the same key is at work here, `body_invalid` for a key
   * that is none.
   */
  async run<Answer>(
    caller: Principal,
    key: string | null,
    what: string,
    parts: readonly (string | Uint8Array)[],
    work: (idempotency: Idempotency | null) => Promise<Answer>,
  ): Promise<Answer> {
    if (key === null) return work(null)
    if (key === '' || key.length > KEY_LENGTH_MAX)
      throw new DomainError(
        'request_malformed',
        `Idempotency-Key must have 1 to ${KEY_LENGTH_MAX} characters.`,
      )
    const scope = `${caller.id}:${what}`
    const place = `${scope}\n${key}`
    if (this.#inProgress.has(place))
      throw new DomainError(
        'idempotency_in_progress',
        'A request with this Idempotency-Key is still in progress; ask again in a moment.',
        {retryAfterSeconds: 1},
      )
    this.#inProgress.add(place)
    try {
      return await work({key, scope, fingerprint: digest(parts)})
    } finally {
      this.#inProgress.delete(place)
    }
  }
}

export function idempotencyMismatch(): DomainError {
  return new DomainError(
    'idempotency_mismatch',
    'This Idempotency-Key was used for another request; use a new key.',
  )
}

function digest(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(String(part.length)).update('\n').update(part)
  return hash.digest('hex')
}
