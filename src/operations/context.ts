/**
 * Everything that operations depend on: the store, time, events, registries, this node and its settings. The
 * composition root provides it, tests provide small fakes. An operation reaches data only through the store
 * and starts or stops no process itself.
 */
import type {Limits} from '../config/limits.ts'
import type {StringMap} from '../core/job.ts'
import type {DefaultTarget} from '../core/target.ts'
import type {SecretVault} from '../platform/secret-vault.ts'
import type {Events} from '../ports/events.ts'
import type {NoticeChannels} from '../ports/notice-channel.ts'
import type {Executor} from '../ports/executor.ts'
import type {FinishOutcome} from '../core/end-requests.ts'
import type {Processor} from '../ports/processor.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import type {AccessTable} from '../identity/token-cache.ts'
import type {RunLimit} from './run-limit.ts'

/** Entries by name. */
export interface Registry<Entry> {
  /** `null` = no such entry. */
  get(name: string): Entry | null
  names(): readonly string[]
}

/** Dependencies as the composition root provides them. */
export interface OperationsDependencies {
  /** The facade for clients: it throws `DomainError`. */
  readonly store: Store
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  readonly executors: Registry<
    Pick<Executor, 'name' | 'check' | 'secretParameters'> & Partial<Pick<Executor, 'parameters'>>
  >
  readonly processors: Registry<Pick<Processor, 'name' | 'check'>>
  readonly node: {
    /** Id of the node in `members()`. */
    readonly id: string
    readonly name: string
    readonly version: string
    /** ms since the epoch. */
    readonly startedAt: number
    /** The configured tags, shown while the node is no member. */
    readonly tags: StringMap
  }
  readonly settings: {
    /** The time zone of jobs that name none, at the start: faults of a schedule do not depend on it. */
    defaultTimezone(): string
    /** Absolute path. Backup files are written here while they are sent. */
    readonly dataDirectory: string
    /** Run requests of one caller for one job. */
    readonly runsPerMinute: number
    /** Idle time of sessions of browsers. */
    readonly sessionIdleMs: number
    readonly sessionMaxMs: number
    readonly limits: Pick<Limits, 'drainDeadlineMs' | 'drainDeadlineMaxMs' | 'queuedPerJobMax'>
    /** True if there is a token: in the configuration or stored. */
    readonly tokenConfigured: boolean
    readonly runsAsRoot: boolean
    /** Nodes of a job without tags, and how long a launch waits for a node. */
    readonly targets: {readonly defaultTarget: DefaultTarget; readonly targetWaitMs: number}
    /** Launches kept of each job. */
    readonly keepLaunches: number
    /** Scheduled backups are configured. */
    readonly makesBackups: boolean
  }
  /** Alive nodes that run jobs and match the tags now: those that take work, and cordoned ones. */
  readonly countTargets: (
    tags: StringMap,
  ) => Promise<{readonly matching: number; readonly cordoned: number}>
  readonly isLeader: () => boolean
  /** Checks channels of notices, and sends messages over them. */
  readonly channels: NoticeChannels
  /** Encrypts secrets. */
  readonly vault: Pick<SecretVault, 'seal'>
  readonly access: Pick<
    AccessTable,
    | 'changed'
    | 'principal'
    | 'holderOf'
    | 'sessionOwner'
    | 'expiryOf'
    | 'hasConfiguredToken'
    | 'missingPolicies'
  >
  /** Emits the events and wakeups of executions that an operation has ended. */
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
  /** Starts leaving the cluster and returns at once. Idempotent. */
  readonly leave: () => void
}

/** The argument of every operation factory. */
export interface OperationsContext extends OperationsDependencies {
  readonly runLimit: Pick<RunLimit, 'take'>
}
