/** A store between whom and its caller something can go wrong, method by method, as a script says. */
import type {Store} from '../../src/ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'

export type StoreMethod = {
  [Name in keyof Store]: Store[Name] extends (...input: never[]) => Promise<unknown> ? Name : never
}[keyof Store]

export type StoreFault =
  | 'none'
  /** Refused before anything happened. */
  | 'unavailable'
  /** Carried out, and then nobody says so. */
  | 'answer_lost'
  /** The caller is dead: nothing happens and nothing is ever answered. */
  | 'dead'

export interface FaultScript {
  /** Asked before every call. */
  fault(method: StoreMethod): StoreFault
  /** Waited for before a call is carried out, and once more before it is answered. */
  delay?(method: StoreMethod): Promise<void>
  /** Told before every call, whatever becomes of it. */
  called?(method: StoreMethod, input: readonly unknown[]): void
}

export function faultyStore(store: Store, script: FaultScript): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const method = name as StoreMethod
      const plain = target[method] as (...input: unknown[]) => Promise<unknown>
      if (typeof plain !== 'function') return plain
      return async (...input: unknown[]) => {
        script.called?.(method, input)
        const fault = script.fault(method)
        if (fault === 'dead') return new Promise(() => {})
        if (fault === 'unavailable') throw new StoreUnavailable(`${method}: the store is away`)
        await script.delay?.(method)
        if (script.fault(method) === 'dead') return new Promise(() => {})
        const answer = await plain.apply(target, input)
        await script.delay?.(method)
        if (fault === 'answer_lost') throw new OutcomeUnknown(`${method}: the answer was lost`)
        if (script.fault(method) === 'dead') return new Promise(() => {})
        return answer
      }
    },
  })
}
