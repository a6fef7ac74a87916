/** Importing jobs from a file: all or none, in any order. A restore never plans times in the past. */
import {type Change, replacedBy} from '../../../core/audit.ts'
import type {JobRecord} from '../../../core/job.ts'
import {planDefinition} from '../../../core/next-time.ts'
import {type Lineage, lineageOf, restoreProblems} from '../../../core/parents.ts'
import {checkPermission, withOwner} from '../../../core/submit.ts'
import type {RestoreEntry, RestoreOptions, RestoreResult} from '../../../ports/job-store.ts'
import {recordChanges} from '../access/audit.ts'
import {
  applyChanges,
  firstRevisions,
  insertJobs,
  lockJobs,
  type NewJob,
  type Redefinition,
} from './jobs.ts'
import {noticeScopes} from '../notices/scopes.ts'
import {all, type Query, type Transaction} from '../query.ts'
import {isPaused, zoning} from '../cluster/settings.ts'

export function* restore(
  tx: Transaction,
  entries: readonly RestoreEntry[],
  options: RestoreOptions,
): Query<RestoreResult> {
  if (yield* isPaused()) return {kind: 'paused'}
  const names = entries.map(({spec}) => spec.name)
  const existing = new Map<string, JobRecord>()
  for (const job of yield* lockJobs(tx, names)) {
    if (job !== null) existing.set(job.spec.name, job)
  }
  const forbidden = entries.flatMap(({spec: {name}, may}) => {
    const refused = checkPermission(may, existing.get(name) ?? null)
    return refused === null ? [] : [{name, capability: refused.capability}]
  })
  if (forbidden.length > 0) return {kind: 'not_allowed', names: forbidden}
  const lineages = yield* loadLineages()
  for (const {spec} of entries) lineages.set(spec.name, lineageOf(spec))
  const problems = restoreProblems(names, lineages)
  if (problems.length > 0) return {kind: 'refused', problems}

  const {zone, changes} = yield* zoning()
  const first = yield* firstRevisions(names.filter((name) => !existing.has(name)))
  const fresh: NewJob[] = []
  const redefined: Redefinition[] = []
  for (const {spec: stored, counters, status = ''} of entries) {
    const job = existing.get(stored.name) ?? null
    const owned = withOwner(stored, job, options.defaultOwner)
    const spec = options.disabled ? {...owned, disabled: true} : owned
    const planned = planDefinition(job, spec, tx.now, zone, false, changes)
    const change = {...planned, revision: first.get(spec.name) ?? planned.revision}
    if (job === null) fresh.push({...change, spec, counters, status, actor: options.actor})
    else redefined.push({existing: job, spec, change, actor: options.actor})
  }
  const scopes = yield* noticeScopes()
  yield* applyChanges(tx, redefined, scopes)
  const ids = fresh.length === 0 ? [] : yield* tx.dialect.takeNumbers('job', fresh.length)
  yield* insertJobs(tx, fresh, ids, scopes)
  yield* recordChanges(tx, [
    ...fresh.map(({spec: {name}, revision}, at) => {
      return restored(name, options, {job: {id: ids[at]!, before: null, after: revision}})
    }),
    ...redefined
      .filter(({change}) => change.changed)
      .map(({existing: job, change}) =>
        restored(job.spec.name, options, replacedBy(job, change.revision)),
      ),
  ])
  return {kind: 'restored', lines: names.map((name) => ({name, created: !existing.has(name)}))}
}

function restored(
  target: string,
  {actor}: RestoreOptions,
  what: Pick<Change, 'job' | 'replaced'>,
): Change {
  return {actor, action: 'job.restore', targetType: 'job', target, ...what}
}

/** Parent and kind of every stored job. */
function* loadLineages(): Query<Map<string, Lineage>> {
  const rows = yield* all<{name: string; parent: string; ephemeral: number}>(
    `SELECT name, parent, ephemeral FROM jobs WHERE deleted_at IS NULL`,
  )
  return new Map(
    rows.map(({name, parent, ephemeral}) => [name, {parent, ephemeral: ephemeral === 1}]),
  )
}
