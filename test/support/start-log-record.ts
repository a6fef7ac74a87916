/**
 * The start log of one node in memory: survives a simulated `kill -9`, complete unless a test says that the
 * disk lost it.
 */
import {executionId, type ExecutionKey} from '../../src/core/execution.ts'
import type {StartRecorder} from '../../src/node/execution-run.ts'
import type {PreviousIncarnation} from '../../src/ports/node-store.ts'

export class BegunRecord {
  readonly #lives = new Map<string, Set<string>>()

  get earlier(): PreviousIncarnation[] {
    return [...this.#lives].map(([incarnation, begun]) => ({incarnation, upTo: 0, begun}))
  }

  /** Simulates a new disk or a reboot. */
  lose(): void {
    this.#lives.clear()
  }

  /** Start log of one incarnation; `isDead` = it starts nothing any more. */
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
