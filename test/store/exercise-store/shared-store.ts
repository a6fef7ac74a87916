/**
 * Store for all cases of the contract, emptied after each: opening a store takes many times as long as most
 * cases. A case that closes its store gets the next one a new store.
 */
import {after} from 'node:test'
import type {OpenedStore, OpenStore} from './scene.ts'

export interface SharedStore extends OpenedStore {
  /** Restores the rows and the time of a new store. */
  empty(): Promise<void>
}

/** Call it outside of suites: the last store is closed at the end of the file. */
export function sharedStore(open: () => Promise<SharedStore>): OpenStore {
  let kept: SharedStore | null = null
  after(() => kept?.close())
  return async () => {
    const current = (kept ??= await open())
    const closeStore = () => {
      kept = null
      return current.store.close()
    }
    const close = () => (kept === null ? current.close() : current.empty())
    return {...current, store: {...current.store, close: closeStore}, close}
  }
}
