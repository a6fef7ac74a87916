/**
 * Access policies. Rules are stored as the text in which they were sent. Invalid rules are accepted with a
 * warning: the API contract leaves their format open.
 */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {matchesText} from '../core/access/glob.ts'
import {POLICIES_MAX, readRules} from '../core/access/policy.ts'
import type {Policy} from '../ports/token-store.ts'
import {decodeStrictly, isLongerThan, isObject, readJsonBytes} from '../wire/json.ts'
import type {OperationsContext} from './context.ts'

const RULES_BYTES_MAX = 64 * 1024
/** Excludes `.` and `..`: clients resolve them in a path, so such a policy could not be requested. */
export const POLICY_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/

interface StoredPolicy {
  readonly policy: Policy
  readonly warnings: readonly string[]
}

export function createPolicies({store, access, executors}: OperationsContext) {
  function policies(): Promise<readonly Policy[]> {
    return store.policies()
  }

  /** Throws `policy_unknown`. */
  async function policy(name: string): Promise<Policy> {
    return requirePolicy(name, await store.policy(name))
  }

  /**
   * `body` is `{"Name", "Rules"}`, a rules document itself, or empty for empty rules. Throws
   * `payload_unparsable`, `policy_invalid`.
   */
  async function putPolicy(name: string, body: Uint8Array, actor: Actor): Promise<StoredPolicy> {
    if (!POLICY_NAME.test(name))
      throw new DomainError(
        'policy_invalid',
        'The policy name must have 1 to 128 letters, digits, ".", "_" and "-". It cannot be "." or "..".',
      )
    const rules = readPolicyRules(name, body)
    if (isLongerThan(rules, RULES_BYTES_MAX))
      throw new DomainError('policy_invalid', `Rules: must have at most ${RULES_BYTES_MAX} bytes.`)
    const stored = {name, rules}
    if (!(await store.putPolicy(stored, actor)))
      throw new DomainError(
        'too_many_tokens',
        `The policy cannot be stored: there are ${POLICIES_MAX} policies. Delete some of them first.`,
      )
    await access.changed()
    return {policy: stored, warnings: rulesWarnings(rules, executors.names())}
  }

  /** Throws `policy_unknown`. */
  async function deletePolicy(name: string, actor: Actor): Promise<StoredPolicy> {
    const policy = requirePolicy(name, await store.deletePolicy(name, actor))
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

function readPolicyRules(name: string, body: Uint8Array): string {
  if (body.length === 0) return ''
  const json = readJsonBytes(body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw new DomainError('policy_invalid', `${json.problem}.`)
  const {value} = json
  if (!isObject(value))
    throw new DomainError('policy_invalid', 'The body must be {"Name": ..., "Rules": "..."}.')
  if (!('Rules' in value) && 'path' in value) return decodeStrictly(body)?.trim() ?? ''
  if (typeof value.Rules !== 'string')
    throw new DomainError('policy_invalid', 'Rules: is required and must be a string.')
  const bodyName = value.Name ?? ''
  if (bodyName !== '' && bodyName !== name)
    throw new DomainError(
      'policy_invalid',
      `Name: must be "${name}", as in the path, or be left out.`,
    )
  return value.Rules
}
