/** The event bus of one process: what emits and receives the events of `core/events.ts`. */
import type {BelfryEvent, EventName, EventPayloads} from '../core/events.ts'

export interface Events {
  emit<Name extends EventName>(name: Name, data: EventPayloads[Name]): void
  /** Calls `listener` synchronously for every event; it must not throw. Returns the unsubscribe function. */
  listen(listener: (event: BelfryEvent) => void): () => void
}
