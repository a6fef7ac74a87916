/** An Events port that remembers everything, so that a test can ask what happened and in which order. */
import type {BelfryEvent, EventName, EventPayloads, Events} from '../../src/ports/events.ts'

export class RecordedEvents implements Events {
  readonly all: {readonly name: EventName; readonly data: EventPayloads[EventName]}[] = []
  readonly #listeners = new Set<(event: BelfryEvent) => void>()

  emit<Name extends EventName>(name: Name, data: EventPayloads[Name]): void {
    this.all.push({name, data})
    for (const heard of this.#listeners) heard({name, at: 0, data} as BelfryEvent)
  }

  listen(heard: (event: BelfryEvent) => void): () => void {
    const listener = (event: BelfryEvent) => heard(event)
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
