/**
 * The parser of policy rules. A policy is stored as the text it came in. A text that is not a rules document
 * grants nothing. This file only parses; it never grants access.
 */

const CAPABILITIES = ['create', 'read', 'update', 'delete', 'list', 'deny'] as const
type Capability = (typeof CAPABILITIES)[number]

/** One glob of a document with the capabilities it grants or denies. */
interface PolicyRule {
  readonly glob: string
  readonly capabilities: readonly Capability[]
}

type ParsedRules =
  | {readonly ok: true; readonly rules: readonly PolicyRule[]}
  | {readonly ok: false; readonly problem: string}

/** More than people write by hand; bounds the work per request. */
const GLOBS_MAX = 1_000
const GLOB_LENGTH_MAX = 512

/**
 * Parses `{"path": {"<glob>": {"capabilities": [...]}}}`. One wrong part makes the whole document grant
 * nothing: half a document may allow access that the other half denies.
 */
export function readRules(text: string): ParsedRules {
  let document: unknown
  try {
    document = JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return refuse('Rules is not JSON')
    throw error
  }
  if (!isObject(document)) return refuse('Rules must be a JSON object with the member "path"')
  const odd = Object.keys(document).find((key) => key !== 'path')
  if (odd !== undefined)
    return refuse(`Rules has the unknown member "${odd}"; only "path" is known`)
  const paths = document.path
  if (!isObject(paths)) return refuse('Rules.path must be an object of globs')
  const entries = Object.entries(paths)
  if (entries.length > GLOBS_MAX) return refuse(`Rules.path has more than ${GLOBS_MAX} globs`)
  const rules: PolicyRule[] = []
  for (const [glob, entry] of entries) {
    const problem = globProblem(glob) ?? entryProblem(glob, entry)
    if (problem !== null) return refuse(problem)
    rules.push({glob, capabilities: (entry as {capabilities: Capability[]}).capabilities})
  }
  return {ok: true, rules}
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
