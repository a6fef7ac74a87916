/**
 * A dry run of a submit: what it would do and what is wrong with it, with the rights of the submit. Nothing
 * is stored, so it also works while submissions are paused. The job may change before the submit.
 */
import {check, type Principal} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {FAULTS_MAX, type Finding, rootOf} from '../core/findings.ts'
import type {JobSpec} from '../core/job.ts'
import {decideStore, requireRun, requireStore, storeChecks} from '../core/access/job-permission.ts'
import {nextPlanned} from '../core/next-time.ts'
import {systemTags} from '../core/node.ts'
import {zoneOf} from '../core/schedule/parse.ts'
import {findZone} from '../core/schedule/zone.ts'
import {secretsOf} from '../core/secret.ts'
import {matchTargets} from '../core/target.ts'
import type {SubmitPreview} from '../ports/job-store.ts'
import type {OperationsContext} from './context.ts'
import {missingSecrets} from './secrets.ts'
import {
  actionOf,
  misnamedFaults,
  refusalOf,
  requireReadable,
  specToPermit,
  type SubmitAction,
  type SubmitCall,
} from './submit.ts'
import {openTagCheck, validateDefinition} from './validate.ts'

/** Planned times in one reply. */
const NEXT_SHOWN = 5
/** Names of nodes in one reply; `nodes_total` counts all. */
const NODES_SHOWN = 20
/** Preview of a definition that cannot be looked up, because its name is wrong. */
const UNCHECKED: Partial<SubmitPreview> = {}

export function createDryRun(context: OperationsContext) {
  const {store} = context

  /** Throws `payload_unparsable`, `not_allowed`, `precondition_failed`. */
  async function dryRun(call: SubmitCall): Promise<DryRun> {
    const {caller, pathName, runOnCreate, strict = false} = call
    if (call.definition.kind === 'content')
      return replyOf(context, {faults: [call.definition.finding]})
    const {decoded} = requireReadable(call.definition)
    const {name, spec} = decoded
    requireStore(caller, name, specToPermit(decoded))
    if (runOnCreate) requireRun(caller, name)
    const found = validateDefinition(context, decoded, strict)
    const warnings = [...found.warnings, ...found.ignored]
    if (spec === null) return replyOf(context, {faults: found.faults, warnings})
    const isNamed = !found.faults.some((fault) => rootOf(fault) === 'name')
    const faults = [...misnamedFaults(spec, pathName), ...found.faults]
    const preview = isNamed ? await previewOf(call, spec) : UNCHECKED
    faults.push(...refusedFaults(caller, spec, preview), ...(await secretFaults(caller, spec)))
    if (preview.paused === true)
      warnings.push({field: '', problem: 'submissions are paused, so it cannot be stored now'})
    const tagCheck = await openTagCheck(() => store.members())
    warnings.push(...tagCheck(spec.tags))
    return replyOf(context, {faults, warnings, spec, preview, ...(await nodesOf(caller, spec))})
  }

  /** Preview of a change. Only callers that may name the parent learn whether it exists. */
  async function previewOf(call: SubmitCall, spec: JobSpec): Promise<SubmitPreview> {
    const {caller, ifMatch, createOnly} = call
    const isAllowed = decideStore(caller, spec.name, spec).allowed
    const [create, update] = storeChecks(caller, spec.name, isAllowed ? spec : null)
    return store.previewSubmit({
      spec: isAllowed ? spec : {...spec, parentJob: ''},
      may: {create: create.allowed, update: update.allowed},
      ifMatch,
      createOnly,
      runOnCreate: false,
      idempotency: null,
      defaultOwner: caller.name,
    })
  }

  /** Which secrets exist is for callers that may use them. */
  async function secretFaults(caller: Principal, spec: JobSpec): Promise<readonly Finding[]> {
    const names = secretsOf(spec)
    if (names.length === 0 || !decideStore(caller, spec.name, spec).allowed) return []
    return missingSecrets(names, await store.secrets())
  }

  /** Alive nodes that match and are not cordoned. Callers that may not list members get only their number. */
  async function nodesOf(caller: Principal, {tags}: JobSpec): Promise<MatchingNodes> {
    const alive = (await store.members()).filter(
      ({status, runs, cordonedAt}) => status === 'alive' && runs && cordonedAt === null,
    )
    const nodes = alive.map((member) => {
      return {name: member.name, tags: {...systemTags(member), ...member.tags}}
    })
    const {nodes: matching, count} = matchTargets(tags, nodes, 'all')
    const names = matching.map((node) => node.name)
    const isShown = check(caller, 'list', '/v1/members').allowed
    const shown = isShown ? names.toSorted().slice(0, NODES_SHOWN) : []
    const isPart = count !== null && count < names.length
    return {nodes: shown, nodesTotal: names.length, ...(isPart ? {nodesRun: count} : {})}
  }

  return {dryRun}
}

