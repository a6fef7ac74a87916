/**
 * What the lives of one node had begun, as its disk would keep it over a `kill -9`: in memory, and whole
 * unless a test says that the disk lost it.
 */
import {executionId, type ExecutionKey} from '../../src/core/execution.ts'
import type {StartRecorder} from '../../src/node/execution-run.ts'
import type {PreviousIncarnation} from '../../src/ports/node-store.ts'

export class BegunRecord {
  readonly #lives = new Map<string, Set<string>>()

  get earlier(): PreviousIncarnation[] {
    return [...this.#lives].map(([incarnation, begun]) => ({incarnation, upTo: 0, begun}))
  }

  /** The disk is new, or the machine was started again. */
  lose(): void {
    this.#lives.clear()
  }

  /** The record of a life; `isDead` = it begins nothing any more. */
  life(incarnation: string, isDead: () => boolean): StartRecorder {
    this.#lives.clear()
    const begun = new Set<string>()
    this.#lives.set(incarnation, begun)
    return {
      begin: async (execution: ExecutionKey) => {
        if (isDead()) return await new Promise<never>(() => {})
        begun.add(executionId(execution))
      },
      ended: () => {},
    }
  }
}
