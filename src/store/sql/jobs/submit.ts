/**
 * Stores submitted definitions, of several requests with a fixed number of statements. Every check runs in
 * the transaction that relies on it. `planDefinition` in the core decides how a definition moves `next`.
 */
import type {StorePermission} from '../../../core/access/job-permission.ts'
import type {JobRecord, JobSpec} from '../../../core/job.ts'
import {planDefinition} from '../../../core/next-time.ts'
import {assert} from '../../../lib/assert.ts'
import type {Change} from '../../../ports/audit-store.ts'
import type {
  PreconditionFailed,
  SubmitPreview,
  SubmitRequest,
  SubmitResult,
} from '../../../ports/job-store.ts'
import {recordChanges, replacedBy} from '../access/audit.ts'
import {findReplies, keyOf, storeReplies} from './idempotency.ts'
import {
  applyChanges,
  checkRevision,
  dependentsOf,
  firstRevisions,
  insertJobs,
  loadJob,
  loadJobs,
  lockJobs,
  type NewJob,
  type Redefinition,
} from './jobs.ts'
import {newLaunch} from '../launches/launch-rows.ts'
import {all, type Query, sendEach, together, type Transaction} from '../query.ts'
import {INSERT_LAUNCH, launchValues} from '../rows.ts'
import {isPaused, zoning} from '../cluster/settings.ts'

/** True unless whether the definition is valid depends on other definitions. */
export function isIndependent({parentJob, ephemeral}: JobSpec): boolean {
  return parentJob === '' && !ephemeral
}

/** Keys that two requests of one query cannot share; `null` = it depends on other definitions. */
export function conflictKeys({spec, idempotency}: SubmitRequest): readonly string[] | null {
  if (!isIndependent(spec)) return null
  return [spec.name, ...(idempotency === null ? [] : [keyOf(idempotency).join(' ')])]
}

interface Stored {
  readonly index: number
  readonly id: number
  readonly created: boolean
  readonly changed: boolean
  readonly group: number | null
  readonly change: Change | null
}

/** Stores requests without conflicts (`conflictKeys`). Returns a result for each, in order. */
export function* submit(
  tx: Transaction,
  requests: readonly SubmitRequest[],
): Query<readonly SubmitResult[]> {
  const names = requests.map(({spec}) => spec.name)
  const running = requests.filter(({runOnCreate}) => runOnCreate)
  // Numbers are taken before it is known who needs one: that saves a round trip, and gaps do not matter.
  const [existing, first, earlier, paused, {zone, changes}, refusals, ids, groups] =
    yield* together(
      lockJobs(tx, names),
      firstRevisions(names),
      findReplies<SubmitResult>(
        tx,
        requests.map(({idempotency}) => idempotency),
      ),
      isPaused(),
      zoning(),
      parentProblems(requests),
      tx.dialect.takeNumbers('job', requests.length),
      running.length === 0 ? together() : tx.dialect.takeNumbers('launch', running.length),
    )
  const results: (SubmitResult | null)[] = []
  const fresh: (NewJob & {readonly id: number})[] = []
  const redefined: Redefinition[] = []
  const stored: Stored[] = []
  for (const [index, request] of requests.entries()) {
    const known = existing[index] ?? null
    const refusal =
      earlier[index] ??
      (paused ? ({kind: 'paused'} as const) : null) ??
      checkPermission(request.may, known) ??
      checkPreconditions(request, known) ??
      refusals[index] ??
      null
    results.push(refusal)
    if (refusal !== null) continue
    const spec = withOwner(request.spec, known, request.defaultOwner)
    const planned = planDefinition(known, spec, tx.now, zone, true, changes)
    const change = known === null ? {...planned, revision: first.get(spec.name)!} : planned
    const id = known?.id ?? ids[index]!
    if (known === null) fresh.push({...change, id, spec, counters: ZERO_COUNTERS, status: ''})
    else redefined.push({existing: known, spec, change})
    const group = request.runOnCreate ? groups[running.indexOf(request)]! : null
    const {changed, revision} = change
    const made = {known, id, name: spec.name, revision: changed ? revision : null, group}
    const recorded = changeOf(made, request)
    stored.push({index, id, created: known === null, changed, group, change: recorded})
  }
  yield* applyChanges(tx, redefined)
  yield* insertJobs(
    tx,
    fresh,
    fresh.map(({id}) => id),
  )
  yield* sendEach(
    INSERT_LAUNCH,
    stored.flatMap(({index, id, group}) => {
      const row = {cause: 'create', decision: 'pending', scheduledAt: tx.now} as const
      return group === null
        ? []
        : [launchValues(newLaunch({id, name: names[index]!}, group, tx.now, row))]
    }),
  )
  yield* recordChanges(
    tx,
    stored.flatMap(({change}) => change ?? []),
  )
  const jobs = yield* loadJobs(stored.map(({id}) => id))
  stored.forEach(({index, created, changed, group}, at) => {
    const job = jobs[at] ?? null
    assert(job !== null, `${names[index]} was just stored`)
    results[index] = {kind: 'stored', job, created, changed, group}
  })
  const answers = results as readonly SubmitResult[]
  yield* storeReplies(
    tx,
    stored.map(({index}) => ({idempotency: requests[index]!.idempotency, reply: answers[index]!})),
  )
  return [...answers]
}

