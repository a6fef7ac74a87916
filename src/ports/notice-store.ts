/** Channels of notices in the store. A configuration has references to secrets, never their values. */
import type {Actor} from '../core/audit.ts'
import type {ChannelDefinition, ChannelRecord, NoticeAuthor} from '../core/notice-channel.ts'
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

export interface NoticeStore {
  /** Sorted by name. */
  channels(): Promise<readonly ChannelRecord[]>
  channel(name: string): Promise<ChannelRecord | null>
  /** Creates or replaces the channel of this name, and its own secret with it. */
  putChannel(channel: NewChannel, actor?: Actor): Promise<PutChannelResult>
  /** Deletes a channel and its own secret. Returns the deleted channel; `null` = no such channel. */
  deleteChannel(name: string, actor?: Actor): Promise<ChannelRecord | null>
  /** Records a test message in the audit log, and its outcome with the channel. */
  recordChannelTest(use: ChannelUse, actor?: Actor): Promise<void>
}
