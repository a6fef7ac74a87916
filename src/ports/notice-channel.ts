/**
 * Port to the channels of notices. Each kind of channel is a file in `notices/channels/`, a line in
 * `kinds.ts` there and a section in docs/reference/notice-channels.md. Delivery never throws: every
 * error is an outcome with its cause.
 */
import type {TObject} from 'typebox'
import type {StringMap} from '../core/job.ts'
import type {ChannelConfig, ChannelDefinition} from '../core/notice-channel.ts'
import type {Delivery} from '../core/notice-delivery.ts'
import type {NoticeMessage} from '../core/notice-message.ts'

/** A channel as it is stored, with the values of its secrets. */
export interface NoticeChannel {
  readonly kind: string
  /** Fits the schema of the kind. Texts in it may name secrets, as `${secret:NAME}`. */
  readonly config: ChannelConfig
  readonly secrets: StringMap
}

/** A kind of channel, for checks, documentation and forms. */
export interface NoticeChannelKind {
  readonly name: string
  /** Schema of the configuration: names as in JSON. */
  readonly config: TObject
  /**
   * The field that is secret by nature: an address, key or password that lets anyone send as this
   * channel. It is stored as a secret, and no reply has it.
   */
  readonly secretField: string
  /**
   * True if each incident is a request of its own: the receiver has its own state of each. Nothing is
   * sent about incidents that a message only counts in `more`, so its sender needs another message for
   * them.
   */
  readonly perIncident: boolean
}

/** Sends a message once, as `NoticeChannels.send`, without the store. */
export type NoticeSender = (message: NoticeMessage, signal: AbortSignal) => Promise<Delivery>

/** Channels as operations use them. */
export interface NoticeChannels {
  /** Kind by name; `null` = no such kind. */
  kind(name: string): NoticeChannelKind | null
  /**
   * Checks the configuration of a channel. Each problem names the field, the cause and the fix; empty =
   * valid.
   */
  check(kind: string, config: unknown): readonly string[]
  /**
   * Sends a message once, within 10 s. An abort of `signal` ends it as `retry`. Rejects only if the store
   * does not answer.
   */
  send(
    channel: Pick<ChannelDefinition, 'kind' | 'config'>,
    message: NoticeMessage,
    signal: AbortSignal,
  ): Promise<Delivery>
  /** Reads the secrets of the channel now, for messages while the store cannot be read. */
  prepare(channel: Pick<ChannelDefinition, 'kind' | 'config'>): Promise<NoticeSender>
}
