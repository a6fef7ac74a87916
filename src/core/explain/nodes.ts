/** The nodes for a job: which match its tags now, which would, and the sentences about them. */
import {meantBy} from '../../lib/nearest.ts'
import type {StringMap} from '../job.ts'
import type {MemberRecord} from '../node.ts'
import {type DefaultTarget, matchTargets, parseTag} from '../target.ts'
import type {Around, NodeFacts, Told} from './facts.ts'
import {counted, listed, type Words} from './words.ts'

type Member = Pick<MemberRecord, 'name' | 'tags' | 'runs' | 'status' | 'heartbeatAt' | 'cordonedAt'>

/** Facts about the members for these tags. */
export function nodeFacts(
  tags: StringMap,
  members: readonly Member[],
  defaultTarget: DefaultTarget,
): NodeFacts {
  const running = members.filter(({runs}) => runs)
  const fitting = matchTargets(tags, running, defaultTarget).nodes
  const alive = fitting.filter(({status}) => status === 'alive')
  const gone = fitting.filter(({status}) => status === 'failed' || status === 'left')
  return {
    matching: alive.filter(({cordonedAt}) => cordonedAt === null).length,
    cordoned: alive.filter(({cordonedAt}) => cordonedAt !== null).map(({name}) => name),
    gone: gone.map(({name, heartbeatAt}) => ({name, since: heartbeatAt})),
    nearest: fitting.length === 0 ? nearestTag(tags, running) : null,
  }
}

/** The tag of a node that was meant by the first tag that no node has; `null` = none is near. */
function nearestTag(tags: StringMap, members: readonly Member[]): NodeFacts['nearest'] {
  const having = new Map<string, number>()
  for (const {tags: own} of members)
    for (const [key, value] of Object.entries(own)) {
      const tag = `${key}=${value}`
      having.set(tag, (having.get(tag) ?? 0) + 1)
    }
  const unknown = tagList(tags).find((tag) => !having.has(tag))
  const tag = unknown === undefined ? '' : meantBy(unknown, [...having.keys()])
  return tag === '' ? null : {tag, nodes: having.get(tag)!}
}

/** Tags as people write them, without their counts. */
export function tagList(tags: StringMap): readonly string[] {
  return Object.entries(tags).map(([key, text]) => {
    const rule = parseTag(key, text)
    return `${key}=${rule.ok ? rule.value : text}`
  })
}

/** `a node with group=web`; without tags `a node that runs jobs`. */
export function nodeWith({spec}: Around): string {
  if (spec === undefined) return 'a node that matches its tags'
  const tags = tagList(spec.tags)
  return tags.length === 0 ? 'a node that runs jobs' : `a node with ${listed(tags)}`
}

/** The nodes now, whatever they were when the launch was decided. */
export function nodeSentences({spec, nodes}: Around, words: Words): readonly string[] {
  if (nodes === undefined) return []
  const {matching, cordoned, gone, nearest} = nodes
  const sentences: string[] = []
  const hasTags = spec !== undefined && tagList(spec.tags).length > 0
  if (matching > 0) {
    const match = hasTags ? `match${matching === 1 ? 'es' : ''} its tags` : 'take work'
    sentences.push(`Now ${counted(matching, 'node')} ${match}.`)
  }
  if (cordoned.length > 0) {
    sentences.push(`${listed(cordoned)} ${cordoned.length === 1 ? 'is' : 'are'} cordoned.`)
  }
  for (const {name, since} of gone.slice(0, GONE_MAX))
    sentences.push(`${name} is gone since ${words.time(since)}.`)
  if (matching + cordoned.length + gone.length > 0) return sentences
  sentences.push(hasTags ? 'No member has these tags.' : 'No member runs jobs.')
  if (nearest !== null)
    sentences.push(`Nearest tag: ${nearest.tag} (${counted(nearest.nodes, 'node')}).`)
  return sentences
}

const GONE_MAX = 3

/** How the job gets a node. */
export function nodeAdvice(
  {spec, nodes}: Around,
  jobName: string,
): Pick<Told, 'advice' | 'commands'> {
  if (nodes === undefined || nodes.matching > 0) return {}
  const {cordoned, gone, nearest} = nodes
  if (cordoned.length > 0)
    return {
      advice: `Uncordon ${listed(cordoned)}, or start another node.`,
      commands: [`belfry node uncordon ${cordoned[0]!}`],
    }
  if (gone.length > 0)
    return {
      advice: `Start ${listed(gone.map(({name}) => name))} again.`,
      commands: ['belfry members'],
    }
  const flags =
    spec === undefined
      ? ''
      : tagList(spec.tags)
          .map((tag) => ` --tag ${tag}`)
          .join('')
  const start = flags === '' ? 'Start a node that runs jobs.' : `start a node with${flags}.`
  return {
    advice: flags === '' ? start : `Correct the tag, or ${start}`,
    commands: [flags === '' && nearest === null ? 'belfry members' : `belfry jobs edit ${jobName}`],
  }
}

export function tagFacts({spec, nodes}: Around): NonNullable<Told['facts']> {
  return {
    ...(spec === undefined ? {} : {tags: spec.tags}),
    ...(nodes === undefined
      ? {}
      : {
          nodes_matching: nodes.matching,
          nodes_cordoned: nodes.cordoned,
          nearest_tag: nodes.nearest?.tag ?? null,
        }),
  }
}
