/**
 * A node that died is back: its half of the rescue step. What its earlier lives had claimed and provably
 * never started is pending again, as if nobody had claimed it; all else of them is lost.
 *
 * Crash points: every batch is one transaction; what a crash leaves running in the store the next life finds,
 * with the same proof.
 */
import {executionId} from '../core/execution.ts'
import type {Events} from '../ports/events.ts'
import type {LeaderStore} from '../ports/leader-store.ts'
import type {PreviousIncarnation, MemberStore} from '../ports/node-store.ts'
import type {Random, Wakeup} from '../ports/runtime.ts'
import {announceFinished} from './finisher.ts'

/** Executions given back in one transaction. */
const BATCH_MAX = 256

export interface ReturnDeps {
  readonly store: Pick<LeaderStore, 'rescue'> & Pick<MemberStore, 'activeClaims' | 'releaseClaims'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
}

/** To be called after the node has joined again. Answers how many executions were given back. */
export async function returnNode(
  deps: ReturnDeps,
  node: {readonly nodeId: string; readonly incarnation: string},
  earlier: readonly PreviousIncarnation[],
): Promise<number> {
  const {nodeId, incarnation} = node
  let count = 0
  for (const life of earlier)
    if (life.incarnation !== incarnation) count += await releaseUnstarted(deps, nodeId, life)
  await rescueNode(deps, {
    term: null,
    nodeId,
    exceptIncarnation: incarnation,
    observed: null,
    reason: 'node_restarted',
  })
  return count
}

async function releaseUnstarted(
  {store, events, wakeup}: ReturnDeps,
  nodeId: string,
  {incarnation, upTo, begun}: PreviousIncarnation,
): Promise<number> {
  // An earlier life claims nothing any more: what stands now can only become less.
  const standing = await store.activeClaims({nodeId, incarnation})
  const unstarted = standing.filter(({key}) => key.group > upTo && !begun.has(executionId(key)))
  let count = 0
  for (let from = 0; from < unstarted.length; from += BATCH_MAX) {
    const batch = unstarted.slice(from, from + BATCH_MAX)
    const given = await store.releaseClaims(batch.map(({key, token}) => ({key, token})))
    count += given.length
    for (const execution of given) {
      const {jobName: job, status} = execution
      events.emit('execution_changed', {job, execution: executionId(execution), status})
    }
  }
  // Also when nothing was: it may have been, by a try whose answer was lost.
  if (unstarted.length > 0) wakeup.notify('run')
  return count
}

/*
 * The rescue step. A starting node ends what its earlier life claimed; the leader ends what the nodes claimed
 * that it judged dead. Ended means `lost` by the same rule as every finish, so retries follow.
 *
 * Crash points: every batch is one transaction; what a crash leaves running in the store is found by
 * the next look.
 */

export interface RescueDeps {
  readonly store: Pick<LeaderStore, 'rescue'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
}

/** Ends everything a node's other lives still hold in the store; answers how many executions that were. */
export async function rescueNode(
  deps: RescueDeps,
  request: {
    readonly term: number | null
    readonly nodeId: string
    readonly exceptIncarnation: string | null
    readonly observed: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
  },
): Promise<number> {
  let count = 0
  for (;;) {
    const jitter = deps.random.fraction()
    const {finished, more} = await deps.store.rescue({...request, limit: BATCH_MAX, jitter})
    announceFinished(finished, deps)
    count += finished.length
    if (!more) return count
  }
}
