/**
 * Tokens for agents: the names, tags and slots that their agents may have, and which node may use one. A
 * server asks before an agent joins.
 */
import {matchesText} from './glob.ts'
import {isObject, isTextList, LIMIT_ENTRIES_MAX} from './policy.ts'

/** Finds a leaked secret in texts, such as commits. */
export const SECRET_PREFIX = 'belfry_'
/** An agent sees by it that it needs a token of its own. */
export const JOIN_SECRET_PREFIX = `${SECRET_PREFIX}join_`
/** Agents that can join with one token. */
export const USES_MAX = 10_000

/** `null` = no limit. */
export interface AgentLimits {
  /** Patterns of node names; `*` is any text. */
  readonly names: readonly string[] | null
  /** All tags that an agent may set, each with its allowed values; `*` is any text. */
  readonly tags: readonly (readonly [key: string, values: readonly string[]])[] | null
  readonly slots: number | null
}

/** A node as a token is bound to it. */
export interface BoundNode {
  readonly id: string
  readonly name: string
}

/** Limits of a token for agents. */
export interface AgentGrant {
  readonly limits: AgentLimits
  /** The only node that may use the token; `null` = it binds at the first join. */
  readonly node: BoundNode | null
  /** Agents that can still join with it; `null` = it is no join token. */
  readonly usesLeft: number | null
}

export const NO_AGENT_LIMITS: AgentLimits = {names: null, tags: null, slots: null}

/** Limits as a request and the store have them; `null` = a value is invalid. */
export function readAgentLimits({
  names = null,
  tags = null,
  slots = null,
}: Readonly<Record<string, unknown>>): AgentLimits | null {
  if (names !== null && !(isTextList(names) && !names.includes(''))) return null
  if (slots !== null && (!Number.isInteger(slots) || Number(slots) < 1)) return null
  const entries = tags === null ? [] : isObject(tags) ? Object.entries(tags) : null
  if (entries === null || entries.length > LIMIT_ENTRIES_MAX) return null
  if (!entries.every(([, values]) => isTextList(values))) return null
  return {
    names,
    tags: tags === null ? null : (entries as [string, readonly string[]][]),
    slots: slots as number | null,
  }
}

/** Encodes the limits as a request and the store have them. */
export function encodeAgentLimits({names, tags, slots}: AgentLimits) {
  const listed = (values: readonly string[]) => [...values]
  return {
    names: names === null ? null : listed(names),
    tags:
      tags === null
        ? null
        : Object.fromEntries(tags.map(([key, values]) => [key, listed(values)] as const)),
    slots,
  }
}

/** Which setting of an agent the limits do not allow, and the fix, as a sentence; `null` = none. */
export function exceededLimit(
  {names, tags, slots}: AgentLimits,
  node: {
    readonly name: string
    readonly tags: Readonly<Record<string, string>>
    readonly slots: number
  },
): string | null {
  if (names !== null && !names.some((pattern) => matchesText(pattern, node.name)))
    return `The node name ${node.name} cannot be used: the token allows ${names.join(', ')}. Set --name.`
  if (slots !== null && node.slots > slots)
    return `The agent cannot have ${node.slots} slots: the token allows ${slots}. Set --slots ${slots}.`
  if (tags === null) return null
  const allowed = new Map(tags)
  for (const [key, value] of Object.entries(node.tags)) {
    const values = allowed.get(key)
    const tag = `The tag ${key}=${value} cannot be used: the token`
    if (values === undefined) {
      const known =
        tags.length === 0 ? 'no tags' : `only the tags ${[...allowed.keys()].join(', ')}`
      return `${tag} allows ${known}. Remove that --tag.`
    }
    if (!values.some((pattern) => matchesText(pattern, value)))
      return `${tag} allows ${key} = ${values.join(', ')}. Change that --tag.`
  }
  return null
}

/** The limits name this very node: its token may replace a node that had the name. */
export function namesExactly({names}: AgentLimits, name: string): boolean {
  return names?.includes(name) === true
}

/** Node that asks for the use of a token for agents. */
export interface TokenClaimant {
  readonly node: BoundNode
  /** The node may have the name of another member that is silent: the token was made for this name. */
  readonly mayReplace: boolean
}

/**
 * Why a node may not use a token for agents.
 *
 * `revoked`: there is no such token, or it has expired.
 * `other_node`: the token is bound to that node.
 * `other_token`: that token is bound to the node, or to another node of its name.
 * `held`: that member has the name.
 */
export type TokenRefusal =
  | {readonly why: 'revoked'}
  | {readonly why: 'other_node'; readonly node: BoundNode}
  | {readonly why: 'other_token'; readonly token: string}
  | {readonly why: 'held'; readonly by: string}

/**
 * Why a join token gives a node no token.
 *
 * `used_up`: as many agents have joined with it as can.
 * `full`: there are as many tokens as can be.
 * `not_new`: the digest is that of another token or session.
 */
export type IssueRefusal = TokenRefusal | {readonly why: 'used_up' | 'full' | 'not_new'}

/** Refuses a token that is bound to another node. `bound` = to this one; `unbound` = to none yet. */
export function decideUse(
  bound: BoundNode | null,
  node: BoundNode,
): TokenRefusal | 'bound' | 'unbound' {
  if (bound === null) return 'unbound'
  const isSame = bound.id === node.id && bound.name === node.name
  return isSame ? 'bound' : {why: 'other_node', node: bound}
}

/** Token or member that has the id or the name of a node. `holder`: name of the token, id of the member. */
export interface NodeHolder {
  readonly kind: 'token' | 'member'
  readonly holder: string
  readonly node: BoundNode
}

/**
 * Refuses a token to a node whose id or name another token or member has. Tokens of the name `replaced` do
 * not count: tokens of one name replace each other. A claimant that may replace only needs an id of its own.
 */
export function holderRefusal(
  {node, mayReplace}: TokenClaimant,
  holders: readonly NodeHolder[],
  replaced: string,
): TokenRefusal | null {
  const rivals = holders.filter((each) => {
    return each.node.id === node.id || (!mayReplace && each.node.name === node.name)
  })
  const token = rivals.find(({kind, holder}) => kind === 'token' && holder !== replaced)
  if (token !== undefined) return {why: 'other_token', token: token.holder}
  const member = rivals.find(({kind, holder}) => kind === 'member' && holder !== node.id)
  return member === undefined ? null : {why: 'held', by: member.holder}
}

/**
 * Decides whether a join token can give the node of this id a token. `sameDigest`: the stored token with the
 * digest that the agent sent. `issued` = the agent has its token; `open` = it may get one.
 */
export function decideIssue(
  join: {readonly accessor: string; readonly usesLeft: number | null},
  sameDigest: {readonly issuedBy: string | null; readonly nodeId: string | null} | null,
  nodeId: string,
): IssueRefusal | 'issued' | 'open' {
  if (sameDigest?.issuedBy === join.accessor && sameDigest.nodeId === nodeId) return 'issued'
  // The agent need not have the secret of the digest that it sent: a second row would disable the first.
  if (sameDigest !== null) return {why: 'not_new'}
  return (join.usesLeft ?? 0) < 1 ? {why: 'used_up'} : 'open'
}
