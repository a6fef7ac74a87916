/**
 * The event bus of one process. Listeners are called at once and in the order they came; none may throw. One
 * that does is a broken invariant, yet must not tear the step it merely watches: its error ends the process
 * from a turn of its own.
 */
import type {Clock} from '../ports/runtime.ts'
import type {BelfryEvent, Events} from '../ports/events.ts'

export function localEvents(clock: Clock): Events {
  const listeners = new Set<(event: BelfryEvent) => void>()
  return {
    emit: (name, data) => {
      if (listeners.size === 0) return
      const event = {name, at: clock.now(), data} as BelfryEvent
      for (const heard of listeners) tell(heard, event)
    },
    listen: (heard) => {
      const listener = (event: BelfryEvent) => heard(event)
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
  }
}

function tell(heard: (event: BelfryEvent) => void, event: BelfryEvent): void {
  try {
    heard(event)
  } catch (error) {
    setImmediate(() => {
      throw error
    })
  }
}
