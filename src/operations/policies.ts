/**
 * Access policies. Rules are stored as the text in which they were sent. Invalid rules are accepted with a
 * warning: the API contract leaves their format open.
 */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {matchesText} from '../core/access/glob.ts'
import {POLICIES_MAX, POLICY_NAME, readRules} from '../core/access/policy.ts'
import type {Policy} from '../ports/token-store.ts'
import type {OperationsContext} from './context.ts'
import {reportStops} from './rules.ts'

interface StoredPolicy {
  readonly policy: Policy
  readonly warnings: readonly string[]
}

export function createPolicies(context: OperationsContext) {
  const {store, access, executors} = context

  function policies(): Promise<readonly Policy[]> {
    return store.policies()
  }

  /** Throws `policy_unknown`. */
  async function policy(name: string): Promise<Policy> {
    return requirePolicy(name, await store.policy(name))
  }

  /** Throws `policy_invalid` for a name, `too_many_tokens`. */
  async function putPolicy(stored: Policy, actor: Actor): Promise<StoredPolicy> {
    if (!POLICY_NAME.test(stored.name))
      throw new DomainError(
        'policy_invalid',
        'The policy name must have 1 to 128 letters, digits, ".", "_" and "-". It cannot be "." or "..".',
      )
    if (!(await reportStops(context, () => store.putPolicy(stored, actor))))
      throw new DomainError(
        'too_many_tokens',
        `The policy cannot be stored: there are ${POLICIES_MAX} policies. Delete some of them first.`,
      )
    await access.changed()
    return {policy: stored, warnings: rulesWarnings(stored.rules, executors.names())}
  }

  /** Throws `policy_unknown`. */
  async function deletePolicy(name: string, actor: Actor): Promise<StoredPolicy> {
    const deleted = await reportStops(context, () => store.deletePolicy(name, actor))
    const policy = requirePolicy(name, deleted)
    await access.changed()
    const naming = (await store.tokens()).filter(({policies}) => policies.includes(name))
    if (naming.length === 0) return {policy, warnings: []}
    const first = naming.slice(0, 5).map((token) => token.name)
    const more = naming.length > first.length ? ` and ${naming.length - first.length} more` : ''
    return {policy, warnings: [`tokens still name it: ${first.join(', ')}${more}`]}
  }

  return {policies, policy, putPolicy, deletePolicy}
}

/** Rules that can be read, and do less than their author can have meant. */
function rulesWarnings(rules: string, executors: readonly string[]): string[] {
  const reading = readRules(rules)
  if (!reading.ok) return [`this policy grants nothing: ${reading.problem}`]
  if (reading.rules.length === 0) return ['this policy grants nothing: it has no globs']
  const isKnown = (pattern: string) => executors.some((name) => matchesText(pattern, name))
  return (reading.limits.executors ?? [])
    .filter((pattern) => !isKnown(pattern))
    .map((pattern) => `executors: ${JSON.stringify(pattern)} is no executor of this server`)
}

function requirePolicy(name: string, policy: Policy | null): Policy {
  if (policy === null)
    throw new DomainError('policy_unknown', `There is no policy named "${name.slice(0, 128)}".`)
  return policy
}
