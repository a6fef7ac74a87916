/**
 * Import rules: a file imports from lower floors or its own folder only, without cycles, and every file is
 * reachable from an entry point.
 */
import {finding, type Finding, type Source} from './source.ts'

/** Floor of each folder of `src/`. Files directly in `src/` are on the top floor. */
export const FLOORS: Readonly<Record<string, number>> = {
  lib: 0,
  core: 1,
  ports: 2,
  wire: 3,
  platform: 3,
  config: 3,
  executors: 4,
  processors: 4,
  notices: 4,
  store: 4,
  telemetry: 4,
  node: 5,
  identity: 5,
  scheduler: 6,
  agents: 6,
  operations: 6,
  http: 7,
  cli: 7,
  app: 8,
}
const ADAPTER_FLOOR = 4
const TOP_FLOOR = 9

/** The composition roots: the only files that name adapters. */
const COMPOSITION = /^src\/(main\.ts$|app\/)/

interface Place {
  /** `''` for a file directly in `src/`. */
  readonly folder: string
  readonly floor: number
}

/** `null` outside of `src/`. */
function placeOf(path: string): Place | null {
  const [first, folder, ...rest] = path.split('/')
  if (first !== 'src' || folder === undefined) return null
  if (rest.length === 0) return {folder: '', floor: TOP_FLOOR}
  return {folder, floor: FLOORS[folder] ?? NaN}
}

/** Imports from a higher floor, from a sibling folder, or of an adapter outside the composition roots. */
export function checkFloors(sources: readonly Source[]): readonly Finding[] {
  const found: Finding[] = []
  for (const source of sources) {
    const from = placeOf(source.path)
    if (from === null) continue
    if (Number.isNaN(from.floor))
      found.push(finding(source.path, 1, `the folder src/${from.folder} is on no floor`))
    for (const {target, line} of source.imports) {
      const to = target === null ? null : placeOf(target)
      const why = to === null ? leavesSource(target) : whyNot(source.path, from, to)
      if (why !== '') found.push(finding(source.path, line, `imports ${target}: ${why}`))
    }
  }
  return found
}

/** `package.json` is the only file outside `src/` that the program may import. */
function leavesSource(target: string | null): string {
  return target === null || target === 'package.json' ? '' : 'src imports nothing outside of src'
}

function whyNot(path: string, from: Place, to: Place): string {
  if (from.folder === to.folder) return ''
  if (to.floor > from.floor) return 'imports go down only'
  if (to.floor === from.floor) return 'folders on one floor do not import each other'
  if (to.floor === ADAPTER_FLOOR && !COMPOSITION.test(path))
    return 'only the composition roots name adapters; take the port as an argument'
  return ''
}

/** Import cycles, each reported once. Type imports count: they couple files as much as values do. */
export function checkCycles(sources: readonly Source[]): readonly Finding[] {
  const byPath = new Map(sources.map((source) => [source.path, source]))
  const done = new Set<string>()
  const found: Finding[] = []
  const visit = (path: string, trail: readonly string[]) => {
    const at = trail.indexOf(path)
    if (at !== -1) {
      found.push(finding(path, 1, `imports itself: ${[...trail.slice(at), path].join(' → ')}`))
      return
    }
    if (done.has(path)) return
    for (const {target} of byPath.get(path)?.imports ?? [])
      if (target !== null && byPath.has(target)) visit(target, [...trail, path])
    done.add(path)
  }
  for (const {path} of sources) visit(path, [])
  return found
}

/** Imports of missing files: type stripping would report them only when the program runs. */
export function checkTargets(sources: readonly Source[]): readonly Finding[] {
  const paths = new Set([...sources.map((source) => source.path), 'package.json'])
  return sources.flatMap((source) =>
    source.imports
      .filter(({target}) => target !== null && !paths.has(target))
      .map(({specifier, line}) => finding(source.path, line, `imports ${specifier}: not there`)),
  )
}

/** Dead files: not reachable from `entries`. */
export function checkDead(
  sources: readonly Source[],
  entries: readonly string[],
): readonly Finding[] {
  const byPath = new Map(sources.map((source) => [source.path, source]))
  const reached = new Set<string>()
  const waiting = [...entries]
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (reached.has(path)) continue
    reached.add(path)
    for (const {target} of byPath.get(path)?.imports ?? [])
      if (target !== null) waiting.push(target)
  }
  return sources
    .filter(({path}) => !reached.has(path))
    .map(({path}) => finding(path, 1, 'is dead: nothing that runs imports it'))
}
