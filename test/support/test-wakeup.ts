/**
 * Doorbells for tests: heard after the work under way, coalesced as the real ones are, and they can
 * be cut off.
 */
import type {Topic, Wakeup} from '../../src/ports/runtime.ts'

export class TestWakeup implements Wakeup {
  readonly rung: Topic[] = []
  /** With `true` nobody hears anything: the polls alone must do. */
  dropsAll = false
  readonly #listeners: Record<Topic, Set<() => void>> = {
    launch: new Set(),
    run: new Set(),
    cancel: new Set(),
    lead: new Set(),
  }
  readonly #queued = new Set<Topic>()

  notify(bell: Topic): void {
    this.rung.push(bell)
    if (this.dropsAll || this.#queued.has(bell)) return
    this.#queued.add(bell)
    queueMicrotask(() => {
      this.#queued.delete(bell)
      for (const heard of this.#listeners[bell]) heard()
    })
  }

  subscribe(bell: Topic, heard: () => void): () => void {
    const listener = () => heard()
    this.#listeners[bell].add(listener)
    return () => void this.#listeners[bell].delete(listener)
  }

  /** Listeners still there; 0 after everything was stopped. */
  get listening(): number {
    return Object.values(this.#listeners).reduce((sum, listeners) => sum + listeners.size, 0)
  }
}
