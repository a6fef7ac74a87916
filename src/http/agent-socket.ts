/**
 * The WebSocket endpoint for agents. Its upgrade requests are authenticated like all requests, before a
 * connection is opened, and need a token for agents. A connection ends with its token. This file limits what
 * a connection may cost (backpressure, message size, hello timeout); `agent-links.ts` limits how many there
 * are, and the hub handles the messages.
 */
import {STATUS_CODES, type IncomingMessage} from 'node:http'
import type {Duplex} from 'node:stream'
import type {FastifyInstance} from 'fastify'
import ipaddr from 'ipaddr.js'
import {WebSocketServer, type RawData, type WebSocket} from 'ws'
import {AGENT_MESSAGE_BYTES_MAX, AGENT_PATH} from '../agents/protocol.ts'
import type {Principal} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import type {AccessTable} from '../identity/token-cache.ts'
import type {Clock} from '../ports/runtime.ts'
import {type LinkLimits, type LinkRefusal, AgentConnectionLimits} from './agent-links.ts'
import {type Authenticator, authRequestOf} from './security/auth.ts'
import {type Connections, endConnection} from './security/connections.ts'
import {BARE_HEADERS, errorReply, headerLines} from './api/errors.ts'
import type {Agents, HttpOptions} from './options.ts'
import {isRefusedAccess} from './security/refusals.ts'
import {withoutExtraSlashes} from './api/request.ts'

/** Requests of one agent in progress. Beyond it, its socket is not read until some are answered. */
const REQUESTS_MAX = 32
/** Unsent replies to one agent. Beyond it, its socket is not read until it has read some. */
const UNSENT_BYTES_SOFT = 2 ** 20
/** Beyond it, with the replies to all requests in progress, the connection is terminated. */
const UNSENT_BYTES_MAX = 64 * 2 ** 20
/** A connection without a first message by then is closed. */
const HELLO_TIMEOUT_MS = 5_000
/** Time for the peer to complete the close handshake. */
const CLOSE_TIMEOUT_MS = 1_000
/** Codes of RFC 6455, section 7.4.1. */
const CLOSE_CODES = {normal: 1000, unsupportedData: 1003, policyViolation: 1008} as const
/** Limit of RFC 6455 for the reason in a close frame. */
const REASON_BYTES_MAX = 123

/** True for the upgrade to this endpoint. Other requests are served as if they named no upgrade. */
export function isAgentUpgrade({url, headers}: IncomingMessage): boolean {
  const path = withoutExtraSlashes(url ?? '')
    .split('?', 1)[0]!
    .replace(/\/+$/, '')
  return path === AGENT_PATH && headers.upgrade?.toLowerCase() === 'websocket'
}

export function listenForAgents(
  app: FastifyInstance,
  {
    hub,
    authenticator,
    access,
    connections,
    clock,
    onRefused,
    limits,
  }: Pick<HttpOptions, 'onRefused'> & {
    readonly limits: LinkLimits
    readonly hub: Agents
    readonly authenticator: Authenticator
    readonly access: Pick<AccessTable, 'watch'>
    readonly connections: Pick<Connections, 'trust'>
    readonly clock: Clock
  },
): void {
  const sockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: AGENT_MESSAGE_BYTES_MAX,
    clientTracking: true,
  })
  const links = new AgentConnectionLimits(limits, clock)
  let isClosing = false
  const upgrade = async (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // A session cannot open an agent link, whatever its token allows.
    const asked = authRequestOf(request, 'protected', true, false)
    const {principal, refusal} = await authenticator.authenticate(asked)
    if (socket.destroyed) return
    if (refusal !== null || principal === null || !mayConnect(principal)) {
      const why = refusal ?? notAllowed()
      const {address, method} = asked
      const asking = {principal, address, method, route: AGENT_PATH, url: request.url ?? ''}
      if (isRefusedAccess(why.code)) onRefused?.({...asking, code: why.code})
      return rejectUpgrade(socket, why)
    }
    connections.trust(request, null)
    const full = isClosing ? SHUTS_DOWN : links.refusal(principal)
    if (full !== null) return rejectUpgrade(socket, tooMany(full))
    sockets.handleUpgrade(request, socket, head, (webSocket) => {
      links.add(principal, webSocket)
      const close = serve(webSocket, request, {hub, caller: principal, clock})
      const unwatch = access.watch(principal, mayConnect, () => close(TOKEN_LOST))
      webSocket.once('close', unwatch)
    })
  }
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // A connection that breaks during the error reply needs no further handling.
    socket.on('error', () => socket.destroy())
    void upgrade(request, socket, head)
  })
  app.addHook('preClose', async () => {
    isClosing = true
    await hub.stop()
    await allClosed(sockets, clock)
  })
}

const TOKEN_LOST = 'the token of this agent was revoked or has expired'

