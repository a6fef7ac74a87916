/** Rules about the store itself, with all that is needed to send their messages without it. */
import type {ChannelRecord} from '../core/notice-channel.ts'
import type {NoticeMute} from '../core/notice-evaluation.ts'
import type {RuleDefinition} from '../core/notice-rule.ts'

export interface StoreAlarms {
  /** Rules with the condition `store`. */
  readonly rules: readonly RuleDefinition[]
  /** Enabled channels of these rules. */
  readonly channels: readonly ChannelRecord[]
  readonly mutes: readonly NoticeMute[]
  readonly clusterId: string
  /** Number of the next outage. All servers have the same, so that their messages have the same ids. */
  readonly outage: number
}
