/** Channels of notices in the store. A configuration has references to secrets, never their values. */
import type {Actor} from '../core/audit.ts'
import type {ChannelDefinition, ChannelRecord, NoticeAuthor} from '../core/notice-channel.ts'
import type {RuleDefinition} from '../core/notice-rule.ts'
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
}
