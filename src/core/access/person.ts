/**
 * People who sign in through an OpenID Connect provider: what their groups grant, and their name. Pure; the
 * claims come from the provider, and are not trusted to have any form.
 */
import type {TokenKind} from './authorization.ts'
import {READ_EVERYTHING} from './policy.ts'

/** Rights of a group: everything, to read everything, or a policy. */
export interface GroupGrant {
  readonly group: string
  readonly grant: 'management' | 'read' | {readonly policy: string}
}

export type Claims = Readonly<Record<string, unknown>>

export interface PersonRights {
  readonly kind: TokenKind
  readonly policies: readonly string[]
}

const NAME_LENGTH_MAX = 128
/** A person in more groups than this, such as all groups of a company, is compared with the first ones. */
const GROUPS_MAX = 10_000

/**
 * Rights of the groups together; `null` = nothing. `management` is the most; policies and `read` add up.
 */
export function rightsOf(
  groups: readonly string[],
  grants: readonly GroupGrant[],
): PersonRights | null {
  const known = new Set(groups)
  const granted = grants.filter(({group}) => known.has(group)).map(({grant}) => grant)
  if (granted.includes('management')) return {kind: 'management', policies: []}
  const policies = granted.flatMap((grant) => (typeof grant === 'string' ? [] : [grant.policy]))
  if (granted.length === 0) return null
  if (policies.length === 0) return {kind: 'read', policies: []}
  if (granted.includes('read')) policies.push(READ_EVERYTHING)
  return {kind: 'client', policies: [...new Set(policies)]}
}

/**
 * The groups in a claim: a list of texts, or one text. `null` = there is no such claim. A claim within others
 * is named with dots, such as `realm_access.roles`.
 */
export function groupsIn(claims: Claims, claim: string): readonly string[] | null {
  let value: unknown = claims
  if (Object.hasOwn(claims, claim)) value = claims[claim]
  else
    for (const part of claim.split('.')) {
      if (typeof value !== 'object' || value === null || !Object.hasOwn(value, part)) return null
      value = (value as Claims)[part]
    }
  if (typeof value === 'string') return [value]
  if (!Array.isArray(value)) return []
  return value.slice(0, GROUPS_MAX).filter((group) => typeof group === 'string')
}

/** Name in the audit log, and of the owner of jobs: the address, unless the provider calls it unverified. */
export function personName(claims: Claims): string {
  const {email, email_verified: isVerified, preferred_username: username, sub} = claims
  const address = isVerified === false || isVerified === 'false' ? '' : email
  for (const candidate of [address, username, sub]) {
    if (typeof candidate !== 'string') continue
    const name = candidate.replaceAll(/[\p{C}\p{Zl}\p{Zp}]/gu, '').trim()
    if (name !== '') return [...name].slice(0, NAME_LENGTH_MAX).join('')
  }
  return 'unnamed'
}
