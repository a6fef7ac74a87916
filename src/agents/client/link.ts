/**
 * Link of an agent to its cluster: one connection to any server, re-established for ever. It sends the
 * hello, matches replies to requests, passes on notifications, and moves to another server when this one is
 * silent or disconnected from the store. Requests without a connection wait a little for one.
 */
import type {Limits} from '../../config/limits.ts'
import {backoffMs} from '../../lib/backoff.ts'
import {messageOf} from '../../lib/error.ts'
import type {Clock, Random, Timer} from '../../ports/runtime.ts'
import {StoreUnavailable} from '../../ports/store-errors.ts'
import {decodeServerMessage} from '../codec.ts'
import {
  type AgentTopic,
  type BodyOf,
  type FailedMessage,
  type HelloMessage,
  PROTOCOL,
  type ReplyMessage,
  type ReplyOf,
  type RequestKind,
  type RequestOf,
  type WelcomeMessage,
} from '../protocol.ts'
import {PendingRequests, type RpcClient} from './rpc.ts'
import {type AgentSocket, type Dial, permanentRefusal, type SocketClosed} from './socket.ts'

export interface LinkOptions {
  readonly dial: Dial
  /** Servers of one cluster; not empty. */
  readonly urls: readonly string[]
  readonly clock: Clock
  readonly random: Random
  /** The agent and its claims at this moment. */
  readonly describe: () => Pick<
    HelloMessage,
    'node' | 'status' | 'activeClaims' | 'pendingToken' | 'ended' | 'ownToken'
  >
  /** `null` before the first join. */
  readonly clusterId: string | null
  /** Makes the cluster of this agent durable; awaited before anything else is sent. */
  readonly saveClusterId: (clusterId: string) => Promise<void>
  /** A server has stored the token of this agent. Makes that durable; the next connection uses the token. */
  readonly onIssued: () => Promise<void>
  /** `agentTimeoutMs`: then without an acknowledged heartbeat the server, or its store, is down. */
  readonly limits: Pick<Limits, 'agentTimeoutMs'>
  readonly onNotify: (topic: AgentTopic) => void
  readonly onJoined: (url: string) => void
  /**
   * Receives a sentence for the log: why there is no connection. At once, then once a minute until the next
   * join.
   */
  readonly onDisconnected: (sentence: string) => void
  /** A permanent refusal; `fenced` = another incarnation of this node replaced it. */
  readonly onRefused: (sentence: string, kind: 'fenced' | 'setting' | 'other') => void
}

/** Time from dialling until the server has replied to the hello. */
const HANDSHAKE_MS = 5_000
/** Exceeds the deadline of the server's store: a slow store means a late reply. */
const REPLY_TIMEOUT_MS = 30_000
/** Interval between reports while there is no connection. */
const REPORT_EVERY_MS = 60_000
/** How long a request waits for a connection. */
const CONNECTION_WAIT_MS = 5_000

interface Connection {
  readonly url: string
  readonly socket: AgentSocket
  readonly requests: PendingRequests
  readonly helloAt: number
  handshake: Timer | null
  isWelcomed: boolean
}

export class AgentLink implements RpcClient {
  readonly #options: LinkOptions
  readonly #reconnect: ReconnectPolicy
  #clusterId: string | null
  #connection: Connection | null = null
  #reconnectTimer: Timer | null = null
  #waiting = new Set<(connection: Connection | null) => void>()
  #hasJoined = false
  /** Start of the time without a connection; `null` = not reported yet. */
  #lostAt: number | null = null
  #reportedAt = -Infinity
  #refusalReportedAt = -Infinity
  #isStopped = false
  #isLeaving = false
  /** Sending time of the newest message that the server answered after a commit. */
  #acknowledgedAt: number

  constructor(options: LinkOptions) {
    this.#options = options
    this.#clusterId = options.clusterId
    this.#reconnect = new ReconnectPolicy(options.urls, options.random)
    this.#acknowledgedAt = options.clock.monotonicMs()
  }

  start(): void {
    this.#dial()
  }

