/**
 * Texts of the protocol to messages and back: decoding with the checks of `protocol.ts`, and the encoding of
 * bytes, sets and what has a limit.
 */
import type {Type} from 'typebox'
import type {ExecutionKey} from '../core/execution.ts'
import type {FinishItem, PreviousIncarnation} from '../ports/node-store.ts'
import {type Check, checkOf} from '../wire/check.ts'
import {
  ADDED_TEXT_MAX,
  AGENT_MESSAGES,
  type AgentMessage,
  type FinishJson,
  INCARNATIONS_MAX,
  type IncarnationsJson,
  PROTOCOL,
  REASON_MAX,
  SERVER_MESSAGES,
  type ServerMessage,
  STARTED_MAX,
} from './protocol.ts'

/** Decoding never throws. */
export type Decoded<Message> =
  | {readonly ok: true; readonly message: Message}
  /** Message of an unknown kind; `id` of the request, if it is one. */
  | {readonly ok: false; readonly why: 'unsupported'; readonly id: number | null}
  | {readonly ok: false; readonly why: 'malformed'}
  /** A hello or welcome of another protocol, which may have other fields. */
  | {readonly ok: false; readonly why: 'protocol'; readonly protocol: number}

type Checks = ReadonlyMap<string, Check>

const checksOf = (schemas: Readonly<Record<string, Type.TSchema>>): Checks =>
  new Map(Object.entries(schemas).map(([kind, schema]) => [kind, checkOf(schema)]))

/** Messages with a protocol number, which begin a connection. */
const GREETINGS: ReadonlySet<string> = new Set(['hello', 'welcome'])
const AGENT_CHECKS = checksOf(AGENT_MESSAGES)
const SERVER_CHECKS = checksOf(SERVER_MESSAGES)

export function decodeAgentMessage(text: string): Decoded<AgentMessage> {
  return decode(text, AGENT_CHECKS)
}

export function decodeServerMessage(text: string): Decoded<ServerMessage> {
  return decode(text, SERVER_CHECKS)
}

function decode<Message>(text: string, checks: Checks): Decoded<Message> {
  const value = parse(text)
  if (value === null || typeof value['kind'] !== 'string') return {ok: false, why: 'malformed'}
  const check = checks.get(value['kind'])
  if (check === undefined) {
    const {id} = value
    return {ok: false, why: 'unsupported', id: Number.isSafeInteger(id) ? Number(id) : null}
  }
  const {protocol} = value
  if (GREETINGS.has(value['kind']) && Number.isSafeInteger(protocol) && protocol !== PROTOCOL)
    return {ok: false, why: 'protocol', protocol: Number(protocol)}
  if (!check(value)) return {ok: false, why: 'malformed'}
  return {ok: true, message: value as unknown as Message} // checked against the schema of its kind
}

function parse(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' ? (value as Record<string, unknown> | null) : null
  } catch {
    return null // no JSON: malformed
  }
}

interface Bytes<Value> {
  readonly bytes: Value
  readonly start?: Value
}

/** The bytes of an output, and its start if it has one. */
export function encodeBytes({bytes, start}: Bytes<Uint8Array>): Bytes<string> {
  return {bytes: bytes.toBase64(), ...(start === undefined ? {} : {start: start.toBase64()})}
}

export function decodeBytes({bytes, start}: Bytes<string>): Bytes<Uint8Array> {
  const decoded = Uint8Array.fromBase64(bytes)
  if (start === undefined) return {bytes: decoded}
  return {bytes: decoded, start: Uint8Array.fromBase64(start)}
}

/** A finish as it travels, and as it is kept on the agent's disk until a server has it. */
export function encodeFinish({key, token, output, ...item}: FinishItem): FinishJson {
  const {status, durationMs, startedAfterMs, exitCode} = item
  const {reason, outputHead, outputFoot, dropOutput, jitter} = item
  return {
    ...encodeClaim({key, token}),
    status,
    durationMs,
    startedAfterMs,
    exitCode,
    reason: reason.slice(0, REASON_MAX),
    outputHead: outputHead.slice(0, ADDED_TEXT_MAX),
    // The end of the foot says how the run ended.
    outputFoot: outputFoot.slice(-ADDED_TEXT_MAX),
    output: {offset: output.offset, totalBytes: output.totalBytes, ...encodeBytes(output)},
    dropOutput,
    jitter,
  }
}

export function decodeFinish({output, ...json}: FinishJson): FinishItem {
  const {offset, totalBytes} = output
  return {...json, output: {offset, totalBytes, ...decodeBytes(output)}}
}

/** The claim alone, of an object that may have more fields. */
export function encodeClaim({key, token}: {readonly key: ExecutionKey; readonly token: string}) {
  const {group, node, attempt} = key
  return {key: {group, node, attempt}, token}
}

/** Beyond the limits of a message nothing is reported, and all executions of them are lost. */
export function encodeIncarnations(previous: readonly PreviousIncarnation[]): IncarnationsJson {
  const count = previous.reduce((sum, {started}) => sum + started.size, 0)
  if (previous.length > INCARNATIONS_MAX || count > STARTED_MAX) return {previous: []}
  return {previous: previous.map(({started, ...each}) => ({...each, started: [...started]}))}
}

export function decodeIncarnations({previous}: IncarnationsJson): PreviousIncarnation[] {
  return previous.map(({started, ...each}) => ({...each, started: new Set(started)}))
}
