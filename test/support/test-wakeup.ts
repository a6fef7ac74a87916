/** Wakeup for tests: notifies asynchronously and coalesced, as the real one does, and can drop everything. */
import type {Topic, Wakeup} from '../../src/ports/runtime.ts'

export class TestWakeup implements Wakeup {
  readonly notified: Topic[] = []
  /** True: drops every notification, so that only polling finds work. */
  dropsAll = false
  readonly #listeners: Record<Topic, Set<() => void>> = {
    launch: new Set(),
    run: new Set(),
    cancel: new Set(),
    lead: new Set(),
    burst: new Set(),
    access: new Set(),
    notices: new Set(),
  }
  readonly #queued = new Set<Topic>()

  notify(topic: Topic): void {
    this.notified.push(topic)
    if (this.dropsAll || this.#queued.has(topic)) return
    this.#queued.add(topic)
    queueMicrotask(() => {
      this.#queued.delete(topic)
      for (const onNotify of this.#listeners[topic]) onNotify()
    })
  }

  subscribe(topic: Topic, onNotify: () => void): () => void {
    const listener = () => onNotify()
    this.#listeners[topic].add(listener)
    return () => void this.#listeners[topic].delete(listener)
  }

  /** 0 after everything was stopped. */
  get subscriberCount(): number {
    return Object.values(this.#listeners).reduce((sum, listeners) => sum + listeners.size, 0)
  }
}
