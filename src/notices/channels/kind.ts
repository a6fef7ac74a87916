/**
 * Declaration of a kind of channel: its configuration, and what it sends for a message. A kind renders
 * and never sends: `http-sender.ts` and `mail-sender.ts` do.
 */
import {type Static, type TObject, Type} from 'typebox'
import type {NoticeMessage} from '../../core/notice-message.ts'
import type {HeaderPair} from '../../lib/http-header.ts'
import {isLoopback} from '../../platform/network-guard.ts'
import type {NoticeChannelKind} from '../../ports/notice-channel.ts'

export interface HttpRequest {
  readonly method: 'GET' | 'POST'
  readonly url: URL
  readonly headers: readonly HeaderPair[]
  /** `''` = none. */
  readonly body: string
}

/** Addresses are checked: no name, comment or list is in one. */
export interface Mail {
  readonly from: string
  readonly to: readonly string[]
  readonly subject: string
  readonly messageId: string
  /** Ids of threads. */
  readonly references: readonly string[]
  readonly text: string
  readonly html: string
}

export interface MailServer {
  readonly host: string
  readonly port: number
  /** TLS from the start; else STARTTLS. */
  readonly isSecure: boolean
  /** `''` = no login. */
  readonly user: string
  readonly password: string
}

/** Requests and mails are sent one after the other until one fails. An empty list: nothing to send. */
export type Sending =
  | {readonly via: 'http'; readonly requests: readonly HttpRequest[]}
  | {readonly via: 'mail'; readonly server: MailServer; readonly mails: readonly Mail[]}

export interface Kind extends NoticeChannelKind {
  /** Problems beyond the schema. `config` fits the schema, with or without the values of its secrets. */
  problems(config: Readonly<Record<string, unknown>>): readonly string[]
  /** `config` has no problem, `message` is clean. `at` = time of the attempt, ms since the epoch. */
  render(config: Readonly<Record<string, unknown>>, message: NoticeMessage, at: number): Sending
}

interface Declaration<Schema extends TObject> extends Omit<NoticeChannelKind, 'config'> {
  readonly config: Schema
  problems(config: Static<Schema>): readonly string[]
  render(config: Static<Schema>, message: NoticeMessage, at: number): Sending
}

/** Checks and renders configurations that fit the schema, so their type follows from the schema. */
export function declareKind<Schema extends TObject>(declaration: Declaration<Schema>): Kind {
  return {
    ...declaration,
    problems: (config) => declaration.problems(config as Static<Schema>),
    render: (config, message, at) => declaration.render(config as Static<Schema>, message, at),
  }
}

const TEXT_LENGTH_MAX = 4_096

export const Text = (description: string) => Type.String({description, maxLength: TEXT_LENGTH_MAX})

/**
 * `[]` = it is a URL of http. `isSecret`: the URL is a password, so it needs TLS except to this machine.
 */
export function urlProblems(text: string, {isSecret = false} = {}): readonly string[] {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol))
    return ['url must be an absolute URL that begins with https:// or http://']
  if (url.username !== '' || url.password !== '')
    return ['url must not contain a user or password: use a header or a token']
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const isHere = host === 'localhost' || isLoopback(host)
  return isSecret && url.protocol === 'http:' && !isHere
    ? ['url must begin with https://: who reads it can send as this channel']
    : []
}

/** A request with a JSON body. */
export function postJson(
  url: string,
  body: unknown,
  headers: readonly HeaderPair[] = [],
): HttpRequest {
  return post(url, JSON.stringify(body), [['content-type', 'application/json'], ...headers])
}

export function post(url: string, body: string, headers: readonly HeaderPair[]): HttpRequest {
  return {method: 'POST', url: new URL(url), headers, body}
}
