/**
 * What the HTTP server is told at its start, and what is fixed about it. The composition root gives it all.
 */
import type {Events} from '../ports/events.ts'
import type {Clock, Random} from '../ports/runtime.ts'
import type {AgentAdmissionOptions} from './agent-socket.ts'

export interface HttpOptions {
  readonly nodeName: string
  readonly version: string
  /** The one token that may do everything; `null` = none is configured, and only this machine is served. */
  readonly token: string | null
  /** Host names, beside addresses, `localhost` and the node's name, under which this server is reached. */
  readonly allowHosts: readonly string[]
  /** PEM texts; `null` = plain HTTP. */
  readonly tls: {readonly cert: string; readonly key: string} | null
  /** False = no console at `/ui/`. */
  readonly ui: boolean
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  /** Answers of `/readyz`. Must not reject. */
  readonly ready: () => Promise<{
    readonly ok: boolean
    readonly checks: Readonly<Record<string, string>>
  }>
  /** The text of `/metrics`; `null` = there is none. */
  readonly metrics: (() => Promise<{readonly contentType: string; readonly body: string}>) | null
  /** Told of every fault that was answered with 500, under the id that the caller got. Must not throw. */
  readonly failed: (error: unknown, request: FailedRequest) => void
  /** Told of every answer. `route` is the pattern, `''` when none matched. Must not throw. */
  readonly answered?: (answer: Answer) => void
  /** Takes in agents; absent = none may connect. */
  readonly agents?: AgentAdmissionOptions
  readonly bodyBytesMax?: number
  readonly restoreBytesMax?: number
}

export interface FailedRequest {
  readonly id: string
  readonly method: string
  readonly route: string
}

export interface Answer {
  readonly method: string
  readonly route: string
  readonly status: number
  readonly durationMs: number
}

/** A job is a few hundred bytes; this is room for the largest that validation lets pass, several times. */
export const BODY_BYTES_MAX = 1024 * 1024
/** Some hundred thousand jobs. */
export const RESTORE_BYTES_MAX = 256 * 1024 * 1024
/** Read and thrown away beyond a limit, so that a client that is still sending gets to read the refusal. */
export const DRAIN_BYTES_MAX = 8 * 1024 * 1024
/** Event streams open at once, of both kinds: each costs a socket, a listener and a buffer. */
export const STREAMS_MAX = 200

/** A client that has not sent its headers by then is not going to. */
export const HEADERS_TIMEOUT_MS = 15_000
/** A restore of the largest size at 1 MB/s. */
export const REQUEST_TIMEOUT_MS = 300_000
/** Longer than the usual 60 s of balancers in front, so that they close first. */
export const KEEP_ALIVE_TIMEOUT_MS = 72_000
/** How often node looks for connections beyond these limits. */
export const CONNECTIONS_CHECK_MS = 5_000
/** What is under way at the end gets this long before its connection is cut. */
export const CLOSE_TIMEOUT_MS = 2_000
/** Percent-encoded names of 128 four-byte characters fit. */
export const PARAMETER_LENGTH_MAX = 2_048