/** Effect that a submit would have. */
export interface DryRun extends MatchingNodes {
  /** `null` = nothing: the definition is not valid. */
  readonly action: SubmitAction | null
  readonly faults: readonly Finding[]
  readonly warnings: readonly Finding[]
  /** Zone of the schedule; `null` = the schedule or its zone is not valid. */
  readonly timezone: string | null
  /** Next planned times. */
  readonly next: readonly number[]
}

interface MatchingNodes {
  /** Names, up to a limit; only for callers that may list members. */
  readonly nodes: readonly string[]
  readonly nodesTotal: number
  /** How many of them a launch runs on, by the count in a tag; absent = not fewer. */
  readonly nodesRun?: number
}

interface Checked extends Partial<MatchingNodes> {
  readonly faults: readonly Finding[]
  readonly warnings?: readonly Finding[]
  readonly spec?: JobSpec
  readonly preview?: Partial<SubmitPreview>
}

/** Throws what is no fault of the definition. */
function faultsOf(error: unknown): readonly Finding[] {
  const isFault =
    error instanceof DomainError && ['job_invalid', 'parent_unknown'].includes(error.code)
  if (!isFault) throw error
  return error.members['errors'] as readonly Finding[]
}

function refusedFaults(
  caller: Principal,
  spec: JobSpec,
  {refusal = null}: Partial<SubmitPreview>,
): readonly Finding[] {
  return refusal === null ? [] : faultsOf(refusalOf(caller, spec, refusal))
}

function replyOf(
  context: OperationsContext,
  {faults, warnings = [], spec, preview = {}, nodes = [], nodesTotal = 0, nodesRun}: Checked,
): DryRun {
  const {created = false, changed = false} = preview
  const isPlanned = !faults.some((fault) => ['schedule', 'timezone'].includes(rootOf(fault)))
  const plan = spec !== undefined && isPlanned ? planOf(context, spec, preview) : NO_PLAN
  return {
    action: faults.length === 0 ? actionOf({created, changed}) : null,
    faults: faults.slice(0, FAULTS_MAX),
    warnings,
    ...plan,
    nodes,
    nodesTotal,
    ...(nodesRun === undefined ? {} : {nodesRun}),
  }
}

const NO_PLAN = {timezone: null, next: []}

function planOf(
  {clock, settings}: OperationsContext,
  spec: JobSpec,
  preview: Partial<SubmitPreview>,
): Pick<DryRun, 'timezone' | 'next'> {
  const fallback = settings.defaultTimezone()
  const timezone = zoneOf(spec.schedule, spec.timezone === '' ? fallback : spec.timezone)
  if (findZone(timezone) === null) return NO_PLAN
  const {anchorAt = spec.startsAt ?? clock.now()} = preview
  const following = (after: number) => nextPlanned(spec, anchorAt, after, fallback)
  const next: number[] = []
  let at = preview.nextAt === undefined ? following(clock.now()) : preview.nextAt
  for (; at !== null && next.length < NEXT_SHOWN; at = following(at)) next.push(at)
  return {timezone, next}
}
