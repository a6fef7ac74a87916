/** Options of the HTTP server, which the composition root provides, and its fixed limits. */
import type {Limits} from '../config/limits.ts'
import type {Events} from '../ports/events.ts'
import type {Clock, Random} from '../ports/runtime.ts'
import type {AgentConnection, AgentHub, AgentPeer} from '../agents/server/hub.ts'
import type {OidcSignIn, SignInFailed} from './security/oidc.ts'
import type {Actor} from '../core/audit.ts'
import type {Principal} from '../core/access/authorization.ts'
import type {ErrorCode} from '../core/error-codes.ts'
import type {AccessTable} from '../identity/token-cache.ts'

/** The part of the hub that its endpoint needs. */
export interface Agents extends Pick<AgentHub, 'stop'> {
  connect(peer: AgentPeer): Pick<AgentConnection, 'receive' | 'closed'>
}

export interface HttpOptions {
  readonly nodeName: string
  readonly version: string
  /** Tokens and policies. Without any token, only clients on this machine are served. */
  readonly access: AccessTable
  /** Host names of this server, in addition to addresses, `localhost` and the node's name. */
  readonly allowHosts: readonly string[]
  /** Origins of other web sites whose pages may use the API. */
  readonly corsOrigins: readonly string[]
  /** PEM texts; `null` = plain HTTP. */
  readonly tls: {readonly cert: string; readonly key: string} | null
  /** Through which people sign in; absent = with tokens only. */
  readonly oidc?: OidcSignIn | undefined
  /** Called for a sign-in that failed. Must not throw. */
  readonly onSignInFailed?: (failure: SignInFailed) => void
  /** A person signed in whose groups are mapped to policies that are not stored. */
  readonly onPoliciesMissing?: (person: string, policies: readonly string[]) => void
  /** False = no page at `/ui/`. */
  readonly ui: boolean
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  /** The state that `/readyz` shows. Must not reject. */
  readonly ready: () => Promise<ReadyState>
  /** The text of `/metrics`; `null` = no metrics. */
  readonly metrics: (() => Promise<{readonly contentType: string; readonly body: string}>) | null
  /** Called for every internal error (500), with the id in the reply. Must not throw. */
  readonly onFault: (error: unknown, request: FailedRequest) => void
  /** Called for every connection that is refused, or ended for another one. Must not throw. */
  readonly onConnectionsFull?: () => void
  /** Called for every request that is refused access. Must not throw. */
  readonly onRefused?: (refused: RefusedRequest) => void
  /** Called after every reply. Must not throw. */
  readonly onReply?: (reply: SentReply) => void
  /** The agents of this server; absent = agents cannot connect. */
  readonly agents?: Agents
  readonly limits: HttpLimits
}

/** `bodyBytesMax`: of every body except restore files. Agents, too, are connections. */
export type HttpLimits = Pick<
  Limits,
  | 'bodyBytesMax'
  | 'restoreBytesMax'
  | 'connectionsMax'
  | 'networkConnectionsPercent'
  | 'reservedConnectionsPercent'
  | 'anonymousKeepAliveMs'
  | 'replyStalledMs'
  | 'streamsMax'
  | 'tokenStreamsMax'
  | 'agentsMax'
  | 'agentTokenLinksMax'
  | 'joinTokenLinksMax'
  | 'agentConnectGapMs'
  | 'agentConnectsPerSecond'
  | 'longListsMax'
>

/** Each check is `ok`, or says what is wrong: `checks` without names and addresses, `details` with them. */
export interface ReadyState {
  readonly ok: boolean
  readonly checks: Readonly<Record<string, string>>
  readonly details: Readonly<Record<string, string>>
}

export interface RefusedRequest {
  /** `null` = without a valid token. */
  readonly principal: Principal | null
  /** Peer address of the connection. */
  readonly address: string
  readonly method: string
  /** The pattern of the route; `''` when none matched. */
  readonly route: string
  /** URL as sent, with its query. */
  readonly url: string
  /** An agent that was refused when it joined: the name of its node, and why. */
  readonly joining?: {readonly node: string; readonly why: string}
  /** Name of the job in the body; absent or `null` = unknown. */
  readonly job?: string | null
  readonly code: ErrorCode
}

export interface FailedRequest {
  readonly id: string
  readonly method: string
  readonly route: string
}

export interface SentReply {
  readonly method: string
  /** The pattern of the route; `''` when none matched. */
  readonly route: string
  readonly status: number
  readonly durationMs: number
  /** Change that a caller made; absent = the request changes nothing, or was refused. */
  readonly change?: {
    readonly actor: Actor
    readonly path: string
    /** Path of the job or launch that the request made. */
    readonly location?: string
  }
}

/** Bytes read and dropped beyond a body limit, so that a client that is still sending reads the reply. */
export const DRAIN_BYTES_MAX = 8 * 1024 * 1024

/**
 * Requests of one connection that wait for an earlier one: far more than any client sends ahead, and some
 * megabytes. Beyond it, the connection is closed.
 */
export const PIPELINED_MAX = 1_000
/** Requests that wait for a long list to end. Beyond it, they are refused at once. */
export const LONG_LISTS_WAITING_MAX = 100
/** Exceeds the time of some lists of a hundred thousand jobs, and is less than the timeouts of clients. */
export const LONG_LIST_WAIT_MS = 10_000
/** Smaller replies fit into a few packets: compressing them saves no time. */
export const COMPRESSED_BYTES_MIN = 4 * 1024

/** Far more than a client needs to send its headers. */
export const HEADERS_TIMEOUT_MS = 15_000
/** A restore of the largest size at 1 MB/s. */
export const REQUEST_TIMEOUT_MS = 300_000
/**
 * Timeout of connections with a valid token. Longer than the usual 60 s of load balancers, so that they
 * close first.
 */
export const KEEP_ALIVE_TIMEOUT_MS = 72_000
/** How often Node checks connections for these timeouts. */
export const CONNECTIONS_CHECK_MS = 5_000
/** Graceful shutdown: requests in progress get this long, then their connections are closed. */
export const CLOSE_TIMEOUT_MS = 2_000
/** Percent-encoded names of 128 four-byte characters fit. */
export const PARAMETER_LENGTH_MAX = 2_048