function mayConnect({kind}: Principal): boolean {
  return kind === 'agent' || kind === 'join' || kind === 'management'
}

function notAllowed(): DomainError {
  const fix = 'Use a token of type agent or join, or a management token.'
  return new DomainError('not_allowed', `The token may not connect an agent. ${fix}`)
}

const SHUTS_DOWN: LinkRefusal = {why: 'the server shuts down', retryAfterMs: 5_000}

function tooMany({why, retryAfterMs}: LinkRefusal): DomainError {
  const message = `The agent cannot connect: ${why}. Use another server, or retry later.`
  const retryAfterSeconds = Math.ceil(retryAfterMs / 1_000)
  return new DomainError('too_many_agents', message, {retryAfterSeconds})
}

function rejectUpgrade(socket: Duplex, refusal: DomainError): void {
  const {status, contentType, body, headers} = errorReply(refusal, {
    asText: false,
    pretty: false,
    isScript: false,
  })
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`,
    'connection: close',
    `content-type: ${contentType}`,
    `content-length: ${Buffer.byteLength(body)}`,
    ...headerLines({...BARE_HEADERS, ...headers}),
  ]
  endConnection(socket, `${lines.join('\r\n')}\r\n\r\n${body}`)
}

/** Returns the function that closes the connection because its token is not accepted any more. */
function serve(
  webSocket: WebSocket,
  {socket}: IncomingMessage,
  {hub, caller, clock}: {readonly hub: Agents; readonly caller: Principal; readonly clock: Clock},
): (reason: string) => void {
  let requestsInProgress = 0
  let hasSentMessage = false
  const close = (code: number, reason: string) => {
    webSocket.close(code, shortened(reason))
    clock.after(CLOSE_TIMEOUT_MS, () => webSocket.terminate())
  }
  // Backpressure: stops reading while the agent sends faster than it reads, or than the store answers.
  const applyBackpressure = () => {
    const isBehind =
      requestsInProgress >= REQUESTS_MAX || webSocket.bufferedAmount > UNSENT_BYTES_SOFT
    if (isBehind) webSocket.pause()
    else webSocket.resume()
  }
  const connection = hub.connect({
    address: plainAddress(socket.remoteAddress ?? ''),
    port: socket.remotePort ?? 0,
    caller,
    send: (message) => {
      if (webSocket.readyState !== webSocket.OPEN) return
      webSocket.send(JSON.stringify(message), applyBackpressure)
      if (webSocket.bufferedAmount > UNSENT_BYTES_MAX) webSocket.terminate()
    },
    close: (reason) => close(CLOSE_CODES.normal, reason),
  })
  const helloTimer = clock.after(HELLO_TIMEOUT_MS, () => {
    if (!hasSentMessage) close(CLOSE_CODES.policyViolation, 'the agent sent no hello in time')
  })
  webSocket.on('message', (data: RawData, isBinary: boolean) => {
    if (isBinary) return close(CLOSE_CODES.unsupportedData, 'only text messages are supported')
    hasSentMessage = true
    requestsInProgress += 1
    applyBackpressure()
    void connection.receive(textOf(data)).then(() => {
      requestsInProgress -= 1
      applyBackpressure()
    })
  })
  // The close frame is sent by ws itself if a message is too large or violates the protocol.
  webSocket.on('error', () => clock.after(CLOSE_TIMEOUT_MS, () => webSocket.terminate()))
  webSocket.on('close', () => {
    helloTimer.cancel()
    connection.closed()
  })
  return (reason) => close(CLOSE_CODES.policyViolation, reason)
}

/** The reason of a close frame, without splitting a character. */
function shortened(reason: string): string {
  const bytes = Buffer.from(reason)
  if (bytes.length <= REASON_BYTES_MAX) return reason
  return bytes
    .subarray(0, REASON_BYTES_MAX)
    .toString('utf8')
    .replace(/\uFFFD$/, '')
}

/** Resolves when no connection is open. Terminates those that are open after `CLOSE_TIMEOUT_MS`. */
async function allClosed(sockets: WebSocketServer, clock: Clock): Promise<void> {
  const open = [...sockets.clients]
  if (open.length === 0) return
  const timer = clock.after(CLOSE_TIMEOUT_MS, () => {
    for (const socket of open) socket.terminate()
  })
  await Promise.all(
    open
      .filter((socket) => socket.readyState !== socket.CLOSED)
      .map((socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))),
  )
  timer.cancel()
}

/** An IPv4 address without the prefix that an IPv6 socket gives it. */
function plainAddress(address: string): string {
  return ipaddr.isValid(address) ? ipaddr.process(address).toString() : address
}

function textOf(data: RawData): string {
  if (Array.isArray(data)) return Buffer.concat(data).toString('utf8')
  return Buffer.isBuffer(data) ? data.toString('utf8') : Buffer.from(data).toString('utf8')
}
