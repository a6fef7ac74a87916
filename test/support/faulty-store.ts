/** Store proxy that injects faults and delays into each call, as a script decides. */
import type {Store} from '../../src/ports/store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'

export type StoreMethod = {
  [Name in keyof Store]: Store[Name] extends (...input: never[]) => Promise<unknown> ? Name : never
}[keyof Store]

export type StoreFault =
  | 'none'
  /** Rejected before the call was applied. */
  | 'unavailable'
  /** Applied, but the reply is lost. */
  | 'answer_lost'
  /** Rejected, and applied after the delay, as on a connection that broke. */
  | 'late'
  /** Applied, and repeated because its outcome was unknown: the reply is that of the second call. */
  | 'repeated'
  /** The caller is dead: the call is not applied and never settles. */
  | 'dead'

export interface FaultScript {
  /** Called before every call. */
  fault(method: StoreMethod): StoreFault
  /** Awaited before a call is applied, and again before its reply. */
  delay?(method: StoreMethod): Promise<void>
  /** Called before every call, whatever its fault. */
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
        if (fault === 'unavailable')
          throw new StoreUnavailable(`${method}: the store is unavailable`)
        if (fault === 'late') {
          void script.delay?.(method).then(() => plain.apply(target, input))
          throw new OutcomeUnknown(`${method}: the connection broke`)
        }
        await script.delay?.(method)
        if (script.fault(method) === 'dead') return new Promise(() => {})
        if (fault === 'repeated') await plain.apply(target, input)
        const reply = await plain.apply(target, input)
        await script.delay?.(method)
        if (fault === 'answer_lost') throw new OutcomeUnknown(`${method}: the reply was lost`)
        if (script.fault(method) === 'dead') return new Promise(() => {})
        return reply
      }
    },
  })
}
