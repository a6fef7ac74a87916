/**
 * Delivery of a message over a channel: fills in the secrets, renders, sends, and says what came of it.
 * No cause has a part of an answer, of a URL or of a secret.
 */
import {sentenceOf} from '../../core/findings.ts'
import type {StringMap} from '../../core/job.ts'
import {type ChannelConfig, secretsOfConfig} from '../../core/notice-channel.ts'
import type {Delivery} from '../../core/notice-delivery.ts'
import type {NoticeMessage} from '../../core/notice-message.ts'
import {fillSecrets, fillUrlSecrets, percentEncoded} from '../../core/secret.ts'
import {fieldFaults} from '../../wire/body.ts'
import {isObject} from '../../wire/json.ts'
import type {NoticeChannel} from '../../ports/notice-channel.ts'
import {permanent, runAttempt, type SenderOptions} from './attempt.ts'
import {sendRequests} from './http-sender.ts'
import {CHANNEL_KINDS, findKind} from './kinds.ts'
import {sendMails} from './mail-sender.ts'
import {cleanMessage} from './message-text.ts'

/** Problems of a configuration, with references to secrets instead of their values; empty = valid. */
export function checkChannel(kindName: string, config: unknown): readonly string[] {
  const kind = findKind(kindName)
  if (kind === undefined) {
    const names = CHANNEL_KINDS.map(({name}) => name).join(', ')
    return [`kind must be one of ${names}`]
  }
  if (!isObject(config)) return ['config must be a JSON object']
  const faults = fieldFaults(kind.config, config).map(sentenceOf)
  return faults.length > 0 ? faults : kind.problems(filled(config, {}))
}

/** Sends a message once, within 10 s. Never rejects; the outcome is for `nextAttempt`. */
export async function deliver(
  channel: NoticeChannel,
  message: NoticeMessage,
  options: SenderOptions & {readonly signal: AbortSignal},
): Promise<Delivery> {
  const [problem] = checkChannel(channel.kind, channel.config)
  if (problem !== undefined) return permanent(`the channel is invalid: ${problem}`)
  const kind = findKind(channel.kind)!
  const missing = secretsOfConfig(channel.config).find(
    (name) => !Object.hasOwn(channel.secrets, name),
  )
  if (missing !== undefined) return permanent(`the secret ${missing} of the channel has no value`)
  const config = filled(channel.config, channel.secrets)
  if (kind.problems(config).length > 0)
    return permanent('the channel is invalid: the value of a secret does not fit its field')
  const sending = kind.render(config, cleanMessage(message), options.clock.now())
  return runAttempt(options, options.signal, (attempt) =>
    sending.via === 'http'
      ? sendRequests(sending.requests, attempt)
      : sendMails(sending.server, sending.mails, attempt),
  )
}

/** Puts the values of secrets in place. Nothing parses them as references, and URLs encode them. */
function filled(config: ChannelConfig, secrets: StringMap): ChannelConfig {
  return Object.fromEntries(
    Object.entries(config).map(([field, value]) => [field, filledField(field, value, secrets)]),
  )
}

function filledField(field: string, value: unknown, secrets: StringMap): unknown {
  if (Array.isArray(value)) return value.map((each) => filledField(field, each, secrets))
  if (typeof value !== 'string') return value
  if (field === 'url') return fillUrlSecrets(value, secrets)
  return fillSecrets(value, secrets, field === 'smtp' ? percentEncoded : undefined)
}
