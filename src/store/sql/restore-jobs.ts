/** Importing jobs from a file: all or nothing, whatever their order. A restore never plans the past. */
import type {JobRecord, JobSpec} from '../../core/job.ts'
import {planDefinition} from '../../core/next-time.ts'
import type {RestoreEntry, RestoreResult} from '../../ports/job-store.ts'
import {applyChanges, insertJobs, lockJobs, type NewJob, type Redefinition} from './jobs.ts'
import {all, type Query, type Transaction} from './query.ts'
import {isPaused, timezone} from './settings.ts'

interface Problem {
  readonly name: string
  readonly problem: string
}

export function* restore(
  tx: Transaction,
  entries: readonly RestoreEntry[],
  options: {readonly disabled: boolean},
): Query<RestoreResult> {
  if (yield* isPaused()) return {kind: 'paused'}
  const names = entries.map(({spec}) => spec.name)
  const existing = new Map<string, JobRecord>()
  for (const job of yield* lockJobs(tx, names)) {
    if (job !== null) existing.set(job.spec.name, job)
  }
  const family = yield* loadFamily()
  for (const {spec} of entries) family.set(spec.name, memberOf(spec))
  const problems = [...twice(names), ...familyProblems(names, family)]
  if (problems.length > 0) return {kind: 'refused', problems}

  const zone = yield* timezone()
  const fresh: NewJob[] = []
  const redefined: Redefinition[] = []
  for (const {spec: given, counters} of entries) {
    const spec = options.disabled ? {...given, disabled: true} : given
    const job = existing.get(spec.name) ?? null
    const change = planDefinition(job, spec, tx.now, zone, false)
    if (job === null) fresh.push({...change, spec, counters})
    else redefined.push({existing: job, spec, change})
  }
  yield* applyChanges(tx, redefined)
  yield* insertJobs(tx, fresh)
  return {kind: 'restored', lines: names.map((name) => ({name, created: !existing.has(name)}))}
}

interface Member {
  readonly parent: string
  readonly ephemeral: boolean
}

function memberOf(spec: JobSpec): Member {
  return {parent: spec.parentJob, ephemeral: spec.ephemeral}
}

/** Parents of all stored jobs. */
function* loadFamily(): Query<Map<string, Member>> {
  const rows = yield* all<{name: string; parent: string; ephemeral: number}>(
    `SELECT name, parent, ephemeral FROM jobs WHERE deleted_at IS NULL`,
  )
  return new Map(
    rows.map(({name, parent, ephemeral}) => [name, {parent, ephemeral: ephemeral === 1}]),
  )
}

function* twice(names: readonly string[]): Generator<Problem> {
  const seen = new Set<string>()
  for (const name of names) {
    if (seen.has(name)) yield {name, problem: 'is in the file twice'}
    seen.add(name)
  }
}

/** What is wrong with parents once the file is applied. Told of jobs of the file only. */
function* familyProblems(
  names: readonly string[],
  family: ReadonlyMap<string, Member>,
): Generator<Problem> {
  const dependents = new Map<string, string[]>()
  for (const [name, {parent}] of family) {
    const siblings = dependents.get(parent)
    if (siblings === undefined) dependents.set(parent, [name])
    else siblings.push(name)
  }
  const free = new Set<string>()
  for (const name of new Set(names)) {
    const {parent, ephemeral} = family.get(name)!
    const above = family.get(parent)
    if (parent !== '' && above === undefined)
      yield {name, problem: `names the parent ${parent}, which is neither in the file nor stored`}
    if (above?.ephemeral === true)
      yield {name, problem: `names the parent ${parent}, which is ephemeral`}
    const children = dependents.get(name)?.toSorted() ?? []
    if (ephemeral && children.length > 0)
      yield {name, problem: `is ephemeral and the parent of ${children.join(', ')}`}
    const cycle = cycleFrom(name, family, free)
    if (cycle !== null) yield {name, problem: `is its own ancestor: ${cycle.join(' -> ')}`}
  }
}

/**
 * The way from `name` over its parents back to itself; `null` when there is none. `free` collects names
 * known to lead out.
 */
function cycleFrom(
  name: string,
  family: ReadonlyMap<string, Member>,
  free: Set<string>,
): string[] | null {
  const path = [name]
  const onPath = new Set(path)
  let at = family.get(name)?.parent ?? ''
  while (at !== '' && !free.has(at)) {
    path.push(at)
    if (at === name) return path
    if (onPath.has(at)) return null
    onPath.add(at)
    at = family.get(at)?.parent ?? ''
  }
  for (const each of onPath) free.add(each)
  return null
}
