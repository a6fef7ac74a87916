/**
 * Whether one launch of a job may go ahead: overlap (`forbid`) and a node to run on. The same question
 * for planned times and for requests; what to do with the answer is decided where each is decided.
 */
import type {JobSpec} from './job.ts'
import type {Target} from './launch-record.ts'
import type {Candidate} from './node.ts'
import {selectTargets, type DefaultTarget} from './target.ts'

/** What every decision of one pass shares. */
export interface PassContext {
  /** The store's clock. */
  readonly now: number
  readonly defaultZone: string
  readonly defaultTarget: DefaultTarget
  /** Decided within this of its planned time, a launch is late but not missed. */
  readonly lateAfterMs: number
  /** How long a launch waits for a node whose tags match. */
  readonly targetWaitMs: number
  /** How many missed times `catch_up: all` runs. */
  readonly catchUpMax: number
  readonly candidates: readonly Candidate[]
  /** Load by node id, moved on by every choice of the pass. */
  readonly loads: Map<string, number>
  /** Launches opened earlier in this pass, by job name: what `forbid` must see besides the store's answer. */
  readonly opened: Map<string, string>
  readonly dice: () => number
}

export type Admission =
  | {readonly kind: 'go'; readonly targets: readonly Target[]}
  /** Overlap: `by` says which launch is in the way. */
  | {readonly kind: 'overlap'; readonly by: string}
  | {readonly kind: 'no_node'}

/** Asks for one launch. On `go` the pass's loads and opened launches are moved on. */
export function admit(
  spec: JobSpec,
  openGroup: number | null,
  forced: boolean,
  label: string,
  context: PassContext,
): Admission {
  const forbids = spec.concurrency === 'forbid'
  if (forbids && !forced) {
    const by = openGroup === null ? context.opened.get(spec.name) : `launch ${openGroup}`
    if (by !== undefined) return {kind: 'overlap', by}
  }
  const chosen = selectTargets(
    spec.tags,
    context.candidates,
    context.defaultTarget,
    context.loads,
    context.dice,
  )
  if (chosen.length === 0) return {kind: 'no_node'}
  if (forbids) context.opened.set(spec.name, label)
  return {kind: 'go', targets: chosen.map(({id, name}) => ({nodeId: id, nodeName: name}))}
}
