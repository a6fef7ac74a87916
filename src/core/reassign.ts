/**
 * What becomes of a pending execution that its node does not take: another node has it, or it waits on, or
 * nobody is waited for any longer.
 */
import {assert} from '../lib/assert.ts'
import {parseDuration} from '../lib/duration.ts'
import type {ExecutionRecord} from './execution.ts'
import type {JobRecord} from './job.ts'
import type {LaunchCause, Target} from './launch-record.ts'
import type {Candidate, MemberRecord} from './node.ts'
import {matchTargets, selectTargets, type DefaultTarget} from './target.ts'

/** A pending execution that its node has not claimed, or whose node is not there any more. */
export interface StuckExecution {
  readonly execution: ExecutionRecord
  readonly nodeId: string
  /** Its node; `null` = it was removed. */
  readonly member: Pick<MemberRecord, 'status' | 'runs' | 'heartbeatAt'> | null
  readonly job: JobRecord
  readonly cause: LaunchCause
  readonly scheduledAt: number
  /** Names of nodes the launch already uses. */
  readonly usedNodes: readonly string[]
}

/** What every decision of one look shares. */
export interface ReassignContext {
  /** The store's clock. */
  readonly now: number
  /** Since when somebody looks whether the node is back, by the store's clock. */
  readonly lookedSince: number
  readonly defaultTarget: DefaultTarget
  /** How long a node that is gone is waited for. */
  readonly targetWaitMs: number
  readonly candidates: readonly Candidate[]
  /** Load by node id, moved on by every choice of the look. */
  readonly loads: Map<string, number>
  readonly random: () => number
}

export type ReassignDecision =
  | {readonly kind: 'move'; readonly to: Target}
  /** It is lost, for want of a node. */
  | {readonly kind: 'end'}
  | {readonly kind: 'stay'}

export function decideReassignment(
  stray: StuckExecution,
  context: ReassignContext,
): ReassignDecision {
  const to = otherNode(stray, context)
  if (to !== null) return {kind: 'move', to}
  return {kind: isGivenUp(stray, context) ? 'end' : 'stay'}
}

/**
 * A matching alive node that the launch does not use yet; `null` = there is none. It must have room, unless
 * the execution's own node is gone: then it may as well wait in another queue. An identity that has taken
 * over the name of that node takes its place in the launch too.
 */
function otherNode(
  {job, nodeId, usedNodes, execution}: StuckExecution,
  {candidates, loads, defaultTarget, random}: ReassignContext,
): Target | null {
  const matching = matchTargets(job.spec.tags, candidates, defaultTarget).nodes
  const isGone = candidates.every(({id}) => id !== nodeId)
  const others = matching.filter((node) => {
    const isFull = !isGone && (loads.get(node.id) ?? node.load) >= node.slots
    const isUsed = usedNodes.includes(node.name) && node.name !== execution.node
    return node.id !== nodeId && !isUsed && !isFull
  })
  const [chosen] = selectTargets({}, others, 'one', loads, random)
  return chosen === undefined ? null : {nodeId: chosen.id, nodeName: chosen.name}
}

/**
 * A node that is gone is waited for as long as a launch waits for one that matches, since it was last heard
 * of; a planned time never past the job's `max_lateness`. One that was removed is not waited for where the
 * launch runs on every node that matches; where none matches, another with its tags may still come. One that
 * is leaving still works: its time begins when it has left.
 */
function isGivenUp(
  {execution, nodeId, member, job, cause, scheduledAt}: StuckExecution,
  {now, lookedSince, targetWaitMs, candidates, defaultTarget}: ReassignContext,
): boolean {
  if (candidates.some(({id}) => id === nodeId)) return false
  const {nodes} = matchTargets(job.spec.tags, candidates, defaultTarget)
  if (member === null && nodes.length > 0) return true
  if (member?.status === 'leaving') return false
  // A server that was started again with --no-run is heard of, and takes nothing.
  const heardAt = member?.runs === true ? member.heartbeatAt : 0
  if (now - Math.max(execution.notBefore, heardAt, lookedSince) >= targetWaitMs) return true
  if (cause !== 'schedule' || execution.attempt > 1) return false
  const maxLatenessMs = parseDuration(job.spec.maxLateness)
  assert(maxLatenessMs !== null, `stored max_lateness of ${job.spec.name} parses`)
  return now - scheduledAt > maxLatenessMs
}
