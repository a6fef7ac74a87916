/**
 * Keeping access policies. Rules are stored as the text they came in; what is wrong with them is said, not
 * refused.
 */
import {readRules} from '../core/policy.ts'
import {DomainError} from '../core/errors.ts'
import type {Policy} from '../ports/store.ts'
import {decodeStrictly, isObject, readJsonBytes} from '../wire/json.ts'
import {longerThan} from '../wire/decode-job.ts'
import type {StoreWithDeadlines} from './store-deadlines.ts'

const RULES_BYTES_MAX = 64 * 1024
/** Not `.` or `..`: in a path they mean a place, and no client could ask for them. */
const POLICY_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/

export function createPolicies(store: StoreWithDeadlines) {
  function policies(): Promise<readonly Policy[]> {
    return store.policies()
  }

  /** Throws `policy_unknown`. */
  async function policy(name: string): Promise<Policy> {
    return known(name, await store.policy(name))
  }

  /**
   * `body` is `{"Name", "Rules"}` or a rules document itself. Throws `payload_unparsable`, `policy_invalid`.
   */
  async function putPolicy(
    name: string,
    body: Uint8Array,
  ): Promise<{policy: Policy; warnings: readonly string[]}> {
    if (!POLICY_NAME.test(name))
      throw new DomainError(
        'policy_invalid',
        'The name of a policy has 1 to 128 letters, digits, ".", "_" and "-", and is not "." or "..".',
      )
    const rules = readBody(name, body)
    if (longerThan(rules, RULES_BYTES_MAX))
      throw new DomainError(
        'policy_invalid',
        `Rules: at most ${RULES_BYTES_MAX} bytes are allowed.`,
      )
    const stored = {name, rules}
    await store.putPolicy(stored)
    const reading = readRules(rules)
    const warnings = reading.ok ? [] : [`this policy grants nothing: ${reading.problem}`]
    return {policy: stored, warnings}
  }

  async function deletePolicy(name: string): Promise<Policy> {
    return known(name, await store.deletePolicy(name))
  }

  return {policies, policy, putPolicy, deletePolicy}
}

function known(name: string, policy: Policy | null): Policy {
  if (policy === null)
    throw new DomainError('policy_unknown', `There is no policy named "${name.slice(0, 128)}".`)
  return policy
}

function readBody(name: string, body: Uint8Array): string {
  const json = readJsonBytes(body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw new DomainError('policy_invalid', `${json.problem}.`)
  const {value} = json
  if (!isObject(value))
    throw new DomainError('policy_invalid', 'The body must be {"Name": ..., "Rules": "..."}.')
  if (!('Rules' in value) && 'path' in value) return decodeStrictly(body)?.trim() ?? ''
  if (typeof value.Rules !== 'string')
    throw new DomainError('policy_invalid', 'Rules: must be a text, and is required.')
  const given = value.Name ?? ''
  if (given !== '' && given !== name)
    throw new DomainError(
      'policy_invalid',
      `Name: must be "${name}", the name in the path, or be left out.`,
    )
  return value.Rules
}
