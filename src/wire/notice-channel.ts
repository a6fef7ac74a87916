/** Channels of notices in JSON. A reply has references to secrets, never their values. */
import {type Static, Type} from 'typebox'
import type {ChannelDefinition, ChannelRecord} from '../core/notice-channel.ts'
import type {Delivery} from '../core/notice-delivery.ts'
import {formatOptionalTime, formatTime} from '../lib/rfc3339.ts'
import {decodeBody} from './body.ts'
import {isObject} from './json.ts'
import {Checked, MayBeUnset, OptionalTime, schemaRef, Time} from './shapes.ts'

const Config = (description: string) =>
  Type.Record(Type.String(), Type.Unknown(), {description, additionalProperties: true})

export const Channel = Type.Object(
  {
    name: Type.String({description: 'What rules call it.'}),
    kind: Type.String({description: 'Kind of the channel, such as `mail`.'}),
    config: Config('[Fields of the kind](notice-channels.md), with `${secret:NAME}` for secrets.'),
    enabled: Type.Boolean({description: 'False when nothing is sent over it but tests.'}),
    revision: Type.Integer({description: 'Grows with each change.'}),
    updated_at: Time('When it was stored.'),
    updated_by: Type.String({description: 'Name of the token that stored it.'}),
    last_ok_at: OptionalTime('Last delivery; `null` = none yet.'),
    failing_since: OptionalTime(
      'First failure since the last delivery; `null` = it does not fail.',
    ),
    last_error: Type.String({description: 'Cause of the last failure; empty = it does not fail.'}),
  },
  {$id: 'NoticeChannel', description: 'A channel of notices.'},
)
export type ChannelJson = Static<typeof Channel>

export const Channels = Type.Object(
  {channels: Type.Array(schemaRef(Channel), {description: 'Sorted by name.'})},
  {$id: 'NoticeChannels', description: 'Channels of notices.'},
)
export type ChannelsJson = Static<typeof Channels>

export const NewChannel = Type.Object(
  {
    kind: Type.String({description: 'Kind of the channel, such as `mail`.'}),
    config: Checked(
      Config(
        '[Fields of the kind](notice-channels.md). The field that is secret by nature is stored as the ' +
          'secret `notice-NAME`, and becomes `${secret:notice-NAME}`.',
      ),
      (config) => (isObject(config) ? null : 'must be a JSON object'),
      'must be a JSON object',
    ),
    enabled: MayBeUnset(Type.Boolean({description: 'False: nothing is sent over it but tests.'})),
  },
  {
    $id: 'NewNoticeChannel',
    description: 'A channel of notices to store.',
    examples: [{kind: 'webhook', config: {url: 'https://hooks.example.org/belfry'}}],
  },
)

/** Throws `payload_unparsable`, `channel_invalid`, which repeat no part of the body: it may have secrets. */
export function decodeChannel(bytes: Uint8Array, name: string): ChannelDefinition {
  const refusal = {
    code: 'channel_invalid',
    sentence: 'The channel is invalid',
    isSecret: true,
  } as const
  const {kind, config, enabled} = decodeBody(NewChannel, bytes, refusal)
  return {name, kind, config, enabled: enabled ?? true}
}

export function encodeChannel(channel: ChannelRecord): ChannelJson {
  return {
    name: channel.name,
    kind: channel.kind,
    config: {...channel.config},
    enabled: channel.enabled,
    revision: channel.revision,
    updated_at: formatTime(channel.updatedAt),
    updated_by: channel.author.name,
    last_ok_at: formatOptionalTime(channel.lastOkAt),
    failing_since: formatOptionalTime(channel.failingSince),
    last_error: channel.lastError,
  }
}

export const ChannelTest = Type.Object(
  {
    delivered: Type.Boolean({description: 'True if the receiver accepted the message.'}),
    cause: Type.String({
      description: 'The status of the answer and what it means, or why there is none.',
    }),
  },
  {$id: 'NoticeChannelTest', description: 'Outcome of a test message.'},
)
export type ChannelTestJson = Static<typeof ChannelTest>

export function encodeChannelTest({outcome, cause}: Delivery): ChannelTestJson {
  return {delivered: outcome === 'sent', cause}
}
