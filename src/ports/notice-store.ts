/** Channels of notices in the store. A configuration has references to secrets, never their values. */
import type {Actor} from '../core/audit.ts'
import type {ChannelDefinition, ChannelRecord, NoticeAuthor} from '../core/notice-channel.ts'
import type {NameFilter} from '../core/access/authorization.ts'
import type {Incident, NoticeFact} from '../core/notice-incidents.ts'
import type {MessageState, NoticeMessage} from '../core/notice-message.ts'
import type {RuleDefinition} from '../core/notice-rule.ts'
import type {KeysetPage, KeysetSlice} from './page.ts'
import type {NewSecret} from './secret-store.ts'

export interface NewChannel {
  readonly channel: ChannelDefinition
  readonly author: NoticeAuthor
  /** The new value of the channel's own secret; `null` = none. */
  readonly secret: Omit<NewSecret, 'may'> | null
}

export type PutChannelResult =
  | {readonly kind: 'stored'; readonly channel: ChannelRecord}
  /** The store has the maximum number of channels. */
  | {readonly kind: 'full'}
  /** These rules send over it, and it becomes one that is pinged for the cluster. */
  | {readonly kind: 'in_use'; readonly rules: readonly string[]}
  /** The secret cannot be stored, and so nothing is. */
  | {readonly kind: 'secret'; readonly refusal: {readonly kind: 'other_key' | 'full'}}

/** Outcome of an attempt to deliver a message over a channel. */
export interface ChannelUse {
  readonly name: string
  /** `null` = it was delivered. */
  readonly error: string | null
}

/** Instants in ms since the epoch. */
export interface RuleRecord {
  readonly definition: RuleDefinition
  /** Grows with each change. */
  readonly revision: number
  readonly author: NoticeAuthor
  readonly updatedAt: number
}

export type NewRule = Pick<RuleRecord, 'definition' | 'author'>

export type PutRuleResult =
  | {readonly kind: 'stored'; readonly rule: RuleRecord}
  /** Channels that the rule names do not exist. */
  | {readonly kind: 'channel_unknown'; readonly names: readonly string[]}
  /** Channels that the rule names are pinged for the cluster. */
  | {readonly kind: 'channel_of_cluster'; readonly names: readonly string[]}
  /** The store has the maximum number of rules. */
  | {readonly kind: 'full'}
  /** A server of an earlier release would store no facts. */
  | {readonly kind: 'not_ready'; readonly server: string}

/** Nothing is sent about these jobs until it ends; incidents continue. */
export interface MuteRecord {
  readonly id: number
  /** Name of a rule; `''` = all rules. */
  readonly rule: string
  /** Glob over names of jobs. */
  readonly jobs: string
  readonly reason: string
  readonly mutedAt: number
  /** Name of the token. */
  readonly mutedBy: string
  /** Exclusive, by the store's clock. */
  readonly until: number
}

export interface MuteRequest extends Pick<MuteRecord, 'rule' | 'jobs' | 'reason'> {
  /** An instant, or a length from now by the store's clock. */
  readonly until: {readonly at: number} | {readonly afterMs: number}
}

export type MuteResult =
  | {readonly kind: 'muted'; readonly mute: MuteRecord}
  /** `until` has passed, or is too far away. */
  | {readonly kind: 'out_of_range'; readonly now: number}
  /** The store has the maximum number of mutes. */
  | {readonly kind: 'full'}

export type DeleteChannelResult =
  | {readonly kind: 'deleted'; readonly channel: ChannelRecord}
  | {readonly kind: 'unknown'}
  /** These rules send over it. */
  | {readonly kind: 'in_use'; readonly rules: readonly string[]}

export interface IncidentQuery extends KeysetSlice {
  /** `null` = in any. */
  readonly state: Incident['state'] | null
  /** Name of a rule; `null` = of all. */
  readonly rule: string | null
  /** Glob over names of jobs; `null` = all, and the cluster. */
  readonly job: string | null
  readonly names: NameFilter
  /** Incidents of the cluster and its nodes are listed. */
  readonly seesNodes: boolean
}

export interface MessageQuery extends KeysetSlice {
  readonly state: MessageState | null
  readonly rule: string | null
  readonly channel: string | null
  /** Glob over names of jobs. Rows of other jobs may be in the page. */
  readonly job: string | null
}

/** A message of a channel. Instants in ms since the epoch. */
export interface MessageRecord {
  readonly message: NoticeMessage
  readonly channel: string
  /** `dead`: it is not tried again. */
  readonly state: MessageState
  readonly attempts: number
  readonly madeAt: number
  /** The next attempt; `null` = none. */
  readonly sendAt: number | null
  /** When it was sent or given up; `null` = it waits. */
  readonly endedAt: number | null
  /** Cause of the last failed attempt; `''` = none. */
  readonly error: string
}

export interface PreviewRequest {
  readonly rule: RuleDefinition
  readonly names: NameFilter
  /** Length of time until now. */
  readonly lastMs: number
}

export interface NoticeHistory {
  readonly now: number
  /** Names of jobs that the rule covers: the first ones. */
  readonly jobs: readonly string[]
  readonly jobsTotal: number
  /** The oldest first. */
  readonly facts: readonly NoticeFact[]
  /** More happened than is read. */
  readonly isPartial: boolean
}

export interface NoticeStore {
  /** Sorted by name. */
  channels(): Promise<readonly ChannelRecord[]>
  channel(name: string): Promise<ChannelRecord | null>
  /** Creates or replaces the channel of this name, and its own secret with it. */
  putChannel(channel: NewChannel, actor?: Actor): Promise<PutChannelResult>
  /** Deletes a channel and its own secret, unless a rule names it. */
  deleteChannel(name: string, actor?: Actor): Promise<DeleteChannelResult>
  /** Records a test message in the audit log, and its outcome with the channel. */
  recordChannelTest(use: ChannelUse, actor?: Actor): Promise<void>
  /** Sorted by name. */
  rules(): Promise<readonly RuleRecord[]>
  rule(name: string): Promise<RuleRecord | null>
  /** Creates or replaces the rule of this name; the next change of a job is judged by it. */
  putRule(rule: NewRule, actor?: Actor): Promise<PutRuleResult>
  /** Returns the deleted rule, whose incidents close silently; `null` = no such rule. */
  deleteRule(name: string, actor?: Actor): Promise<RuleRecord | null>
  /** Mutes in force, oldest first. */
  mutes(): Promise<readonly MuteRecord[]>
  muteNotices(request: MuteRequest, actor?: Actor): Promise<MuteResult>
  /** Returns the mute, which has ended; `null` = no such mute in force. */
  endMute(id: number, actor?: Actor): Promise<MuteRecord | null>
  /** Newest first. */
  incidents(query: IncidentQuery): Promise<KeysetPage<Incident>>
  /** Newest first. */
  messages(query: MessageQuery): Promise<KeysetPage<MessageRecord>>
  noticeMessage(id: string): Promise<MessageRecord | null>
  /** Sends a message again, with its id; `null` = no such message. */
  resendMessage(id: string, actor?: Actor): Promise<MessageRecord | null>
  /** The past of the jobs of a rule, as facts. */
  noticeHistory(request: PreviewRequest): Promise<NoticeHistory>
}
