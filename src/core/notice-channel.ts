/**
 * Channels of notices as they are stored: names, limits, and the part of a configuration that is secret by
 * nature, which is stored as the secret `notice-NAME`. Pure; `notices/channels/` knows the kinds.
 */
import type {TokenKind} from './access/authorization.ts'
import {hasReference, secretsIn} from './secret.ts'

/** Excludes `.` and `..`: clients resolve them in a path. Its secret has a prefix. */
export const CHANNEL_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/
/** Every server reads all channels of the messages that it delivers. */
export const CHANNELS_MAX = 100

/** The fields of the kind, as in JSON. Texts may name secrets. */
export type ChannelConfig = Readonly<Record<string, unknown>>

/** Author of a channel or a rule. Names of policies are stored: their rules are looked up when used. */
export interface NoticeAuthor {
  /** Name of the token. */
  readonly name: string
  readonly kind: TokenKind
  /** Names of policies; empty unless the kind is `client`. */
  readonly policies: readonly string[]
}

export interface ChannelDefinition {
  readonly name: string
  readonly kind: string
  /** Has references to secrets, never their values. */
  readonly config: ChannelConfig
  /** False = nothing is sent over it but tests. */
  readonly enabled: boolean
}

/** Instants in ms since the epoch. */
export interface ChannelRecord extends ChannelDefinition {
  /** Grows with each change. */
  readonly revision: number
  readonly author: NoticeAuthor
  readonly updatedAt: number
  /** `null` = it has delivered nothing yet. */
  readonly lastOkAt: number | null
  /** First failure since the last delivery; `null` = the last delivery succeeded, or there was none. */
  readonly failingSince: number | null
  /** Cause of the last failure; `''` = it is not failing. */
  readonly lastError: string
}

/** Path of a channel, as policies name it. */
export function channelPath(name: string): string {
  return `/v1/notices/channels/${name}`
}

/** True if the channel is pinged while Belfry works. No rule sends over it: a ping would hide failures. */
export function pingsCluster({config}: Pick<ChannelDefinition, 'config'>): boolean {
  return config['cluster'] === true
}

/** Stands for the owners of the jobs among the addresses of a channel. */
export const OWNER = 'owner'

/** True if a message about many incidents needs further parts: each has its own receiver or alert. */
export function sendsEachIncident(
  {kind, config}: Pick<ChannelDefinition, 'kind' | 'config'>,
  perIncidentKinds: readonly string[],
): boolean {
  const to = config['to']
  return perIncidentKinds.includes(kind) || (Array.isArray(to) && to.includes(OWNER))
}

/** The secret that belongs to the channel: it is set and deleted with it. */
export function channelSecret(name: string): string {
  return `notice-${name}`
}

/** Names of secrets in a configuration, valid or not, each once. */
export function secretsOfConfig(config: ChannelConfig): readonly string[] {
  const texts = Object.values(config)
    .flat()
    .filter((value) => typeof value === 'string')
  return [...new Set(texts.flatMap(secretsIn))]
}

/**
 * Takes the value of the secret field out of a configuration, which names the secret of the channel instead.
 * `value` `null` = the field is not set, or names secrets already.
 */
export function takeSecret(
  name: string,
  config: ChannelConfig,
  secretField: string,
): {readonly config: ChannelConfig; readonly value: string | null} {
  const value = config[secretField]
  if (typeof value !== 'string' || value === '' || hasReference(value)) return {config, value: null}
  return {config: {...config, [secretField]: `\${secret:${channelSecret(name)}}`}, value}
}
