/**
 * Which methods a path answers, so that a wrong method can be told from an unknown path. Filled as the routes
 * are registered, so that it cannot disagree with them.
 */

interface Entry {
  readonly segments: readonly string[]
  readonly methods: Set<string>
}

export class RouteTable {
  readonly #entries = new Map<string, Entry>()

  /** `pattern` in the form of the router: `/v1/jobs/:name`. */
  add(methods: string | readonly string[], pattern: string): void {
    const segments = segmentsOf(pattern)
    const key = segments.join('/')
    const entry = this.#entries.get(key) ?? {segments, methods: new Set()}
    for (const method of [methods].flat()) entry.methods.add(method)
    this.#entries.set(key, entry)
  }

  /** Methods that the path answers, sorted; empty = nothing is there. `path` is without its query. */
  methodsAt(path: string): readonly string[] {
    const segments = segmentsOf(path)
    const found = new Set<string>()
    for (const entry of this.#entries.values()) {
      if (matches(entry.segments, segments)) for (const method of entry.methods) found.add(method)
    }
    return [...found].toSorted()
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
