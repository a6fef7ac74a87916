/**
 * What this node has in hand: executions it claimed and has not finished, and the claim that is under way.
 * Every heartbeat tells the server, which compares it with the store. Kept by the remote store, which sees
 * every claim and every finish; the flow knows nothing of it.
 */
import {executionId, type ExecutionKey} from '../../core/execution.ts'
import type {ClaimedExecution} from '../../ports/node-store.ts'

export interface HeldExecution {
  readonly key: ExecutionKey
  readonly token: string
  readonly job: string
}

export class HeldExecutions {
  readonly #held = new Map<string, HeldExecution>()
  /** Token of the claim whose answer has not come yet: what it took is not lost. */
  claiming: string | null = null
  /** What the store last called the newest claim of this node; `null` before its first answer. */
  newest: string | null = null

  /** A claim was answered. */
  add(claimed: readonly ClaimedExecution[]): void {
    for (const {execution, token} of claimed) {
      const {group, node, attempt, jobName: job} = execution
      this.#held.set(executionId(execution), {key: {group, node, attempt}, token, job})
    }
  }

  /** Finished, or not ours after all. */
  remove(key: ExecutionKey): void {
    this.#held.delete(executionId(key))
  }

  get(key: ExecutionKey): HeldExecution | null {
    return this.#held.get(executionId(key)) ?? null
  }

  get size(): number {
    return this.#held.size
  }

  /** As a heartbeat carries it. */
  inHand() {
    const held = [...this.#held.values()].map(({key, token}) => ({key, token}))
    return {held, claiming: this.claiming}
  }
}
