/**
 * The one durable thing. Methods are named after the flow's steps and are whole transactions: they take
 * data and give data, never closures, and decide by the pure core inside their transaction where a
 * decision must see what it changes. What is expected is a return value; a store that cannot be reached
 * or written throws `StoreUnavailable`, a commit whose outcome is unknown throws `OutcomeUnknown`.
 * Instants are ms since the epoch by the store's own clock.
 */
import type {HistoryStore} from './history-store.ts'
import type {JobStore} from './job-store.ts'
import type {LeaderStore} from './leader-store.ts'
import type {MemberStore, NodeStore} from './node-store.ts'

export interface Policy {
  readonly name: string
  readonly rules: string
}

export interface PolicyStore {
  policies(): Promise<readonly Policy[]>
  policy(name: string): Promise<Policy | null>
  putPolicy(policy: Policy): Promise<void>
  deletePolicy(name: string): Promise<Policy | null>
}

export interface StoreInfo {
  readonly engine: 'sqlite' | 'postgres'
  readonly engineVersion: string
  readonly schemaVersion: number
  readonly clusterId: string
  /** Changes when the store is restored from a backup. */
  readonly incarnation: string
  /** Read back from the engine, e.g. `{journal_mode: 'wal', synchronous: 'full'}`. */
  readonly durability: Readonly<Record<string, string>>
  /** Sentences about what could be lost; empty when nothing acknowledged can be. */
  readonly warnings: readonly string[]
}

export interface Store
  extends JobStore, HistoryStore, LeaderStore, NodeStore, MemberStore, PolicyStore {
  info(): Promise<StoreInfo>
  /** Stores the cluster's default zone if none is stored yet; answers the one in force. */
  agreeTimezone(zone: string): Promise<string>
  /** Resolves when the store could be read and written just now; else throws. */
  probe(): Promise<void>
  /**
   * Writes a consistent image of everything but secrets, a SQLite database, to a file that does not
   * exist yet.
   */
  backup(file: string): Promise<void>
  close(): Promise<void>
}