  /** Closes the connection for good. Idempotent. */
  stop(): void {
    this.#isStopped = true
    this.#reconnectTimer?.cancel()
    if (this.#connection !== null) this.#drop(this.#connection)
    this.#resumeWaiting(null)
  }

  get isConnected(): boolean {
    return this.#connection?.isWelcomed === true
  }

  /**
   * Time since a server last acknowledged this agent out of the store. A server that replies without its
   * store does not count: to the cluster the agent is as silent as with a cut cable.
   */
  get disconnectedMs(): number {
    return Math.max(0, this.#options.clock.monotonicMs() - this.#acknowledgedAt)
  }

  /** The agent shuts down: from now on requests do not wait for a connection. */
  leaving(): void {
    this.#isLeaving = true
    this.#resumeWaiting(null)
  }

  async request<Kind extends RequestKind>(
    kind: Kind,
    body: BodyOf<RequestOf<Kind>>,
  ): Promise<ReplyOf<Kind>> {
    const connection = this.#joinedConnection() ?? (await this.#waitForConnection())
    const isHeartbeat = kind === 'heartbeat'
    const reply = await connection.requests.request(kind, body, {
      timeoutMs: isHeartbeat ? this.#options.limits.agentTimeoutMs : REPLY_TIMEOUT_MS,
      onTimeout: () => {
        if (isHeartbeat) this.#leave(connection, 'no reply to a heartbeat')
      },
    })
    // The matching of replies checks that this one has the kind of its request.
    return reply as ReplyOf<Kind>
  }

  #joinedConnection(): Connection | null {
    return this.isConnected ? this.#connection : null
  }

  async #waitForConnection(): Promise<Connection> {
    const connection = await new Promise<Connection | null>((resolve) => {
      if (this.#isStopped || this.#isLeaving) return resolve(null)
      const timer = this.#options.clock.after(CONNECTION_WAIT_MS, () => resume(null))
      const resume = (found: Connection | null) => {
        timer.cancel()
        this.#waiting.delete(resume)
        resolve(found)
      }
      this.#waiting.add(resume)
    })
    if (connection === null) throw new StoreUnavailable('no server is reachable')
    return connection
  }

  #resumeWaiting(connection: Connection | null): void {
    for (const resume of this.#waiting) resume(connection)
  }

  #dial(): void {
    if (this.#isStopped) return
    const {dial, clock} = this.#options
    const url = this.#reconnect.nextUrl()
    const socket = dial(url, {
      onOpen: () => this.#sendHello(connection),
      onMessage: (text) => this.#onMessage(connection, text),
      onClose: (why) => this.#onClose(connection, why),
    })
    const connection: Connection = {
      url,
      socket,
      requests: new PendingRequests(clock, socket),
      helloAt: clock.monotonicMs(),
      isWelcomed: false,
      handshake: null,
    }
    this.#connection = connection
    connection.handshake = clock.after(HANDSHAKE_MS, () =>
      this.#leave(connection, 'no reply to the hello'),
    )
  }

  #sendHello(connection: Connection): void {
    const hello: HelloMessage = {
      kind: 'hello',
      protocol: PROTOCOL,
      clusterId: this.#clusterId,
      joined: this.#hasJoined,
      ...this.#options.describe(),
    }
    connection.socket.send(JSON.stringify(hello))
  }

  #onMessage(connection: Connection, text: string): void {
    if (this.#connection !== connection) return
    const decoded = decodeServerMessage(text)
    if (!decoded.ok) {
      if (decoded.why === 'protocol')
        return this.#refuse(connection, otherProtocol(connection.url, decoded.protocol))
      // A later version may send kinds that this one does not know.
      if (decoded.why === 'malformed') this.#leave(connection, 'it sent a malformed message')
      return
    }
    const {message} = decoded
    if (message.kind === 'welcome') void this.#onWelcome(connection, message)
    else if (message.kind === 'refused') this.#onRefused(connection, message)
    else if (message.kind === 'shutdown') this.#leave(connection, 'it shuts down')
    else if (message.kind === 'issued') void this.#onIssued(connection)
    else if (message.kind === 'notify') this.#options.onNotify(message.topic)
    else this.#onReply(connection, message)
  }

  async #onWelcome(connection: Connection, welcome: WelcomeMessage): Promise<void> {
    const {onJoined, saveClusterId, onRefused} = this.#options
    const {clusterId} = welcome
    if (connection.isWelcomed) return
    if (this.#clusterId !== null && this.#clusterId !== clusterId)
      return this.#refuse(connection, cannotJoin(connection.url, OTHER_CLUSTER), 'setting')
    if (this.#clusterId === null) {
      try {
        await saveClusterId(clusterId)
      } catch (error) {
        return onRefused(`The cluster id cannot be saved: ${messageOf(error)}.`, 'other')
      }
      this.#clusterId = clusterId
      if (this.#connection !== connection) return
    }
    connection.handshake?.cancel()
    connection.isWelcomed = true
    this.#hasJoined = true
    this.#lostAt = null
    this.#reportedAt = -Infinity
    this.#refusalReportedAt = -Infinity
    this.#acknowledge(connection.helloAt)
    this.#reconnect.reset()
    onJoined(connection.url)
    this.#resumeWaiting(connection)
  }

  async #onIssued(connection: Connection): Promise<void> {
    const {onIssued, onRefused} = this.#options
    // The server closes it too.
    this.#drop(connection)
    try {
      await onIssued()
    } catch (error) {
      return onRefused(`The token of this agent cannot be saved: ${messageOf(error)}.`, 'other')
    }
    this.#dial()
  }

  #onRefused(connection: Connection, {code, message}: {code: string; message: string}): void {
    // A name or an identity that another process took after this agent joined does not become free.
    const isTaken = code === 'name_taken' || code === 'alive'
    if (code === 'fenced' || (isTaken && this.#hasJoined)) {
      this.stop()
      return this.#options.onRefused(message, 'fenced')
    }
    if (code === 'cluster')
      return this.#refuse(connection, cannotJoin(connection.url, OTHER_CLUSTER), 'setting')
    if (code === 'server') return this.#refuse(connection, message, 'setting')
    if (code === 'protocol' || code === 'token' || isTaken) return this.#refuse(connection, message)
    this.#leave(connection, message)
  }

