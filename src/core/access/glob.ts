/**
 * Globs over API paths: `*` is any text within a segment, `**` is any number of segments. Matching is greedy
 * and never exponential. A glob is compiled once, when its policy is loaded.
 */
import {IS_NAME_CHARACTER} from '../validate.ts'

export interface Glob {
  readonly text: string
  /** Text before the first wildcard, without a `/` at its end. */
  readonly prefix: string
  /** True if it has no wildcard. */
  readonly isLiteral: boolean
  readonly segments: readonly string[]
}

const ANY_DEPTH = '**'
const ANY_TEXT = '*'

/** `text` is a glob without a problem, see `globProblem`. */
export function compileGlob(text: string): Glob {
  const star = text.indexOf(ANY_TEXT)
  const isLiteral = star === -1
  const parts = text.slice(1).split('/')
  return {
    text,
    prefix: isLiteral ? text : text.slice(0, star).replace(/\/$/, ''),
    isLiteral,
    segments: parts.filter((part, at) => part !== ANY_DEPTH || parts[at - 1] !== ANY_DEPTH),
  }
}

/** `path` = the segments of a path. */
export function matchesGlob({segments}: Pick<Glob, 'segments'>, path: readonly string[]): boolean {
  return covers(segments, path, ANY_DEPTH, matchesText)
}

/** `*` in `pattern` is any text, also none. */
export function matchesText(pattern: string, text: string): boolean {
  return pattern === text || covers(pattern, text, ANY_TEXT, isSame)
}

function isSame(one: string, other: string): boolean {
  return one === other
}

/**
 * True if the pattern covers the whole text, when `any` in it is any number of elements. It is enough to
 * return to the last `any`: what an earlier one could take, the last one can take as well.
 */
function covers(
  pattern: ArrayLike<string>,
  text: ArrayLike<string>,
  any: string,
  fits: (part: string, element: string) => boolean,
): boolean {
  let at = 0
  let anyAt = -1
  let anyEnd = 0
  for (let index = 0; index < text.length;) {
    if (at < pattern.length && pattern[at] === any) {
      anyAt = at
      anyEnd = index
      at += 1
    } else if (at < pattern.length && fits(pattern[at]!, text[index]!)) {
      at += 1
      index += 1
    } else if (anyAt !== -1) {
      anyEnd += 1
      index = anyEnd
      at = anyAt + 1
    } else return false
  }
  while (at < pattern.length && pattern[at] === any) at += 1
  return at === pattern.length
}

/**
 * The job names for which a glob matches a path, as patterns with `*`. `path` = its segments, `null` in place
 * of the name. Leaves out patterns that no valid name matches.
 */
export function namePatterns(
  {segments}: Pick<Glob, 'segments'>,
  path: readonly (string | null)[],
): readonly string[] {
  const found = new Set<string>()
  // A path of few segments bounds the recursion.
  if (segments.filter((part) => part !== ANY_DEPTH).length > path.length) return []
  const walk = (at: number, index: number, name: string) => {
    const part = segments[at]
    if (index === path.length) {
      if (segments.slice(at).every((rest) => rest === ANY_DEPTH)) found.add(name)
      return
    }
    if (part === undefined) return
    const element = path[index]!
    if (part === ANY_DEPTH) {
      walk(at + 1, index, name)
      walk(at, index + 1, element === null ? ANY_TEXT : name)
    } else if (element === null) walk(at + 1, index + 1, part)
    else if (matchesText(part, element)) walk(at + 1, index + 1, name)
  }
  walk(0, 0, '')
  return [...found].filter((pattern) => pattern !== '' && [...pattern].every(isInNames))
}

function isInNames(character: string): boolean {
  return character === ANY_TEXT || IS_NAME_CHARACTER.test(character)
}
