/**
 * Connections of the HTTP server, from accept to close. Every socket is tracked, also those that Node has
 * released: a refused upgrade, a request that never ends. So none outlives its use, and a shutdown ends.
 * `places.ts` decides which one ends when there are too many. Requests of one connection keep their order
 * around those that change something.
 */
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http'
import {createServer as createHttpsServer} from 'node:https'
import {createServer as createNetServer, type Socket} from 'node:net'
import type {Duplex} from 'node:stream'
import type {Clock} from '../../ports/runtime.ts'
import {isSafeMethod} from './auth.ts'
import {
  CLOSE_TIMEOUT_MS,
  CONNECTIONS_CHECK_MS,
  HEADERS_TIMEOUT_MS,
  type HttpLimits,
  type HttpOptions,
  KEEP_ALIVE_TIMEOUT_MS,
  PIPELINED_MAX,
  REQUEST_TIMEOUT_MS,
} from '../options.ts'
import {type Place, type PlaceLimits, Places} from './places.ts'

export type ConnectionLimits = PlaceLimits &
  Pick<HttpLimits, 'anonymousKeepAliveMs' | 'replyStalledMs'>

export interface ConnectionsOptions extends Pick<HttpOptions, 'tls' | 'onConnectionsFull'> {
  readonly limits: ConnectionLimits
  readonly clock: Clock
  readonly isUpgrade: (request: IncomingMessage) => boolean
}

type Exchange = readonly [request: IncomingMessage, response: ServerResponse]

/** Requests of one connection that were received and not answered. */
interface Pipeline {
  /** The last one received; `null` = none yet. It may be answered. */
  newest: Exchange | null
  /** Passed to the handler and not answered. */
  started: number
  /** True if a started request may change something. */
  isChanging: boolean
  /** Requests that the handler has not received yet, oldest first. */
  readonly waiting: Exchange[]
}

export class Connections {
  readonly #options: ConnectionsOptions
  /** Accepted and not closed. With TLS, these are the sockets below it. */
  readonly #sockets = new Set<Socket>()
  readonly #places: Places
  /** Keys: the socket, and with TLS also the one above it, which requests have. */
  readonly #placeOf = new WeakMap<Duplex, Place>()
  /** Places of connections whose TLS handshake has not ended, by `endpointsOf`. */
  readonly #handshakes = new Map<string, Place>()
  /** Keys: the socket of the requests. */
  readonly #pipelines = new Map<Socket, Pipeline>()
  #isClosed = false
  #onIdle: (() => void) | null = null

  constructor(options: ConnectionsOptions) {
    this.#options = options
    this.#places = new Places(options.limits)
  }

