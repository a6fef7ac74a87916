/**
 * Doorbells within one process. A ring is heard after the current turn of the event loop, so that nobody is
 * called from inside a commit, and rings that arrive before it was heard are one: a batch of a thousand
 * finishes rings once.
 */
import type {Topic, Wakeup} from '../ports/runtime.ts'

export function localWakeup(): Wakeup {
  const listeners: Record<Topic, Set<() => void>> = {
    launch: new Set(),
    run: new Set(),
    cancel: new Set(),
    lead: new Set(),
  }
  const queued = new Set<Topic>()
  return {
    notify: (bell) => {
      if (queued.has(bell)) return
      queued.add(bell)
      setImmediate(() => {
        queued.delete(bell)
        for (const heard of listeners[bell]) heard()
      })
    },
    subscribe: (bell, heard) => {
      // Wrapped, so that one function listening twice is two listeners and each stops on its own.
      const listener = () => heard()
      listeners[bell].add(listener)
      return () => void listeners[bell].delete(listener)
    },
  }
}
