/** Evaluation of notices, and delivery of their messages. Any server calls it, under a lock of one row. */
import type {DeliveryOutcome} from '../core/notice-delivery.ts'
import type {NoticesState} from '../core/health.ts'
import type {NoticeMessage} from '../core/notice-message.ts'
import type {DefaultTarget} from '../core/target.ts'
import type {SweepKind} from '../core/notice-sweeps.ts'
import type {StoreAlarms} from './store-alarms.ts'

/** A part of a sweep: at most `rowsMax` rows. */
export interface SweepStep {
  readonly kind: SweepKind
  /** Names of jobs after this one; `''` = from the first. */
  readonly after: string
  readonly rowsMax: number
}

export interface SweepResult {
  /** Something opens or closes. */
  readonly changes: boolean
  /** `after` of the next step; `null` = the sweep is done. */
  readonly next: string | null
}

export interface DueRequest {
  /** The same as in `EvaluateRequest`. */
  readonly olderThanMs: number
  /** A sweep is due this long after the one before by any server. */
  readonly sweepEveryMs: Readonly<Record<SweepKind, number>>
}

/** Work that has waited at least this long, by the store's clock. */
export interface DueNotices {
  readonly now: number
  /** Facts or timers. */
  readonly evaluate: boolean
  /** Messages. */
  readonly deliver: boolean
  readonly sweeps: readonly SweepKind[]
  /** A rule has the condition `store`. */
  readonly watchesStore: boolean
  /** No rules, incidents in progress, facts or messages: looks may be rare. */
  readonly isIdle: boolean
}

export interface EvaluateRequest {
  /**
   * Evaluates only what has waited at least this long: followers leave the rest to the leader. 0 = all.
   */
  readonly olderThanMs: number
  /** `null` = facts and timers only. */
  readonly sweep: SweepStep | null
  /** Random text of this call: ids of new messages begin with it. */
  readonly seed: string
  /** Settings of this server for the contents of messages; absent = those of a server without any. */
  readonly report?: NoticeReport
}

/** Plain data: it crosses to the thread of the store. */
export interface NoticeReport {
  /** URL at which browsers reach the servers; `''` = not known. */
  readonly publicUrl: string
  readonly defaultTarget: DefaultTarget
  readonly targetWaitMs: number
  /** Launches of a job that may wait for a slot. */
  readonly queuedMax: number
  /** Kinds of channels that send each incident by itself. */
  readonly perIncidentKinds: readonly string[]
}

export interface EvaluateResult {
  readonly opened: readonly IncidentChange[]
  readonly closed: readonly IncidentChange[]
  /** Messages that were stored, over all channels. */
  readonly messages: number
  /** Facts are left, as there were too many for one transaction. */
  readonly hasMore: boolean
  /** Facts that were dropped because too many waited. */
  readonly dropped: number
  /** The same as in `SweepResult`. The step was not made if `hasMore`. */
  readonly next: string | null
}

export interface IncidentChange {
  readonly key: string
  readonly rule: string
}

/** A message that this server has claimed. */
export interface ClaimedNotice {
  readonly channel: string
  readonly message: NoticeMessage
}

export interface DeliveredNotice {
  readonly id: string
  readonly channel: string
  /** Number in the claim. */
  readonly attempt: number
  readonly outcome: DeliveryOutcome
  readonly cause: string
  readonly retryAfterMs?: number
}

export interface NoticeEngineStore {
  noticesDue(request: DueRequest): Promise<DueNotices>
  /** True = this server makes the sweep; no other does within `everyMs`. */
  claimSweep(request: {readonly kind: SweepKind; readonly everyMs: number}): Promise<boolean>
  /** Reads what the step finds, without a change. */
  sweepNotices(step: SweepStep): Promise<SweepResult>
  /** Deliveries as the status of the cluster shows them. */
  noticesState(): Promise<NoticesState>
  /** Rules and channels that servers keep in memory for the time when the store cannot be written. */
  storeAlarms(): Promise<StoreAlarms>
  /** Ends the outage of this number: the next one has the next number. */
  endStoreOutage(outage: number): Promise<void>
  evaluateNotices(request: EvaluateRequest): Promise<EvaluateResult>
  /**
   * Claims the oldest messages of each channel that are due, for 60 s. A message that was refused for now
   * holds back the younger ones of its channel, so that they arrive in order. At most 4 messages of a
   * channel are claimed at a time, by all servers together.
   */
  claimNotices(request: {
    readonly sender: string
    /** Messages that may be claimed now, by channel; absent = `otherwise`. */
    readonly free: Readonly<Record<string, number>>
    readonly otherwise: number
  }): Promise<readonly ClaimedNotice[]>
  /** Stores the result of an attempt. False = another server has claimed the message since. */
  markNotice(delivered: DeliveredNotice & {readonly sender: string}): Promise<boolean>
  /** Removes old messages and incidents. */
  pruneNotices(): Promise<void>
}
