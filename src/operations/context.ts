/**
 * What the operations need of the world, and who is calling. Interfaces only: the composition root gives
 * them, tests give small stand-ins. An operation reaches data through the store alone and never starts or
 * stops anything itself.
 */
import type {StringMap} from '../core/job.ts'
import type {Events} from '../ports/events.ts'
import type {Executor} from '../ports/executor.ts'
import type {FinishOutcome} from '../ports/node-store.ts'
import type {Processor} from '../ports/processor.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'

/** What is known by name. `get` answers `null` for what is not known. */
export interface Known<Thing> {
  get(name: string): Thing | null
  names(): readonly string[]
}

export interface OperationsDependencies {
  readonly store: Store
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  readonly executors: Known<Pick<Executor, 'name' | 'check'>>
  readonly processors: Known<Pick<Processor, 'name' | 'check'>>
  readonly node: {
    /** Its identity in `members()`. */
    readonly id: string
    readonly name: string
    readonly version: string
    /** ms since the epoch. */
    readonly startedAt: number
    /** The node's own tags, for as long as it is not a member. */
    readonly tags: StringMap
  }
  readonly settings: {
    /** The zone in force for jobs that name none. */
    defaultTimezone(): string
    /** Absolute; images of a backup stand here while they are sent. */
    readonly dataDirectory: string
    readonly tokenConfigured: boolean
    readonly runsAsRoot: boolean
  }
  /** Whether an alive node that runs jobs matches the tags now. */
  readonly hasTarget: (tags: StringMap) => Promise<boolean>
  readonly isLeader: () => boolean
  /** Events and bells of executions that an operation has ended. */
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
  /** Begins leaving and returns at once; repeatable. */
  readonly leave: () => void
}

/** Who asks. */
export interface Principal {
  /** Separates the idempotency keys of callers. */
  readonly id: string
  /** Becomes the `owner` of a job that names none; `''` = nobody in particular. */
  readonly name: string
}
