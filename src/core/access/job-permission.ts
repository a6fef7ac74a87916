/** Permissions of a caller on a job: store a definition, run it. */
import {
  check,
  type Check,
  jobPath,
  type Principal,
  refusalSentence,
  refusing,
} from './authorization.ts'
import {DomainError} from '../errors.ts'
import type {JobSpec} from '../job.ts'
import {secretPath, secretsOf} from '../secret.ts'

/** Changes that a submit may make, when it is not refused. */
export interface StorePermission {
  readonly create: boolean
  readonly update: boolean
}

export type StoreDecision =
  | {readonly allowed: true; readonly may: StorePermission}
  | {readonly allowed: false; readonly sentence: string}

/**
 * Decides whether the caller may store a definition. Only the store knows which of `create` and `update` it
 * takes. Naming a parent changes the parent's dependents, so it needs `update` of the parent. A caller that
 * changes a job can make it print its secrets, so it needs `read` of each secret, also of those that the job
 * named before.
 */
export function decideStore(
  principal: Principal,
  name: string,
  definition: JobSpec | null,
): StoreDecision {
  const [create, update] = storeChecks(principal, name, definition)
  if (!create.allowed && !update.allowed)
    return {
      allowed: false,
      sentence: refusalSentence(principal, {...update, capability: 'create or update'}),
    }
  const parent = definition?.parentJob ?? ''
  if (parent !== '') {
    const chained = check(principal, 'update', jobPath(parent))
    if (!chained.allowed) {
      const sentence = refusalSentence(principal, chained)
      return {allowed: false, sentence: `${sentence} It is the parent of ${JSON.stringify(name)}.`}
    }
  }
  for (const secret of definition === null ? [] : secretsOf(definition)) {
    const used = check(principal, 'read', secretPath(secret))
    if (!used.allowed) {
      const sentence = refusalSentence(principal, used)
      return {allowed: false, sentence: `${sentence} ${JSON.stringify(name)} uses this secret.`}
    }
  }
  return {allowed: true, may: {create: create.allowed, update: update.allowed}}
}

/** True if the caller may store a job of some name. */
export function storesJobs({kind, rules}: Principal): boolean {
  return kind === 'management' || (kind === 'client' && rules.storesJobs)
}

/** Checks of a submit, without its parent: one grant is enough. */
export function storeChecks(
  principal: Principal,
  name: string,
  definition: JobSpec | null,
): readonly [create: Check, update: Check] {
  const path = jobPath(name)
  return [
    check(principal, 'create', path, definition),
    check(principal, 'update', path, definition),
  ]
}

/** Throws `not_allowed`. */
export function requireStore(
  principal: Principal,
  name: string,
  definition: JobSpec | null,
): StorePermission {
  const decision = decideStore(principal, name, definition)
  if (!decision.allowed) throw new DomainError('not_allowed', decision.sentence, {job: name})
  return decision.may
}

/** The refusal of a submit that turns out to create or to change a job. */
export function storeRefusal(
  principal: Principal,
  capability: 'create' | 'update',
  name: string,
  definition: JobSpec | null,
): string {
  return refusalSentence(principal, check(principal, capability, jobPath(name), definition))
}

/** Requires the right to run the job: a grant on either path is enough. Throws `not_allowed`. */
export function requireRun(principal: Principal, name: string): void {
  const paths = [jobPath(name), `${jobPath(name)}/run`]
  const refused = refusing(paths.map((path) => check(principal, 'create', path)))
  if (refused !== null)
    throw new DomainError('not_allowed', refusalSentence(principal, refused), {job: name})
}