/** Effect that `submit` would have. Reads only, so that what it finds may have changed by the submit. */
export function* previewSubmit(tx: Transaction, request: SubmitRequest): Query<SubmitPreview> {
  const [known, isPausedNow, {zone, changes}, [parent = null]] = yield* together(
    loadJob(request.spec.name),
    isPaused(),
    zoning(),
    parentProblems([request]),
  )
  const spec = withOwner(request.spec, known, request.defaultOwner)
  const {changed, anchorAt, nextAt} = planDefinition(known, spec, tx.now, zone, true, changes)
  const refusal =
    checkPermission(request.may, known) ?? checkPreconditions(request, known) ?? parent
  return {paused: isPausedNow, created: known === null, changed, anchorAt, nextAt, refusal}
}

/** Change to record of a submit; `null` = nothing. `revision` `null`: the definition is unchanged. */
function changeOf(
  made: {
    readonly known: JobRecord | null
    readonly id: number
    readonly name: string
    readonly revision: number | null
    readonly group: number | null
  },
  {actor, revertsTo}: SubmitRequest,
): Change | null {
  const {known, id, name, revision, group} = made
  const detail = group === null ? '' : `launch ${group}`
  const shared = {actor, targetType: 'job', target: name, detail} as const
  if (revision === null) return group === null ? null : {...shared, action: 'job.run'}
  if (known !== null && revertsTo !== undefined) {
    const to = `to revision ${revertsTo}`
    return {...shared, action: 'job.revert', detail: to, ...replacedBy(known, revision)}
  }
  if (known !== null) return {...shared, action: 'job.update', ...replacedBy(known, revision)}
  return {...shared, action: 'job.create', job: {id, before: null, after: revision}}
}

const ZERO_COUNTERS = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}

/** Capability that the caller lacks; `null` = none. */
export function checkPermission(
  may: StorePermission | undefined,
  existing: JobRecord | null,
): Extract<SubmitResult, {kind: 'not_allowed'}> | null {
  const capability = existing === null ? 'create' : 'update'
  return may === undefined || may[capability] ? null : {kind: 'not_allowed', capability}
}

/** A submit that names no owner: a new job gets the default, another keeps its owner. */
export function withOwner(spec: JobSpec, existing: JobRecord | null, fallback = ''): JobSpec {
  if (spec.owner !== '' || fallback === '') return spec
  return {...spec, owner: existing === null ? fallback : existing.spec.owner}
}

function checkPreconditions(
  request: SubmitRequest,
  existing: JobRecord | null,
): PreconditionFailed | null {
  const {ifMatch, createOnly, onlyJob} = request
  if (createOnly && existing !== null) return {kind: 'precondition', revision: existing.revision}
  const revision = existing?.revision ?? null
  if (onlyJob !== undefined && existing?.id !== onlyJob) return {kind: 'precondition', revision}
  return checkRevision(ifMatch, existing)
}

type ParentProblem = Extract<SubmitResult, {kind: 'parent_unknown' | 'cycle' | 'ephemeral_parent'}>

/** Problems of the parent or the dependents of each request; `null` = valid. */
function* parentProblems(
  requests: readonly SubmitRequest[],
): Query<readonly (ParentProblem | null)[]> {
  const [first] = requests
  if (first === undefined || isIndependent(first.spec)) return requests.map(() => null)
  assert(requests.length === 1, 'a definition that depends on others is stored alone')
  const {spec} = first
  const [dependents, ancestors] = yield* together(
    dependentsIfEphemeral(spec),
    all<Ancestor>(ANCESTORS, [spec.parentJob, spec.name]),
  )
  return [problemOf(spec, dependents, ancestors)]
}

function* dependentsIfEphemeral({name, ephemeral}: JobSpec): Query<string[]> {
  return ephemeral ? yield* dependentsOf(name) : []
}

interface Ancestor {
  readonly name: string
  readonly parent: string
  readonly ephemeral: number
}

/** More ancestors than any chain has: bounds the query if the rows contradict each other. */
const ANCESTORS_MAX = 10_000
/** The parent, its parent and so on, up to the job itself. */
const ANCESTORS = `WITH RECURSIVE chain AS (
  SELECT name, parent, ephemeral, 1 AS depth FROM jobs WHERE name = ? AND deleted_at IS NULL
  UNION ALL
  SELECT above.name, above.parent, above.ephemeral, chain.depth + 1
    FROM chain JOIN jobs above ON above.name = chain.parent AND above.deleted_at IS NULL
    WHERE chain.name <> ? AND chain.depth < ${ANCESTORS_MAX}
) SELECT name, parent, ephemeral FROM chain ORDER BY depth`

function problemOf(
  spec: JobSpec,
  dependents: readonly string[],
  ancestors: readonly Ancestor[],
): ParentProblem | null {
  const {name, parentJob} = spec
  if (dependents.length > 0)
    return {kind: 'ephemeral_parent', parent: name, dependents: [...dependents]}
  if (parentJob === '') return null
  if (parentJob === name) return {kind: 'cycle', path: [name, name]}
  const [parent] = ancestors
  if (parent === undefined) return {kind: 'parent_unknown', parent: parentJob}
  if (parent.ephemeral === 1)
    return {kind: 'ephemeral_parent', parent: parentJob, dependents: [name]}
  const last = ancestors.at(-1)!
  if (last.name === name)
    return {kind: 'cycle', path: [name, ...ancestors.map((each) => each.name)]}
  return last.parent === '' ? null : {kind: 'parent_unknown', parent: parentJob}
}
