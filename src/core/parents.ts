/**
 * Rules of parents: a parent exists and is not ephemeral, an ephemeral job has no dependents, and no job is
 * its own ancestor. A submit is checked alone, a restore with all jobs of its file.
 */
import type {JobSpec} from './job.ts'

export type ParentProblem =
  | {readonly kind: 'parent_unknown'; readonly parent: string}
  | {readonly kind: 'cycle'; readonly path: readonly string[]}
  /** An ephemeral job cannot have dependents: this job has some, or names an ephemeral parent. */
  | {
      readonly kind: 'ephemeral_parent'
      readonly parent: string
      readonly dependents: readonly string[]
    }

/** A stored job above the job of a submit. */
export interface Ancestor {
  readonly name: string
  /** Name of its parent; `''` = none. */
  readonly parent: string
  readonly ephemeral: boolean
}

/** True unless whether the definition is valid depends on other definitions. */
export function isIndependent({parentJob, ephemeral}: JobSpec): boolean {
  return parentJob === '' && !ephemeral
}

/**
 * Checks one definition; `null` = valid. `dependents`: stored dependents of an ephemeral job. `ancestors`:
 * the parent, its parent and so on, up to the job itself.
 */
export function parentProblem(
  {name, parentJob}: JobSpec,
  dependents: readonly string[],
  ancestors: readonly Ancestor[],
): ParentProblem | null {
  if (dependents.length > 0) return {kind: 'ephemeral_parent', parent: name, dependents}
  if (parentJob === '') return null
  if (parentJob === name) return {kind: 'cycle', path: [name, name]}
  const [parent] = ancestors
  if (parent === undefined) return {kind: 'parent_unknown', parent: parentJob}
  if (parent.ephemeral) return {kind: 'ephemeral_parent', parent: parentJob, dependents: [name]}
  const last = ancestors.at(-1)!
  if (last.name === name)
    return {kind: 'cycle', path: [name, ...ancestors.map((each) => each.name)]}
  return last.parent === '' ? null : {kind: 'parent_unknown', parent: parentJob}
}

export interface RestoreProblem {
  readonly name: string
  readonly problem: string
  /** Jobs that explain it, of which the caller may not read all. */
  readonly dependents?: readonly string[]
  readonly cycle?: readonly string[]
}

/** The fields of a definition that these rules read. */
export type Lineage = Omit<Ancestor, 'name'>

export function lineageOf({parentJob, ephemeral}: JobSpec): Lineage {
  return {parent: parentJob, ephemeral}
}

/**
 * Problems of the jobs of a file. `names`: those of the file, in its order. `lineages`: of all jobs as they
 * are after the restore.
 */
export function restoreProblems(
  names: readonly string[],
  lineages: ReadonlyMap<string, Lineage>,
): RestoreProblem[] {
  return [...duplicates(names), ...parentProblems(names, lineages)]
}

function* duplicates(names: readonly string[]): Generator<RestoreProblem> {
  const seen = new Set<string>()
  for (const name of names) {
    if (seen.has(name)) yield {name, problem: 'is in the file duplicates'}
    seen.add(name)
  }
}

function* parentProblems(
  names: readonly string[],
  lineages: ReadonlyMap<string, Lineage>,
): Generator<RestoreProblem> {
  const dependents = new Map<string, string[]>()
  for (const [name, {parent}] of lineages) {
    const siblings = dependents.get(parent)
    if (siblings === undefined) dependents.set(parent, [name])
    else siblings.push(name)
  }
  const free = new Set<string>()
  for (const name of new Set(names)) {
    const {parent, ephemeral} = lineages.get(name)!
    const above = lineages.get(parent)
    if (parent !== '' && above === undefined)
      yield {name, problem: `names the parent ${parent}, which is neither in the file nor stored`}
    if (above?.ephemeral === true)
      yield {name, problem: `names the parent ${parent}, which is ephemeral`}
    const children = dependents.get(name)?.toSorted() ?? []
    if (ephemeral && children.length > 0)
      yield {name, problem: 'is ephemeral, and jobs depend on it', dependents: children}
    const cycle = cycleFrom(name, lineages, free)
    if (cycle !== null) yield {name, problem: 'is its own ancestor', cycle}
  }
}

/** The cycle from `name` over its parents to itself; `null` = none. `free` collects names without a cycle. */
function cycleFrom(
  name: string,
  lineages: ReadonlyMap<string, Lineage>,
  free: Set<string>,
): string[] | null {
  const path = [name]
  const onPath = new Set(path)
  let at = lineages.get(name)?.parent ?? ''
  while (at !== '' && !free.has(at)) {
    path.push(at)
    if (at === name) return path
    if (onPath.has(at)) return null
    onPath.add(at)
    at = lineages.get(at)?.parent ?? ''
  }
  for (const each of onPath) free.add(each)
  return null
}
