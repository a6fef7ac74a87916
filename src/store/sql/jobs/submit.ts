/**
 * Stores submitted definitions, of several requests with a fixed number of statements. Every check runs in
 * the transaction that relies on it; `core/submit.ts` and `core/parents.ts` decide.
 */
import type {Change} from '../../../core/audit.ts'
import type {JobSpec} from '../../../core/job.ts'
import {planDefinition} from '../../../core/next-time.ts'
import {isIndependent, parentProblem, type ParentProblem} from '../../../core/parents.ts'
import {refuseSubmit, submitChange, withOwner} from '../../../core/submit.ts'
import {assert} from '../../../lib/assert.ts'
import type {SubmitPreview, SubmitRequest, SubmitResult} from '../../../ports/job-store.ts'
import {recordChanges} from '../access/audit.ts'
import {findReplies, keyOf, storeReplies} from './idempotency.ts'
import {
  applyChanges,
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
import {noticeScopes} from '../notices/scopes.ts'
import {all, type Query, sendEach, together, type Transaction} from '../query.ts'
import {INSERT_LAUNCH, launchValues} from '../rows.ts'
import {isPaused, zoning} from '../cluster/settings.ts'

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
  const [existing, first, earlier, paused, {zone, changes}, scopes, refusals, ids, groups] =
    yield* together(
      lockJobs(tx, names),
      firstRevisions(names),
      findReplies<SubmitResult>(
        tx,
        requests.map(({idempotency}) => idempotency),
      ),
      isPaused(),
      zoning(),
      noticeScopes(),
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
      refuseSubmit(request, known, refusals[index] ?? null)
    results.push(refusal)
    if (refusal !== null) continue
    const spec = withOwner(request.spec, known, request.defaultOwner)
    const planned = planDefinition(known, spec, tx.now, zone, true, changes)
    const change = known === null ? {...planned, revision: first.get(spec.name)!} : planned
    const id = known?.id ?? ids[index]!
    const {actor} = request
    if (known === null) fresh.push({...change, ...NEVER_RAN, id, spec, actor})
    else redefined.push({existing: known, spec, change, actor})
    const group = request.runOnCreate ? groups[running.indexOf(request)]! : null
    const {changed, revision} = change
    const recorded = submitChange(request, known, {id, revision: changed ? revision : null, group})
    stored.push({index, id, created: known === null, changed, group, change: recorded})
  }
  yield* applyChanges(tx, redefined, scopes)
  yield* insertJobs(
    tx,
    fresh,
    fresh.map(({id}) => id),
    scopes,
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
  const refusal = refuseSubmit(request, known, parent)
  return {paused: isPausedNow, created: known === null, changed, anchorAt, nextAt, refusal}
}

const NEVER_RAN = {
  counters: {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null},
  status: '',
} as const

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
    all<AncestorRow>(ANCESTORS, [spec.parentJob, spec.name]),
  )
  const chain = ancestors.map((row) => ({...row, ephemeral: row.ephemeral === 1}))
  return [parentProblem(spec, dependents, chain)]
}

function* dependentsIfEphemeral({name, ephemeral}: JobSpec): Query<string[]> {
  return ephemeral ? yield* dependentsOf(name) : []
}

interface AncestorRow {
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
