/** Access policies in JSON. */
import {Type, type Static} from 'typebox'
import {RULES_BYTES_MAX} from '../core/access/policy.ts'
import type {Policy as PolicyRecord} from '../ports/token-store.ts'
import {type BodyRefusal, fieldFaults, readFields, requireNone} from './body.ts'
import {decodeStrictly, isLongerThan} from './json.ts'
import {Checked, MayBeUnset} from './shapes.ts'

export const Policy = Type.Object(
  {
    Name: Type.String({description: 'Name of the policy.'}),
    Rules: Type.String({description: 'The rules, as the text in which they were sent.'}),
  },
  {$id: 'Policy', description: 'A named set of access rules.'},
)
export type PolicyJson = Static<typeof Policy>

export const NewPolicy = Type.Object(
  {
    Name: MayBeUnset(Type.String({description: 'The same as in the path, or empty.'})),
    Rules: Checked(Type.String({description: `At most ${RULES_BYTES_MAX} bytes.`}), (rules) =>
      isLongerThan(rules, RULES_BYTES_MAX) ? `must have at most ${RULES_BYTES_MAX} bytes` : null,
    ),
  },
  {
    $id: 'NewPolicy',
    description: 'A policy to store.',
    examples: [{Rules: '...'}],
    additionalProperties: true,
  },
)

export function encodePolicy({name, rules}: PolicyRecord): PolicyJson {
  return {Name: name, Rules: rules}
}

const INVALID: BodyRefusal = {code: 'policy_invalid', sentence: 'The policy cannot be stored'}

/**
 * The rules for the policy of this name: those that the body names, or a rules document that is the body
 * itself; an empty body is empty rules. Throws `payload_unparsable`, `policy_invalid`.
 */
export function decodePolicy(bytes: Uint8Array, name: string): string {
  if (bytes.length === 0) return ''
  const body = readFields(NewPolicy, bytes, INVALID)
  const isDocument = !('Rules' in body) && 'path' in body
  const fields = isDocument ? {Rules: decodeStrictly(bytes)?.trim()} : body
  const faults = [...fieldFaults(NewPolicy, fields, INVALID)]
  if (!isDocument && typeof body.Name === 'string' && body.Name !== '' && body.Name !== name)
    faults.push({field: 'Name', problem: `must be "${name}", as in the path, or be left out`})
  requireNone(faults, INVALID)
  return String(fields.Rules)
}
