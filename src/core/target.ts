/**
 * Target selection: the nodes on which a launch runs. All tags must match. A value may end in `:count`, and
 * the smallest count wins. Without a count every matching node runs it. Without tags one node does, or all,
 * by the cluster's setting.
 */
import {escapeInvisible, quoteForMessage} from '../lib/quote.ts'
import type {StringMap} from './job.ts'
import type {Finding} from './findings.ts'
import {type Candidate, ROLE, splitCordoned} from './node.ts'

export type DefaultTarget = 'one' | 'all'

export type TagRule =
  | {readonly ok: true; readonly value: string; readonly count: number | null}
  | {readonly ok: false; readonly fault: Finding}

/**
 * Splits a job's tag value into the value to match and the count. Only a trailing `:digits` is a count, so
 * values may contain colons. A number after the last colon that is not a positive integer is a problem. So
 * are tags that no node can have: an empty name, or no value before the count.
 */
export function parseTag(key: string, text: string): TagRule {
  const refused = (field: string, problem: string) =>
    ({ok: false, fault: {field, problem}}) as const
  if (key === '') return refused('tags', 'the name of a tag must not be empty')
  const field = `tags.${escapeInvisible(key)}`
  const match = /^(.*):(-?\d*(?:\.\d+)?)$/s.exec(text)
  if (match === null) return {ok: true, value: text, count: null}
  if (match[1] === '') return refused(field, 'needs a value before the count, as in "ssd:2"')
  const count = /^\d+$/.test(match[2]!) ? Number(match[2]) : 0
  if (!Number.isSafeInteger(count) || count < 1) {
    const example = quoteForMessage(`${match[1]}:1`)
    return refused(field, `the count after the colon must be a positive integer, as in ${example}`)
  }
  return {ok: true, value: match[1]!, count}
}

/** The nodes that have every tag of the job, and how many of them run it (`null` = all). */
export function matchTargets<Node extends Pick<Candidate, 'tags'>>(
  tags: StringMap,
  nodes: readonly Node[],
  defaultTarget: DefaultTarget,
): {readonly nodes: readonly Node[]; readonly count: number | null} {
  const rules = Object.entries(tags).map(([key, text]) => ({key, rule: parseTag(key, text)}))
  if (rules.length === 0) return {nodes, count: defaultTarget === 'one' ? 1 : null}
  let count: number | null = null
  for (const {rule} of rules) {
    if (!rule.ok) return {nodes: [], count: null}
    if (rule.count !== null) count = Math.min(count ?? Infinity, rule.count)
  }
  const fits = (node: Node) =>
    rules.every(({key, rule}) => rule.ok && hasTag(node.tags, key, rule.value))
  return {nodes: nodes.filter(fits), count}
}

/** `role` in jobs that were written for another server with this API, where it means every node. */
const ROLE_ELSEWHERE = 'dkron'

function hasTag(tags: StringMap, key: string, value: string): boolean {
  if (!Object.hasOwn(tags, key)) return false
  if (tags[key] === value) return true
  return key === 'role' && value === ROLE_ELSEWHERE && tags[key] === ROLE
}

/**
 * Selects the nodes of one launch: lowest load per slot first, ties by random. `loads` has the load by node
 * id and is updated by each selection, so that a batch of launches spreads evenly. Empty = no node matches.
 */
export function selectTargets(
  tags: StringMap,
  candidates: readonly Candidate[],
  defaultTarget: DefaultTarget,
  loads: Map<string, number>,
  random: () => number,
): readonly Candidate[] {
  const {nodes, count} = matchTargets(tags, candidates, defaultTarget)
  const chosen =
    count === null || count >= nodes.length ? nodes : leastLoaded(nodes, count, loads, random)
  for (const node of chosen) loads.set(node.id, (loads.get(node.id) ?? node.load) + 1)
  return chosen
}

/** How many nodes match: those that take work, and cordoned ones. */
export function countTargets(
  tags: StringMap,
  nodes: readonly Candidate[],
  defaultTarget: DefaultTarget,
): {readonly matching: number; readonly cordoned: number} {
  const {candidates, cordoned} = splitCordoned(matchTargets(tags, nodes, defaultTarget).nodes)
  return {matching: candidates.length, cordoned: cordoned.length}
}

/** Says how many of the cordoned nodes match; `''` = none. For the reason of work that finds no node. */
export function cordonedSentence(
  tags: StringMap,
  cordoned: readonly Pick<Candidate, 'tags'>[],
  defaultTarget: DefaultTarget,
): string {
  const count = matchTargets(tags, cordoned, defaultTarget).nodes.length
  if (count === 0) return ''
  return count === 1 ? '1 matching node is cordoned' : `${count} matching nodes are cordoned`
}

function leastLoaded(
  nodes: readonly Candidate[],
  count: number,
  loads: ReadonlyMap<string, number>,
  random: () => number,
): Candidate[] {
  const ranked = nodes.map((node) => ({
    node,
    fill: (loads.get(node.id) ?? node.load) / Math.max(1, node.slots),
    tieBreak: random(),
  }))
  ranked.sort((a, b) => a.fill - b.fill || a.tieBreak - b.tieBreak)
  return ranked.slice(0, count).map(({node}) => node)
}
