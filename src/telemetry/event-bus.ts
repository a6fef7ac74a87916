/**
 * The event bus of one process. Listeners are called synchronously, in the order of their subscriptions, and
 * must not throw. An error of a listener is a broken invariant, but it does not interrupt the emitter: it is
 * thrown from a later turn of the event loop and ends the process.
 */
import type {Clock} from '../ports/runtime.ts'
import type {BelfryEvent} from '../core/events.ts'
import type {Events} from '../ports/events.ts'

export function localEvents(clock: Clock): Events {
  const listeners = new Set<(event: BelfryEvent) => void>()
  return {
    emit: (name, data) => {
      if (listeners.size === 0) return
      const event = {name, at: clock.now(), data} as BelfryEvent
      for (const listener of listeners) notify(listener, event)
    },
    listen: (callback) => {
      // Wrapped, so that a callback can subscribe twice.
      const listener = (event: BelfryEvent) => callback(event)
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}

function notify(listener: (event: BelfryEvent) => void, event: BelfryEvent): void {
  try {
    listener(event)
  } catch (error) {
    setImmediate(() => {
      throw error
    })
  }
}