  /** A server that is not listening yet. `handler` gets every request, in an order that is allowed. */
  createServer(handler: RequestListener): Server {
    const {tls, limits, isUpgrade} = this.#options
    const options = {
      // Limit of the TLS handshake, before the first request.
      handshakeTimeout: HEADERS_TIMEOUT_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      keepAliveTimeout: limits.anonymousKeepAliveMs,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      requireHostHeader: false,
      shouldUpgradeCallback: isUpgrade,
    }
    const server =
      tls === null ? createHttpServer(options) : createHttpsServer({...options, ...tls})
    server.on('connection', (socket: Socket) => this.#accept(socket))
    server.on('secureConnection', (socket: Socket) => this.#secure(socket))
    // The socket of a handshake that failed takes no reply, and would stay open for ever.
    server.on('tlsClientError', (_error: Error, socket: Socket) => socket.destroy())
    const receive = (request: IncomingMessage, response: ServerResponse) =>
      this.#receive(request, response, handler)
    server.on('request', receive)
    // Node answers expectations itself if they have no listener: an unknown one with an empty reply, the
    // other one with `100 Continue` before the token is checked.
    server.on('checkExpectation', receive)
    server.on('checkContinue', receive)
    server.setTimeout(limits.replyStalledMs, (socket: Socket) => this.#onInactive(socket))
    return server
  }

  /**
   * The connection of this request has a valid token: it may wait long for its next request, and makes way
   * last. `response`: not sent yet; `null` = an upgrade.
   */
  trust({socket}: IncomingMessage, response: ServerResponse | null): void {
    const place = this.#placeOf.get(socket)
    if (place !== undefined) this.#places.trust(place)
    if (response?.shouldKeepAlive === true)
      response.setHeader('keep-alive', `timeout=${KEEP_ALIVE_TIMEOUT_MS / 1000}`)
  }

  /**
   * True if a reply to malformed bytes would be read as such. While replies to earlier requests are due,
   * the client would take it for one of them.
   */
  mayReplyToMalformed(socket: Socket): boolean {
    const pipeline = this.#pipelines.get(socket)
    if (pipeline === undefined || pipeline.newest === null) return true
    const due = pipeline.started + pipeline.waiting.length
    const [request, response] = pipeline.newest
    return due === 0 || (due === 1 && !request.complete && !response.headersSent)
  }

  /**
   * Graceful shutdown: waits up to `CLOSE_TIMEOUT_MS` for the replies to received requests. Then it closes
   * all connections, and those that are accepted from now on.
   */
  async close(): Promise<void> {
    await this.#idleOrTimeout()
    this.#isClosed = true
    for (const socket of this.#sockets) socket.destroy()
  }

  #accept(socket: Socket): void {
    const onFull = () => this.#options.onConnectionsFull?.()
    const place = this.#isClosed ? null : this.#places.take(socket, onFull)
    if (place === null) {
      if (!this.#isClosed) onFull()
      return void socket.destroy()
    }
    this.#sockets.add(socket)
    this.#placeOf.set(socket, place)
    const endpoints = endpointsOf(socket)
    if (this.#options.tls !== null) this.#handshakes.set(endpoints, place)
    socket.once('close', () => {
      this.#sockets.delete(socket)
      this.#places.free(place)
      if (this.#handshakes.get(endpoints) === place) this.#handshakes.delete(endpoints)
    })
  }

  /** Node does not say which socket is below a TLS socket. Both have the same endpoints. */
  #secure(socket: Socket): void {
    const endpoints = endpointsOf(socket)
    const place = this.#handshakes.get(endpoints)
    if (place !== undefined) this.#placeOf.set(socket, place)
    this.#handshakes.delete(endpoints)
  }

  /**
   * A request starts when all earlier ones of its connection are answered. Requests that change nothing may
   * run together (RFC 9112, section 9.3.2).
   */
  #receive(request: IncomingMessage, response: ServerResponse, handler: RequestListener): void {
    const {socket} = request
    const pipeline = this.#pipelines.get(socket) ?? this.#open(socket)
    pipeline.newest = [request, response]
    if (pipeline.waiting.length === 0 && mayStart(pipeline, request))
      return this.#start(pipeline, request, response, handler)
    pipeline.waiting.push([request, response])
    if (pipeline.waiting.length > PIPELINED_MAX) socket.destroy()
  }

  #open(socket: Socket): Pipeline {
    const pipeline: Pipeline = {newest: null, started: 0, isChanging: false, waiting: []}
    this.#pipelines.set(socket, pipeline)
    // Requests that wait are dropped with their connection: no client can read the replies.
    socket.once('close', () => {
      pipeline.waiting.length = 0
      this.#pipelines.delete(socket)
      this.#checkIdle()
    })
    return pipeline
  }

  #start(
    pipeline: Pipeline,
    request: IncomingMessage,
    response: ServerResponse,
    handler: RequestListener,
  ): void {
    pipeline.started += 1
    this.#use(request.socket, true)
    if (!isSafeMethod(request.method)) pipeline.isChanging = true
    response.once('close', () => {
      pipeline.started -= 1
      if (pipeline.started === 0) pipeline.isChanging = false
      this.#startNext(pipeline, handler)
      if (pipeline.started === 0) this.#use(request.socket, false)
      this.#checkIdle()
    })
    handler(request, response)
  }

  #startNext(pipeline: Pipeline, handler: RequestListener): void {
    for (;;) {
      const next = pipeline.waiting[0]
      if (next === undefined || !mayStart(pipeline, next[0])) return
      pipeline.waiting.shift()
      this.#start(pipeline, next[0], next[1], handler)
    }
  }

  #use(socket: Socket, isBusy: boolean): void {
    const place = this.#placeOf.get(socket)
    if (place === undefined) return
    this.#places.use(place, isBusy)
    // Node has set the short timeout.
    if (place.isTrusted && !isBusy) socket.setTimeout(KEEP_ALIVE_TIMEOUT_MS)
  }

  /** Neither a read nor a write made progress for `replyStalledMs`, or for the keep-alive timeout. */
  #onInactive(socket: Socket): void {
    const isBusy = (this.#pipelines.get(socket)?.started ?? 0) > 0
    // A client that does not read its reply holds it in memory. A handler may take longer to reply.
    if (!isBusy || socket.writableLength > 0) socket.destroy()
  }

  get #isIdle(): boolean {
    for (const {started, waiting} of this.#pipelines.values())
      if (started + waiting.length > 0) return false
    return true
  }

  #checkIdle(): void {
    if (this.#onIdle !== null && this.#isIdle) this.#onIdle()
  }

  #idleOrTimeout(): Promise<void> {
    if (this.#isIdle) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = this.#options.clock.after(CLOSE_TIMEOUT_MS, resolve)
      this.#onIdle = () => {
        timer.cancel()
        resolve()
      }
    })
  }
}

function endpointsOf({remoteAddress, remotePort, localAddress, localPort}: Socket): string {
  return `${remoteAddress} ${remotePort} ${localAddress} ${localPort}`
}

function mayStart({started, isChanging}: Pipeline, {method}: IncomingMessage): boolean {
  return started === 0 || (!isChanging && isSafeMethod(method))
}

/**
 * Accepts connections on a further address, for as long as the server listens. Resolves also when the address
 * cannot be used.
 */
export function listenAlso(
  server: Server,
  address: {readonly host: string; readonly port: number},
): Promise<void> {
  const other = createNetServer({allowHalfOpen: true, noDelay: true}, (socket) =>
    server.emit('connection', socket),
  )
  server.once('close', () => other.close())
  return new Promise((resolve) => {
    other.once('error', () => resolve())
    other.listen(address, resolve)
  })
}

/** Sends the last bytes of a connection. Without `destroy`, its client decides how long it stays open. */
export function endConnection(socket: Duplex, text: string): void {
  socket.once('finish', () => socket.destroy())
  socket.end(text)
}
