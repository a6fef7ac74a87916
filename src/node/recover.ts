/**
 * Recovery of executions whose process is gone. A node that restarted releases the claims its previous
 * incarnations provably never started: those executions are pending again. Everything else they held ends as
 * `lost`, by the rule of every finish, so retries follow. The leader ends the executions of failed nodes in
 * the same way.
 *
 * Crash points: every batch is one transaction. A crash leaves the rest running in the store: the node's next
 * incarnation finds it, with the same proof, or the leader in its next pass.
 */
import {executionId, lostLine} from '../core/execution.ts'
import type {Events} from '../ports/events.ts'
import type {LeaderStore} from '../ports/leader-store.ts'
import type {FinishOutcome} from '../core/end-requests.ts'
import type {
  ActiveClaim,
  MemberStore,
  NodeStore,
  PreviousIncarnation,
  ReleasedExecution,
} from '../ports/node-store.ts'
import type {Random, Wakeup} from '../ports/runtime.ts'
import {announceFinished} from './finisher.ts'

/** Executions released or ended in one transaction. */
export const BATCH_MAX = 256

export interface MarkLostDeps {
  readonly store: Pick<LeaderStore, 'markLost'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
}

export interface RecoverDeps extends MarkLostDeps {
  readonly store: MarkLostDeps['store'] & Pick<MemberStore, 'activeClaims' | 'releaseClaims'>
}

/**
 * Call after the node has joined again: until then a previous incarnation may still claim. Returns how many
 * executions were released.
 */
export async function recoverNode(
  deps: RecoverDeps,
  node: {readonly nodeId: string; readonly incarnation: string},
  previous: readonly PreviousIncarnation[],
): Promise<number> {
  const {nodeId, incarnation} = node
  let releasedCount = 0
  for (const each of previous)
    if (each.incarnation !== incarnation) releasedCount += await releaseUnstarted(deps, node, each)
  await markNodeLost(deps, {
    term: null,
    nodeId,
    exceptIncarnation: incarnation,
    observed: null,
    reason: 'node_restarted',
  })
  return releasedCount
}

async function releaseUnstarted(
  {store, events, wakeup}: RecoverDeps,
  node: {readonly nodeId: string; readonly incarnation: string},
  {incarnation, upTo, started}: PreviousIncarnation,
): Promise<number> {
  // A previous incarnation claims nothing new: its active claims can only become fewer.
  const {nodeId, incarnation: asker} = node
  const claims = await store.activeClaims({nodeId, incarnation, asker})
  const unstarted = claims.filter(({key}) => key.group > upTo && !started.has(executionId(key)))
  let count = 0
  for (let from = 0; from < unstarted.length; from += BATCH_MAX) {
    const batch = unstarted.slice(from, from + BATCH_MAX)
    const released = await releaseClaims({store, events}, batch)
    count += released.length
  }
  // Notifies even if none was released now: an earlier attempt may have released them and lost the reply.
  if (unstarted.length > 0) wakeup.notify('run')
  return count
}

/** Releases claims of executions that were never started, and emits the events. Returns the released ones. */
export async function releaseClaims(
  {store, events}: {readonly store: Pick<MemberStore, 'releaseClaims'>; readonly events: Events},
  claims: Parameters<MemberStore['releaseClaims']>[0],
): Promise<readonly ReleasedExecution[]> {
  const released = await store.releaseClaims(claims.map(({key, token}) => ({key, token})))
  for (const {execution} of released) {
    const {jobName: job, status} = execution
    events.emit('execution_changed', {job, execution: executionId(execution), status})
  }
  return released
}

/** Ends claims that their node does not hold as `lost`. A claim that has ended meanwhile stays as it is. */
export function finishUnheld(
  {store, random}: Pick<RecoverDeps, 'random'> & {readonly store: Pick<NodeStore, 'finish'>},
  claims: readonly ActiveClaim[],
): Promise<readonly FinishOutcome[]> {
  const reason = 'not_held'
  return store.finish(
    claims.map(({key, token, ageMs}) => ({
      key,
      token,
      status: 'lost',
      durationMs: ageMs,
      startedAfterMs: 0,
      exitCode: null,
      reason,
      outputHead: '',
      outputFoot: lostLine(reason),
      output: {offset: 0, bytes: new Uint8Array(), totalBytes: 0},
      dropOutput: false,
      jitter: random.fraction(),
    })),
  )
}

/** Ends all executions a node holds as `lost`, but for those of `exceptIncarnation`. Returns their number. */
export async function markNodeLost(
  deps: MarkLostDeps,
  request: {
    /** `null` = the node itself asks; a leader gives its term. */
    readonly term: number | null
    readonly nodeId: string
    readonly exceptIncarnation: string | null
    /** Ends nothing if the node has sent a heartbeat since; `null` = not compared. */
    readonly observed: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
  },
): Promise<number> {
  let count = 0
  for (;;) {
    const jitter = deps.random.fraction()
    const {finished, more} = await deps.store.markLost({...request, limit: BATCH_MAX, jitter})
    announceFinished(finished, deps)
    count += finished.length
    if (!more) return count
  }
}
