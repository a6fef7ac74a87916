/**
 * Notifications within one process. A subscriber is called after the current turn of the event loop, never
 * from inside a commit. Notifications until then are one: a batch of a thousand finishes notifies once.
 */
import type {Topic, Wakeup} from '../ports/runtime.ts'

export function localWakeup(): Wakeup {
  const subscribers: Record<Topic, Set<() => void>> = {
    launch: new Set(),
    run: new Set(),
    cancel: new Set(),
    lead: new Set(),
    burst: new Set(),
    access: new Set(),
    notices: new Set(),
  }
  const queued = new Set<Topic>()
  return {
    notify: (topic) => {
      if (queued.has(topic)) return
      queued.add(topic)
      setImmediate(() => {
        queued.delete(topic)
        for (const notified of subscribers[topic]) notified()
      })
    },
    subscribe: (topic, notified) => {
      // Wrapped: one function subscribed twice is two subscribers, and each unsubscribes on its own.
      const subscriber = () => notified()
      subscribers[topic].add(subscriber)
      return () => void subscribers[topic].delete(subscriber)
    },
  }
}
