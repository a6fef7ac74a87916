/** The store's part for what happened: executions and their output, the ledger, statistics. Reads only. */
import type {ExecutionKey, ExecutionRecord, ExecutionStatus} from '../core/execution.ts'
import type {LaunchDecision, LaunchRecord} from '../core/launch-record.ts'
import type {Order, Page, Slice} from './page.ts'

/** An execution with as much of its output's tail as was asked for. */
export interface ExecutionView extends ExecutionRecord {
  /**
   * The last kept bytes of what the command wrote, without head and foot; starts on a UTF-8 character
   * where it was cut.
   */
  readonly output: Uint8Array
  /** True when the command wrote more than `output` holds. */
  readonly outputTruncated: boolean
}

/** A launch with its executions, by attempt and node; empty unless the decision is `launched`. */
export interface LaunchView extends LaunchRecord {
  readonly executions: readonly ExecutionRecord[]
}

export type ExecutionSort = 'id' | 'started_at' | 'finished_at' | 'attempt'

export interface ExecutionQuery extends Slice {
  readonly sort: ExecutionSort
  readonly order: Order
  readonly status: ExecutionStatus | null
  /** Last bytes of output each row carries; 0 = none. */
  readonly outputBytes: number
}

/**
 * A stretch of kept output: bytes from absolute position `offset` on (later than asked when older ones
 * are gone).
 */
export interface OutputStretch {
  readonly offset: number
  readonly bytes: Uint8Array
  /** How many bytes the command has written so far. */
  readonly totalBytes: number
  readonly execution: ExecutionRecord
}

export interface DayStatistics {
  /** Midnight UTC. */
  readonly date: number
  readonly successCount: number
  readonly failedCount: number
}

export interface HistoryStore {
  /** Newest first by default (sort `id`, order `desc`). `null` = no such job. */
  executions(name: string, query: ExecutionQuery): Promise<Page<ExecutionView> | null>
  /**
   * `null` = no such job, or no such execution of it. Also finds executions of an ephemeral job's last
   * launch.
   */
  execution(name: string, key: ExecutionKey, outputBytes: number): Promise<ExecutionView | null>
  /** Kept output from absolute byte `from` on, at most `limit` bytes; for following a run. */
  outputSince(
    name: string,
    key: ExecutionKey,
    from: number,
    limit: number,
  ): Promise<OutputStretch | null>
  /** Running executions of all jobs, oldest start first. */
  busy(query: Slice & {readonly outputBytes: number}): Promise<Page<ExecutionView>>
  /** Newest first. `null` = no such job. */
  launches(
    name: string,
    query: Slice & {readonly decision: LaunchDecision | null},
  ): Promise<Page<LaunchView> | null>
  /** `null` = no such job, or no such launch of it. */
  launch(name: string, group: number): Promise<LaunchView | null>
  /** One row a day of the last `days` days (today included), oldest first, zeros included. */
  statistics(days: number): Promise<readonly DayStatistics[]>
  /** Figures for metrics and the status page; cheap. */
  totals(): Promise<{
    readonly jobs: number
    readonly running: number
    readonly pending: number
    readonly undecided: number
  }>
}
