/**
 * Authorization: whether a token may do something, and the rule that decides. Pure; the routes declare what
 * they need, and operations ask for what only a body names. Nothing is allowed that no glob matches. The
 * most specific matching globs decide, over all policies of the token: `deny` among them denies, else their
 * capabilities add up.
 */
import {isFull} from '../bounds.ts'
import type {AgentGrant} from './agent-token.ts'
import {type Glob, compileGlob, matchesGlob, matchesText, namePatterns} from './glob.ts'
import type {JobSpec, StringMap} from '../job.ts'
import {
  READ_EVERYTHING,
  type Capability,
  type DefinitionLimits,
  type DefinitionTraits,
  type PolicyRule,
} from './policy.ts'
import {secretPath} from '../secret.ts'
import {parseTag} from '../target.ts'

/**
 * `management`: everything. `client`: what its policies grant. `read`: reads everything, changes nothing.
 * `metrics`: reads the metrics only. `agent`: connects one agent. `join`: gives agents their own tokens.
 */
export const TOKEN_KINDS = ['management', 'client', 'read', 'metrics', 'agent', 'join'] as const
export type TokenKind = (typeof TOKEN_KINDS)[number]

/** Each server holds all tokens in memory. */
export const TOKENS_MAX = 10_000

/**
 * Why a token cannot be created; `null` = it can. `total` are stored, `managing` of them are management
 * tokens in force. `isFirst`: it must be the first that manages.
 */
export function refuseToken(
  isFirst: boolean | undefined,
  {total, managing}: {readonly total: number; readonly managing: number},
): 'not_first' | 'full' | null {
  if (isFirst === true && managing > 0) return 'not_first'
  return isFull(total, TOKENS_MAX) ? 'full' : null
}

/** Policies of a token. Bounds the work of a list. */
export const POLICIES_OF_TOKEN_MAX = 16
export const TOKEN_NAME = /^[\p{L}\p{N}](?:[\p{L}\p{N} ._@-]{0,126}[\p{L}\p{N}._-])?$/u

/** The caller of a request. */
export interface Principal {
  readonly kind: TokenKind
  /** Name of the token; `''` = the token of the configuration, or a local caller while there is no token. */
  readonly name: string
  /** Public id of the token; `''` as for `name`. */
  readonly accessor: string
  /** The token is the session of a browser. */
  readonly isSession: boolean
  /** Empty unless the kind is `client`. */
  readonly rules: RuleSet
  /** Only of a token for agents. */
  readonly agent?: AgentGrant
}

/** A rule that decided. */
export interface DecidingRule {
  readonly policy: string
  readonly glob: string
}

export interface Decision {
  readonly allowed: boolean
  /** A rule with `deny` decided. */
  readonly denied: boolean
  /** `null` = no glob matches, or the kind of the token decides. */
  readonly rule: DecidingRule | null
  /** Why not, as the end of a sentence; `''` when it is allowed. */
  readonly why: string
}

/** A parsed policy. */
export interface PolicyRules {
  readonly name: string
  readonly rules: readonly PolicyRule[]
  readonly limits: DefinitionLimits
}

/**
 * Which job names a list shows: the first pattern that matches a name decides, none = not shown. `*` in a
 * pattern is any text. `null` = all.
 */
export type NameFilter = readonly NameRule[] | null
export interface NameRule {
  readonly pattern: string
  readonly shown: boolean
}

interface Rule {
  readonly glob: Glob
  readonly capabilities: ReadonlySet<Capability>
  readonly policy: string
  readonly limits: DefinitionLimits
}

const ALLOWED: Decision = {allowed: true, denied: false, rule: null, why: ''}
const JOB = ['v1', 'jobs', null] as const
const EXECUTIONS = ['v1', 'jobs', null, 'executions'] as const

/** The rules of all policies of a token. Compiled once per change of a policy, and shared by its requests. */
export class RuleSet {
  /** Rules by the prefix of their glob. */
  readonly #byPrefix = new Map<string, Rule[]>()
  /** Lengths of the prefixes, longest first. */
  readonly #lengths: readonly number[]
  readonly #readsAll: boolean
  readonly #traits: DefinitionTraits
  #jobs: NameFilter | undefined
  #executions: NameFilter | undefined

