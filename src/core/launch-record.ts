/**
 * The ledger: one row per planned time or request, saying what became of it. Rows are called launches
 * whatever they decided, because a row is the launch's identity: unique by (job, planned time), or by
 * request.
 */

export type LaunchCause = 'schedule' | 'manual' | 'create' | 'parent'
/**
 * `pending` = stored and not decided yet: a request, or a planned time that waits for a node or for the
 * launch before it.
 */
export type LaunchDecision = 'pending' | 'launched' | 'skipped' | 'missed'

/**
 * Why a row is as it is. The stored reason is one of these, optionally followed by `: ` and a sentence
 * for people. Every code stands in docs/reference/jobs.md.
 */
export const REASONS = [
  /** Another launch of a `forbid` job is open. */
  'forbid',
  /** No alive node matched the tags until the wait ended. */
  'no_target',
  /** A dependent's turn came while it was disabled. */
  'disabled',
  /** A dependent's turn came outside its `starts_at`/`expires_at`. */
  'outside_window',
  /** Older than `max_lateness`. */
  'max_lateness',
  /** `catch_up` is `skip`. */
  'catch_up_skip',
  /** `catch_up` is `latest` and a newer missed time was launched instead. */
  'catch_up_latest',
  /** `catch_up` is `all` and the cap of newest missed times was reached. */
  'catch_up_cap',
  /** A change of the definition moved `next` past a due, undecided time. */
  'edited',
  /** The store was restored from a backup; the past is never run. */
  'restored',
  /** Two nodes died while executing this launch; the job was disabled. */
  'quarantined',
  /**
   * The stored schedule cannot be read by this version or its time zone data; nothing is planned until
   * it is edited.
   */
  'schedule_unreadable',
  /** The launch waits for the open launch before it (`catch_up: all` under `forbid`). */
  'waits_for_open',
  /** The launch waits for a node whose tags match. */
  'waits_for_node',
] as const
export type Reason = (typeof REASONS)[number]

/** `code`, or `code: sentence`. */
export function reasonText(code: Reason, sentence = ''): string {
  return sentence === '' ? code : `${code}: ${sentence}`
}

/** One row of the ledger. Instants in ms since the epoch, by the store's clock. */
export interface LaunchRecord {
  /** The launch number: below 2^53, growing, never re-used. */
  readonly group: number
  readonly jobId: number
  readonly jobName: string
  readonly cause: LaunchCause
  readonly decision: LaunchDecision
  readonly reason: string
  /** The planned time; for a request, when it was asked for. */
  readonly scheduledAt: number
  /**
   * Last planned time of a merged row (same decision and reason, not launched); else equal to
   * `scheduledAt`.
   */
  readonly scheduledUntil: number
  /** How many planned times the row stands for. */
  readonly count: number
  /** When the row was written, or began to wait for something else; a wait is measured from here. */
  readonly storedAt: number
  readonly decidedAt: number | null
  /** Term of the leader that decided; `null` while pending. */
  readonly term: number | null
  /** Asked for with `force`: goes past `forbid`. */
  readonly forced: boolean
  /** For cause `parent`: the launch of the parent that ended well. */
  readonly parentGroup: number | null
  /**
   * True until none of its executions is pending, running or owed a retry, and while the row itself is
   * pending.
   */
  readonly open: boolean
  /** Set by a cancel: no attempt of this launch is retried any more. */
  readonly retriesEnded: boolean
  /** How many of its executions were lost because their node died. */
  readonly nodeDeaths: number
}

/** Where one slot of a launch is to run. */
export interface Target {
  readonly nodeId: string
  readonly nodeName: string
}

/** One row the leader wants written for planned times of a job. */
export interface LedgerRow {
  readonly scheduledAt: number
  readonly scheduledUntil: number
  readonly count: number
  readonly decision: LaunchDecision
  readonly reason: string
  /** One execution each; empty unless launched. */
  readonly targets: readonly Target[]
}

/** Everything decided about one due job; applied only if the job still has this revision and this `next`. */
export interface DueDecision {
  readonly jobId: number
  readonly revision: number
  readonly expectedNextAt: number
  /** First planned time not decided by `rows`; `null` when there is none. */
  readonly nextAt: number | null
  /**
   * Oldest first; together they cover every planned time from `expectedNextAt` up to (not including)
   * `nextAt`.
   */
  readonly rows: readonly LedgerRow[]
  /**
   * The job forbids overlap: a row with decision `launched` is applied only while no launch of the
   * job's name is open that is launched or is a waiting planned time (pending, cause `schedule`); else
   * the whole decision conflicts. Undecided requests of other causes do not count.
   */
  readonly forbid: boolean
}

/**
 * What becomes of one pending launch row. `stay` only updates the reason shown. `launch` with `forbid`
 * is applied only while no other launch of the job's name is open that is launched, or pending with
 * cause `schedule` and a smaller number.
 */
export type RequestDecision =
  | {
      readonly group: number
      readonly kind: 'launch'
      readonly targets: readonly Target[]
      readonly forbid: boolean
    }
  | {
      readonly group: number
      readonly kind: 'skip'
      readonly decision: 'skipped' | 'missed'
      readonly reason: string
    }
  | {readonly group: number; readonly kind: 'stay'; readonly reason: string}
