/** The facade for clients over another store, perhaps one that has only a few methods. */
import type {Clock} from '../../src/ports/runtime.ts'
import type {Store} from '../../src/ports/store.ts'
import {withDeadlines} from '../../src/store/sql/facade.ts'

export function clientStoreOf(store: Store, clock: Clock): Store {
  type AnyMethod = (...input: readonly unknown[]) => Promise<unknown>
  return withDeadlines((name, input) => (store[name] as AnyMethod)(...input), store, clock)
}
