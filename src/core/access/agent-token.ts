/**
 * Limits of a token for agents: the names, tags and slots that its agents may have. Pure; a server asks
 * before an agent joins.
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
