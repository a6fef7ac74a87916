/**
 * The start log of one node in memory: survives a simulated `kill -9`, complete unless a test says that the
 * disk lost it.
 */
import {executionId, type ExecutionKey} from '../../src/core/execution.ts'
import type {StartRecorder} from '../../src/node/execution-run.ts'
import type {PreviousIncarnation} from '../../src/ports/node-store.ts'

export class StartLogRecord {
  readonly #incarnations = new Map<string, Set<string>>()

  get previous(): PreviousIncarnation[] {
    return [...this.#incarnations].map(([incarnation, started]) => ({
      incarnation,
      upTo: 0,
      started,
    }))
  }

  /** Simulates a new disk or a reboot. */
  lose(): void {
    this.#incarnations.clear()
  }

  /** Start log of one incarnation; `isDead` = it starts nothing any more. */
  open(incarnation: string, isDead: () => boolean): StartRecorder {
    this.#incarnations.clear()
    const started = new Set<string>()
    this.#incarnations.set(incarnation, started)
    return {
      begin: async (execution: ExecutionKey) => {
        if (isDead()) return await new Promise<never>(() => {})
        started.add(executionId(execution))
      },
      ended: () => {},
    }
  }
}
