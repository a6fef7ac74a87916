/**
 * The parser of policy rules. A policy is stored as the text it came in. A text that is not a rules document
 * grants nothing. This file only parses; `authorization.ts` decides.
 */

const CAPABILITIES = ['create', 'read', 'update', 'delete', 'list', 'deny'] as const
export type Capability = (typeof CAPABILITIES)[number]

/** A glob of a document with the capabilities it grants or denies. */
export interface PolicyRule {
  readonly glob: string
  readonly capabilities: readonly Capability[]
}

/** Limits on the job definitions that a policy allows to be stored; `null` = no limit. */
export interface DefinitionLimits {
  readonly executors: readonly string[] | null
  /** Accounts as `su` names them; `''` = a job without `su`. `*` is any text. */
  readonly su: readonly string[] | null
  /** Tags that a job must have, each with its allowed values. `*` is any text. */
  readonly tags: readonly (readonly [key: string, values: readonly string[]])[] | null
}

/** An executor as policies judge it. */
export interface ExecutorTraits {
  readonly name: string
  /** Runs commands: a job with it reads and writes any file of its node. */
  readonly runsCommands: boolean
  /** Takes the parameter `su`; a job without it runs as the account of the node. */
  readonly takesAccount: boolean
  /** Parameters that name files of the node, among them private keys. */
  readonly fileParameters: readonly string[]
}

/** A processor as policies judge it. */
export interface ProcessorTraits {
  readonly name: string
  /** Parameters that name files or directories of the node. */
  readonly fileParameters: readonly string[]
}

/** All executors and processors that there are. */
export interface DefinitionTraits {
  readonly executors: readonly ExecutorTraits[]
  readonly processors: readonly ProcessorTraits[]
}

type ParsedRules =
  | {
      readonly ok: true
      readonly rules: readonly PolicyRule[]
      readonly limits: DefinitionLimits
    }
  | {readonly ok: false; readonly problem: string}

/**
 * Takes the place of a policy and reads everything, also what the other policies do not grant, unless one of
 * them denies it. No stored policy can have this name.
 */
export const READ_EVERYTHING = 'read everything'

/** Each server holds all policies in memory. */
export const POLICIES_MAX = 1_000
/** Excludes `.` and `..`: clients resolve them in a path, so such a policy could not be requested. */
export const POLICY_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/
/** Length of the rules of one policy. */
export const RULES_BYTES_MAX = 64 * 1024
/** More than people write by hand; bounds the work of a list. */
const GLOBS_MAX = 1_000
const GLOB_LENGTH_MAX = 512
/** Entries of each limit. */
export const LIMIT_ENTRIES_MAX = 100

const MEMBERS: readonly string[] = ['path', 'executors', 'su', 'tags']

/**
 * Parses `{"path": {"<glob>": {"capabilities": [...]}}}`, with the optional limits `executors`, `su` and
 * `tags`. One wrong part makes the whole document grant nothing: half a document may allow access that the
 * other half denies.
 */
export function readRules(text: string): ParsedRules {
  let document: unknown
  try {
    document = JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return refuse(`Rules is not JSON: ${error.message}`)
    throw error
  }
  if (!isObject(document)) return refuse('Rules must be a JSON object with the member "path"')
  const odd = Object.keys(document).find((key) => !MEMBERS.includes(key))
  if (odd !== undefined)
    return refuse(`Rules has the unknown member "${odd}"; known are ${MEMBERS.join(', ')}`)
  const paths = document.path
  if (paths === undefined) return refuse('Rules has no member "path" with globs')
  if (!isObject(paths)) return refuse('Rules.path must be an object of globs')
  const entries = Object.entries(paths)
  if (entries.length > GLOBS_MAX) return refuse(`Rules.path has more than ${GLOBS_MAX} globs`)
  const rules: PolicyRule[] = []
  for (const [glob, entry] of entries) {
    const problem = globProblem(glob) ?? entryProblem(glob, entry)
    if (problem !== null) return refuse(problem)
    rules.push({glob, capabilities: (entry as {capabilities: Capability[]}).capabilities})
  }
  return withLimits(rules, document)
}

function withLimits(
  rules: readonly PolicyRule[],
  {executors, su, tags}: Readonly<Record<string, unknown>>,
): ParsedRules {
  const tagEntries = tags === undefined ? [] : isObject(tags) ? Object.entries(tags) : null
  if (tagEntries === null || tagEntries.length > LIMIT_ENTRIES_MAX)
    return refuse(`Rules.tags must be an object of at most ${LIMIT_ENTRIES_MAX} tags`)
  const lists: readonly (readonly [field: string, value: unknown])[] = [
    ['executors', executors],
    ['su', su],
    ...tagEntries.map(([key, value]) => [`tags.${key}`, value ?? null] as const),
  ]
  for (const [field, value] of lists) {
    if (value === undefined || isTextList(value)) continue
    const what = `a list of 1 to ${LIMIT_ENTRIES_MAX} texts`
    return refuse(`Rules.${field} must be ${what}; leave it out for no limit`)
  }
  const limits = {
    executors: (executors as readonly string[] | undefined) ?? null,
    su: (su as readonly string[] | undefined) ?? null,
    tags: tags === undefined ? null : (tagEntries as [string, readonly string[]][]),
  }
  return {ok: true, rules, limits}
}

export function isTextList(value: unknown): value is readonly string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.length <= LIMIT_ENTRIES_MAX &&
    value.every((entry) => typeof entry === 'string')
  )
}

/** The error in a glob over API paths; `null` = valid. */
export function globProblem(glob: string): string | null {
  if (!glob.startsWith('/')) return `the glob "${glob}" must start with "/", as in "/v1/jobs/*"`
  if (glob.length > GLOB_LENGTH_MAX) return `a glob is longer than ${GLOB_LENGTH_MAX} characters`
  for (const segment of glob.slice(1).split('/')) {
    if (segment === '' && glob !== '/') return `the glob "${glob}" has an empty segment`
    if (segment.includes('**') && segment !== '**')
      return `the glob "${glob}" may contain "**" only as a whole segment`
    if (segment === '.' || segment === '..')
      return `the glob "${glob}" must not contain "." or ".."`
  }
  return null
}

function entryProblem(glob: string, entry: unknown): string | null {
  if (!isObject(entry)) return `the rule of "${glob}" must be an object with "capabilities"`
  const {capabilities, ...rest} = entry
  const odd = Object.keys(rest)[0]
  if (odd !== undefined) return `the rule of "${glob}" has the unknown member "${odd}"`
  if (!Array.isArray(capabilities) || capabilities.length === 0)
    return `capabilities of "${glob}" must be a list of ${CAPABILITIES.join(', ')}`
  for (const capability of capabilities) {
    if (CAPABILITIES.includes(capability)) continue
    const known = CAPABILITIES.join(', ')
    return `"${glob}" has the unknown capability ${JSON.stringify(capability)}; known are ${known}`
  }
  return null
}

function refuse(problem: string): ParsedRules {
  return {ok: false, problem}
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