  /**
   * An executor that is not in `traits` is judged as one that takes an account. `readsAll`: reads everything,
   * unless a rule denies it.
   */
  constructor(policies: readonly PolicyRules[], traits: DefinitionTraits, readsAll = false) {
    this.#readsAll = readsAll
    this.#traits = traits
    for (const {name, rules, limits} of policies) {
      for (const {glob: text, capabilities} of rules) {
        const glob = compileGlob(text)
        const rule = {glob, capabilities: new Set(capabilities), policy: name, limits}
        const bucket = this.#byPrefix.get(glob.prefix)
        if (bucket === undefined) this.#byPrefix.set(glob.prefix, [rule])
        else bucket.push(rule)
      }
    }
    const lengths = new Set([...this.#byPrefix.keys()].map(({length}) => length))
    this.#lengths = [...lengths].toSorted((one, other) => other - one)
  }

  /**
   * True if the caller reads everything: jobs, and the entries of tokens and policies in the audit log, for
   * example.
   */
  get readsAll(): boolean {
    return this.#readsAll
  }

  /** Jobs that may be read. */
  get jobs(): NameFilter {
    this.#jobs ??= this.#filter(JOB, ['read'])
    return this.#jobs
  }

  /** Jobs whose executions may be listed. */
  get executions(): NameFilter {
    this.#executions ??= this.#filter(EXECUTIONS, ['read', 'list'])
    return this.#executions
  }

  /** True if the caller may create or change some job. */
  get storesJobs(): boolean {
    return this.#filter(JOB, ['create', 'update'])?.some(({shown}) => shown) ?? true
  }

  /** `wanted`: one of them is enough. With a definition, only rules whose limits it meets grant anything. */
  decide(wanted: readonly Capability[], path: string, definition: JobSpec | null): Decision {
    const deciding = this.#deciding(path)
    const denying = deciding.find(({capabilities}) => capabilities.has('deny'))
    if (denying !== undefined)
      return {
        ...refusal(
          denying,
          `the rule "${denying.glob.text}" of the policy ${denying.policy} denies it`,
        ),
        denied: true,
      }
    if (this.#readsAll && wanted.some(isReading) && !path.startsWith(secretPath('')))
      return {...ALLOWED, rule: {policy: READ_EVERYTHING, glob: '/**'}}
    let why = 'no glob of its policies matches'
    for (const rule of deciding) {
      const {glob, policy, capabilities, limits} = rule
      const isGranted = wanted.some((capability) => capabilities.has(capability))
      const exceeded =
        isGranted && definition !== null ? exceededLimit(limits, definition, this.#traits) : null
      if (isGranted && exceeded === null) return {...ALLOWED, rule: {policy, glob: glob.text}}
      if (exceeded !== null) why = `the policy ${policy} ${exceeded}`
      else if (rule === deciding[0]) why = `the rule "${glob.text}" does not grant ${wanted[0]}`
    }
    return refusal(deciding[0] ?? null, why)
  }

  /** The most specific rules whose globs match. */
  #deciding(path: string): readonly Rule[] {
    const segments = path.slice(1).split('/')
    for (const length of this.#lengths) {
      if (length > path.length) continue
      const bucket = this.#byPrefix.get(path.slice(0, length))
      if (bucket === undefined) continue
      const matching = bucket.filter(({glob}) =>
        glob.isLiteral ? length === path.length : matchesGlob(glob, segments),
      )
      // A glob without wildcards is more specific than `/x/**`, which also matches `/x`.
      const literal = matching.filter(({glob}) => glob.isLiteral)
      if (literal.length > 0) return literal
      if (matching.length > 0) return matching
    }
    return []
  }

  /** The same decisions for all names at once, in the form of a list. */
  #filter(path: readonly (string | null)[], wanted: readonly Capability[]): NameFilter {
    const rules = [...this.#byPrefix.values()].flat().toSorted(bySpecificity(wanted))
    const filter: NameRule[] = []
    for (const {glob, capabilities} of rules) {
      const isGranted = this.#readsAll || wanted.some((each) => capabilities.has(each))
      const shown = isGranted && !capabilities.has('deny')
      for (const pattern of namePatterns(glob, path)) {
        filter.push({pattern, shown})
        // Later patterns decide nothing.
        if (pattern === '*') return filter.every((rule) => rule.shown) ? null : filter
      }
    }
    if (this.#readsAll) filter.push({pattern: '*', shown: true})
    return this.#readsAll && filter.every(({shown}) => shown) ? null : filter
  }
}

/** Reading a secret is using it in a job, which is no reading: `decide` leaves it out. */
function isReading(capability: Capability): boolean {
  return capability === 'read' || capability === 'list'
}

export const NO_RULES = new RuleSet([], {executors: [], processors: []})

/** Most specific first; of equal ones those that deny, then those that grant. */
function bySpecificity(wanted: readonly Capability[]) {
  const rank = ({capabilities}: Rule) => {
    if (capabilities.has('deny')) return 0
    return wanted.some((each) => capabilities.has(each)) ? 1 : 2
  }
  return (one: Rule, other: Rule) =>
    other.glob.prefix.length - one.glob.prefix.length ||
    Number(other.glob.isLiteral) - Number(one.glob.isLiteral) ||
    rank(one) - rank(other)
}

function refusal(rule: Rule | null, why: string): Decision {
  const decided = rule === null ? null : {policy: rule.policy, glob: rule.glob.text}
  return {allowed: false, denied: false, rule: decided, why}
}

/** The limit that a definition exceeds, as the end of a sentence; `null` = none. */
function exceededLimit(
  {executors, su, tags}: DefinitionLimits,
  spec: JobSpec,
  traits: DefinitionTraits,
): string | null {
  const isIn = (list: readonly string[], text: string) =>
    list.some((pattern) => matchesText(pattern, text))
  const {executor, executorConfig} = spec
  if (executors !== null && !isIn(executors, executor))
    return `allows only the executors ${executors.join(', ')}`
  const running = traits.executors.filter(({runsCommands}) => runsCommands).map(({name}) => name)
  const mayRun = executors === null || running.some((name) => isIn(executors, name))
  const file = mayRun ? undefined : nodeFileIn(spec, traits)
  if (file !== undefined)
    return `does not allow the executor ${running.join(' or ')}, and so no ${file}`
  const account = executorConfig['su'] ?? ''
  const takesAccount = traits.executors.find(({name}) => name === executor)?.takesAccount ?? true
  if (su !== null && (takesAccount || account !== '') && !isIn(su, account)) {
    const named = su.map((each) => (each === '' ? 'none' : each)).join(', ')
    return `allows only these accounts for su: ${named}`
  }
  for (const [key, values] of tags ?? []) {
    const rule = Object.hasOwn(spec.tags, key) ? parseTag(key, spec.tags[key]!) : null
    if (rule === null || !rule.ok || !isIn(values, rule.value))
      return `requires the tag ${key} with one of ${values.join(', ')}`
  }
  return null
}

/** The parameter by which a job without a command chooses a file or directory of its node. */
function nodeFileIn(
  {processors, executorConfig}: JobSpec,
  traits: DefinitionTraits,
): string | undefined {
  const isSet = (config: StringMap | undefined, parameter: string) =>
    (config?.[parameter] ?? '') !== ''
  return [
    ...traits.processors.flatMap(({name, fileParameters}) =>
      fileParameters.filter((parameter) => isSet(processors[name], parameter)),
    ),
    ...traits.executors.flatMap(({fileParameters}) =>
      fileParameters.filter((parameter) => isSet(executorConfig, parameter)),
    ),
  ][0]
}

/** Decides whether the caller may do this at a path. `read` of a list also needs no more than `list`. */
export function decide(
  {kind, rules}: Pick<Principal, 'kind' | 'rules'>,
  capability: Capability,
  path: string,
  definition: JobSpec | null = null,
): Decision {
  switch (kind) {
    case 'management':
      return ALLOWED
    case 'client':
      return rules.decide(capability === 'list' ? ['list', 'read'] : [capability], path, definition)
    case 'read':
      if (isReading(capability)) return ALLOWED
      return refusal(null, 'a read token changes nothing')
    case 'metrics':
    case 'agent':
    case 'join': {
      const only = kind === 'metrics' ? 'reads /metrics' : 'connects agents'
      return refusal(null, `a token of type ${kind} only ${only}`)
    }
  }
}

/** The decision of `decide`, with its question. */
export function check(
  principal: Principal,
  capability: Capability,
  path: string,
  definition: JobSpec | null = null,
): Check {
  return {capability, path, ...decide(principal, capability, path, definition)}
}

/** The check that refuses, if no check grants or one denies; `null` = allowed. */
export function refusing(checks: readonly Check[]): Check | null {
  const denying = checks.find(({denied}) => denied)
  if (denying !== undefined) return denying
  return checks.some(({allowed}) => allowed) ? null : (checks[0] ?? null)
}

/** The path of a job. A `/` in a name, which no job has, must not become part of the path. */
export function jobPath(name: string): string {
  return `/v1/jobs/${segmentOf(name)}`
}

/** A segment of a path, without its separator. */
export function segmentOf(text: string): string {
  return text.includes('/') ? text.replaceAll('/', '\0') : text
}

/** Which jobs a list shows. */
export function readableJobs({kind, rules}: Pick<Principal, 'kind' | 'rules'>): NameFilter {
  return kind === 'client' ? rules.jobs : readsAll(kind)
}

/** Filter of the jobs whose executions a list shows. */
export function readableExecutions({kind, rules}: Principal): NameFilter {
  return kind === 'client' ? rules.executions : readsAll(kind)
}

function readsAll(kind: TokenKind): NameFilter {
  return kind === 'management' || kind === 'read' ? null : []
}

/** The names among these that the caller may read. */
export function shownJobs(principal: Principal, names: readonly string[]): readonly string[] {
  const filter = readableJobs(principal)
  return filter === null ? names : names.filter((name) => isShown(filter, name))
}

export function isShown(filter: NameFilter, name: string): boolean {
  if (filter === null) return true
  return filter.find(({pattern}) => matchesText(pattern, name))?.shown ?? false
}

/** A question to the rules, with the answer. */
export interface Check extends Decision {
  readonly capability: Capability
  readonly path: string
}

/** `The token "ci" may not update /v1/jobs/x: …` */
export function refusalSentence(
  principal: Principal,
  {capability, path, why}: {readonly capability: string} & Pick<Check, 'path' | 'why'>,
): string {
  const shown = path.replaceAll('\0', '%2F').slice(0, 300)
  return `${subjectOf(principal)} may not ${capability} ${shown}: ${why}.`
}

/** Names the caller as the subject of a sentence. A session can be that of a person, who has no token. */
export function subjectOf({name, isSession}: Principal): string {
  return `The ${isSession ? 'session of' : 'token'} ${JSON.stringify(name)}`
}
