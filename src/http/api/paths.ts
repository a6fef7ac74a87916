/**
 * The paths of the server: which methods each has, for 405 instead of 404, and what each route needs of its
 * caller. Filled as routes are registered, so it cannot be out of date.
 */
import {compileGlob, matchesText} from '../../core/access/glob.ts'
import type {PathAccess, RouteAccess} from '../security/access.ts'

interface PathEntry {
  readonly segments: readonly string[]
  /** Keys: methods. */
  readonly routes: Map<string, RouteAccess>
}

export interface FoundRoute {
  readonly access: RouteAccess
  readonly parameters: Readonly<Record<string, string>>
}

export class PathTable {
  readonly #entries = new Map<string, PathEntry>()

  /** `pattern` in the form of the router: `/v1/jobs/:name`. */
  add(methods: string | readonly string[], pattern: string, access: RouteAccess): void {
    const segments = segmentsOf(pattern)
    const key = segments.join('/')
    const entry = this.#entries.get(key) ?? {segments, routes: new Map()}
    for (const method of [methods].flat()) entry.routes.set(method, access)
    this.#entries.set(key, entry)
  }

  /** Sorted; empty for an unknown path. `path` has no query. */
  methodsOf(path: string): readonly string[] {
    const methods = this.#matching(path).flatMap(({routes}) => [...routes.keys()])
    return [...new Set(methods)].toSorted()
  }

  /** The route that answers this request; `null` = none. `path` has no query. */
  find(method: string, path: string): FoundRoute | null {
    const candidates = this.#matching(path).filter(({routes}) => routes.has(method))
    // The router prefers a fixed segment to a parameter too.
    const [entry] = candidates.toSorted((one, other) => parameterCount(one) - parameterCount(other))
    if (entry === undefined) return null
    const found = segmentsOf(path)
    const parameters = entry.segments.flatMap((part, at) =>
      part.startsWith(':') ? [[part.slice(1), decoded(found[at]!)]] : [],
    )
    return {
      access: entry.routes.get(method)!,
      parameters: Object.fromEntries(parameters) as Record<string, string>,
    }
  }

  /** True if a route of one object or list asks policies for a path that this glob can match. */
  isReachable(glob: string): boolean {
    const {segments} = compileGlob(glob)
    const asked = this.#accesses()
      .flatMap(({pathOf, alsoOf}) => (alsoOf === null ? [pathOf] : [pathOf, alsoOf]))
      .map((pathOf) => pathOf({}).split('/').slice(1))
    return asked.some((path) => canMatch(segments, path))
  }

  #accesses(): readonly PathAccess[] {
    const all = [...this.#entries.values()].flatMap(({routes}) => [...routes.values()])
    return all.filter((access) => typeof access === 'object')
  }

  #matching(path: string): readonly PathEntry[] {
    const segments = segmentsOf(path)
    return [...this.#entries.values()].filter((entry) => matches(entry.segments, segments))
  }
}

/** An empty segment of `path` is a parameter, which can be any text. */
function canMatch([first, ...rest]: readonly string[], path: readonly string[]): boolean {
  if (first === undefined) return path.length === 0
  if (first === '**')
    return path.some((_, at) => canMatch(rest, path.slice(at))) || canMatch(rest, [])
  const [segment, ...others] = path
  if (segment === undefined) return false
  return (segment === '' || matchesText(first, segment)) && canMatch(rest, others)
}

function parameterCount({segments}: PathEntry): number {
  return segments.filter((part) => part.startsWith(':')).length
}

/** Segment as the router decodes it; an invalid escape stays as it is. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch (error) {
    if (error instanceof URIError) return segment
    throw error
  }
}

function segmentsOf(path: string): string[] {
  return path.replace(/\/$/, '').split('/').slice(1)
}

function matches(pattern: readonly string[], segments: readonly string[]): boolean {
  return (
    pattern.length === segments.length &&
    pattern.every((part, index) =>
      part.startsWith(':') ? segments[index] !== '' : part === segments[index],
    )
  )
}

/** Path of a job, for `Location`. */
export function jobLocation(name: string): string {
  return `/v1/jobs/${encodeURIComponent(name)}`
}

export function launchLocation(job: string, group: number): string {
  return `${jobLocation(job)}/launches/${group}`
}
