/**
 * The rescue step. A starting node ends what its earlier life claimed; the leader ends what the nodes claimed
 * that it judged dead. Ended means `lost` by the same rule as every finish, so retries follow.
 *
 * Crash points: every batch is one transaction; what a crash leaves running in the store is found by
 * the next look.
 */
import type {Events} from '../ports/events.ts'
import type {Random} from '../ports/random.ts'
import type {LeaderStore} from '../ports/leader-store.ts'
import type {Wakeup} from '../ports/wakeup.ts'
import {announceFinished} from './finisher.ts'

/** Executions ended in one transaction. */
const BATCH_MAX = 256

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
    readonly judged: {readonly incarnation: string; readonly heartbeatAt: number} | null
    readonly reason: 'node_lost' | 'node_restarted' | 'node_stopped'
  },
): Promise<number> {
  let count = 0
  for (;;) {
    const dice = deps.random.dice()
    const {finished, more} = await deps.store.rescue({...request, limit: BATCH_MAX, dice})
    announceFinished(finished, deps)
    count += finished.length
    if (!more) return count
  }
}
