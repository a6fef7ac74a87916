/**
 * The store port: all durable state. Each method is one transaction; it takes and returns data, never
 * closures. Where a decision must see the rows it changes, the method calls the pure core in its transaction.
 *
 * Errors: expected outcomes are return values. Every method throws `StoreUnavailable` if the store cannot be
 * reached or written, and every write throws `OutcomeUnknown` if its commit may have happened.
 * Instants are ms since the epoch by the store's own clock. `…Ms` are lengths.
 */
import type {AuditStore} from './audit-store.ts'
import type {HistoryStore} from './history-store.ts'
import type {JobStore} from './job-store.ts'
import type {LeaderStore} from './leader-store.ts'
import type {MemberStore, NodeStore} from './node-store.ts'
import type {NoticeEngineStore} from './notice-engine-store.ts'
import type {NoticeStore} from './notice-store.ts'
import type {SecretStore} from './secret-store.ts'
import type {PolicyStore, TokenStore} from './token-store.ts'

export interface StoreInfo {
  readonly engine: 'sqlite' | 'postgres'
  readonly engineVersion: string
  readonly schemaVersion: number
  readonly clusterId: string
  /** Changes when the store is restored from a backup. */
  readonly incarnation: string
  /** Settings read back from the engine, e.g. `{journal_mode: 'wal', synchronous: 'full'}`. */
  readonly durability: Readonly<Record<string, string>>
  /** Sentences about acknowledged writes that could be lost; empty = none can. */
  readonly warnings: readonly string[]
}

export interface Store
  extends
    JobStore,
    HistoryStore,
    LeaderStore,
    NodeStore,
    MemberStore,
    PolicyStore,
    TokenStore,
    AuditStore,
    SecretStore,
    NoticeStore,
    NoticeEngineStore {
  info(): Promise<StoreInfo>
  /** Stores the cluster's default timezone if none is stored yet. Returns the one in force. */
  agreeTimezone(zone: string): Promise<string>
  /** Stores the key of sign-ins through a provider if none is stored yet. Returns the one in force. */
  agreeSignInKey(key: string): Promise<string>
  /** Health check: resolves if the store can be read and written now; else throws. */
  probe(): Promise<void>
  /** Writes a backup, one snapshot of all data but secrets, as a SQLite database. `file` must not exist. */
  backup(file: string): Promise<void>
  /** Completes accepted writes, then closes all connections. Idempotent. */
  close(): Promise<void>
}
