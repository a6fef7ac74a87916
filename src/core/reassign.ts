/**
 * Reassignment of pending executions that their node does not claim: move to another node, keep waiting, or
 * end as lost.
 */
import type {ExecutionRecord} from './execution.ts'
import {type JobRecord, maxLatenessMs} from './job.ts'
import type {LaunchCause, Target} from './launch-record.ts'
import type {Candidate, MemberRecord} from './node.ts'
import {matchTargets, selectTargets, type DefaultTarget} from './target.ts'

/** A pending execution that its node has not claimed, or whose node is gone or cordoned. */
export interface StuckExecution {
  readonly execution: ExecutionRecord
  readonly nodeId: string
  /** Node of the execution; `null` = removed. */
  readonly member: Pick<MemberRecord, 'status' | 'runs' | 'heartbeatAt' | 'cordonedAt'> | null
  readonly job: JobRecord
  readonly cause: LaunchCause
  readonly scheduledAt: number
  /** Names of nodes the launch already uses. */
  readonly usedNodes: readonly string[]
}

/** Shared by all decisions of one pass. */
export interface ReassignContext {
  /** The store's clock. */
  readonly now: number
  /** Time since which the leader checks for the node's return, by the store's clock. */
  readonly lookedSince: number
  readonly defaultTarget: DefaultTarget
  /** How long an execution waits for a node that is gone or cordoned. */
  readonly targetWaitMs: number
  /** Nodes that may get work: not the cordoned ones. */
  readonly candidates: readonly Candidate[]
  /** Load by node id, updated by every selection of the pass. */
  readonly loads: Map<string, number>
  readonly random: () => number
}

export type ReassignDecision =
  | {readonly kind: 'move'; readonly to: Target}
  /** Ends `lost`: no node can run it. */
  | {readonly kind: 'end'}
  | {readonly kind: 'stay'}

export function decideReassignment(
  stuck: StuckExecution,
  context: ReassignContext,
): ReassignDecision {
  const to = otherNode(stuck, context)
  if (to !== null) return {kind: 'move', to}
  return {kind: isTimedOut(stuck, context) ? 'end' : 'stay'}
}

/**
 * A matching alive node that the launch does not use yet; `null` = none. It needs a free slot, unless the
 * execution's own node is gone or cordoned: then the execution waits in the other node's queue. A new
 * identity with the name of the old node also takes its place in the launch.
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
 * True when the wait for a node that is gone is over. It lasts `targetWaitMs` from the node's last heartbeat;
 * for a planned time it ends at the job's `max_lateness`. For a removed node it is over at once if other
 * nodes match; if none matches, another node with its tags may still join. A leaving node still works: its
 * wait begins when it has left. The wait for a cordoned node begins when it was cordoned.
 */
function isTimedOut(
  {execution, nodeId, member, job, cause, scheduledAt}: StuckExecution,
  {now, lookedSince, targetWaitMs, candidates, defaultTarget}: ReassignContext,
): boolean {
  if (candidates.some(({id}) => id === nodeId)) return false
  const {nodes} = matchTargets(job.spec.tags, candidates, defaultTarget)
  if (member === null && nodes.length > 0) return true
  if (member?.status === 'leaving') return false
  // A server restarted with --no-run sends heartbeats, but claims nothing.
  const heartbeatAt = member?.cordonedAt ?? (member?.runs === true ? member.heartbeatAt : 0)
  if (now - Math.max(execution.notBefore, heartbeatAt, lookedSince) >= targetWaitMs) return true
  if (cause !== 'schedule' || execution.attempt > 1) return false
  return now - scheduledAt > maxLatenessMs(job.spec)
}
