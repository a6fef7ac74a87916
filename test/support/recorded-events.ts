/** Events port that records every event in order. */
import type {BelfryEvent, EventName, EventPayloads} from '../../src/core/events.ts'
import type {Events} from '../../src/ports/events.ts'

export class RecordedEvents implements Events {
  readonly all: {readonly name: EventName; readonly data: EventPayloads[EventName]}[] = []
  readonly #listeners = new Set<(event: BelfryEvent) => void>()

  emit<Name extends EventName>(name: Name, data: EventPayloads[Name]): void {
    this.all.push({name, data})
    for (const onEvent of this.#listeners) onEvent({name, at: 0, data} as BelfryEvent)
  }

  listen(onEvent: (event: BelfryEvent) => void): () => void {
    const listener = (event: BelfryEvent) => onEvent(event)
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Payloads of one event, oldest first. */
  of<Name extends EventName>(name: Name): EventPayloads[Name][] {
    return this.all
      .filter((event) => event.name === name)
      .map(({data}) => data as EventPayloads[Name])
  }
}