  /**
   * A refusal before the first join ends the agent: the configuration is wrong. Afterwards it tries other
   * servers.
   */
  #refuse(connection: Connection, sentence: string, kind: 'setting' | 'other' = 'other'): void {
    const {clock, onDisconnected, onRefused} = this.#options
    if (!this.#hasJoined) {
      this.stop()
      return onRefused(sentence, kind)
    }
    const now = clock.monotonicMs()
    if (now - this.#refusalReportedAt >= REPORT_EVERY_MS) {
      this.#refusalReportedAt = now
      onDisconnected(`${sentence} This agent retries all servers.`)
    }
    this.#lostAt ??= now
    this.#reportedAt = now
    this.#leave(connection, sentence)
  }

  #onReply(connection: Connection, reply: ReplyMessage | FailedMessage): void {
    const settled = connection.requests.settle(reply)
    if (settled === null) return
    const {kind, sentAt, result} = settled
    if (result === 'mismatched')
      return this.#leave(connection, 'its reply does not match the request')
    if (kind !== 'heartbeat') return
    if (result === 'replied') return this.#acknowledge(sentAt)
    // The server replies but cannot reach the store; another server may.
    if (this.disconnectedMs >= this.#options.limits.agentTimeoutMs)
      this.#leave(connection, 'it cannot reach its store')
  }

  #acknowledge(sentAt: number): void {
    this.#acknowledgedAt = Math.max(this.#acknowledgedAt, sentAt)
  }

  #onClose(connection: Connection, why: SocketClosed): void {
    if (this.#connection !== connection) return
    const permanent = permanentRefusal(why)
    if (permanent !== null) return this.#refuse(connection, cannotJoin(connection.url, permanent))
    this.#leave(connection, why.reason)
  }

  /** Drops this connection and dials another server after a backoff. */
  #leave(connection: Connection, why: string): void {
    if (this.#connection !== connection) return
    this.#drop(connection)
    this.#reportLost(connection, why)
    if (this.#isStopped) return
    this.#reconnectTimer?.cancel()
    this.#reconnectTimer = this.#options.clock.after(this.#reconnect.failedMs(), () => this.#dial())
  }

  #reportLost({isWelcomed, url}: Connection, why: string): void {
    const {clock, onDisconnected} = this.#options
    const now = clock.monotonicMs()
    if (now - this.#reportedAt < REPORT_EVERY_MS) return
    const what = isWelcomed ? 'lost the connection to' : 'cannot join through'
    const minutes = Math.round((now - (this.#lostAt ??= now)) / 60_000)
    const since = minutes === 0 ? '' : `, for ${minutes} min now`
    onDisconnected(`${what} ${url}: ${why}; retrying all servers${since}`)
    this.#reportedAt = now
  }

  #drop(connection: Connection): void {
    this.#connection = null
    connection.handshake?.cancel()
    connection.socket.terminate()
    connection.requests.failAll(`the connection to ${connection.url} was lost before the reply`)
  }
}

const OTHER_CLUSTER =
  'it belongs to another cluster than the one this agent joined first. Use another --data'

function cannotJoin(url: string, why: string): string {
  return `The server ${url} cannot be joined: ${why}.`
}

function otherProtocol(url: string, protocol: number): string {
  const versions = `it speaks version ${protocol} of the agent protocol, this agent ${PROTOCOL}`
  return cannotJoin(url, `${versions}. Update the ${protocol < PROTOCOL ? 'server' : 'agent'}`)
}

/**
 * Agents of a server that died reconnect over about a second. At the longest delay a server that returns is
 * found within 15 s and is not overrun. The jitter spreads five hundred agents that lost it at once.
 */
const BACKOFF = {firstMs: 1_000, maxMs: 15_000, jitter: {min: 0.1, max: 1}}

/** Order of the servers to dial, and the exponential backoff between dials. */
class ReconnectPolicy {
  readonly #urls: readonly string[]
  readonly #random: Pick<Random, 'fraction'>
  #next: number
  #failures = 0

  /** `urls` is not empty. Begins at a random one, so that servers share the agents. */
  constructor(urls: readonly string[], random: Pick<Random, 'fraction'>) {
    this.#urls = urls
    this.#random = random
    this.#next = Math.floor(random.fraction() * urls.length)
  }

  /** Round robin. */
  nextUrl(): string {
    const url = this.#urls[this.#next % this.#urls.length]!
    this.#next += 1
    return url
  }

  /** Delay before the next dial, after one that failed. It grows once all servers have been dialled. */
  failedMs(): number {
    const rounds = Math.floor(this.#failures / this.#urls.length)
    this.#failures += 1
    return backoffMs(BACKOFF, rounds + 1, this.#random.fraction())
  }

  reset(): void {
    this.#failures = 0
  }
}
