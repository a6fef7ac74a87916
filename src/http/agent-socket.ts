/**
 * The door for agents: a WebSocket at one path, with the same questions asked of the request as of every
 * other (host name, token, origin), answered in HTTP before anything is opened. Bounds what a connection may
 * cost; what is said over it is for the hub.
 */
import {STATUS_CODES, type IncomingMessage} from 'node:http'
import type {Duplex} from 'node:stream'
import type {FastifyInstance} from 'fastify'
import ipaddr from 'ipaddr.js'
import {WebSocketServer, type RawData, type WebSocket} from 'ws'
import {DomainError} from '../core/errors.ts'
import type {Clock} from '../ports/runtime.ts'
import {AGENT_MESSAGE_BYTES_MAX, AGENT_PATH, type ServerMessage} from '../agents/protocol.ts'
import type {Authenticator} from './auth.ts'
import {refusalAnswer} from './errors.ts'

/** What takes in the agents; the composition root gives the cluster's. */
export interface AgentAdmissionOptions {
  connect(peer: {
    readonly address: string
    readonly port: number
    send(message: ServerMessage): void
    close(why: string): void
  }): {receive(text: string): Promise<void>; closed(): void}
  /** Sends every agent to another server. */
  stop(): Promise<void>
}

/** Some 20 KB each; more agents than a server of one process serves well. */
export const AGENTS_MAX = 2_000
/** Questions of one agent under way: beyond this its socket is not read until some are answered. */
const QUESTIONS_MAX = 32
/** Answers the agent has not read yet: beyond this it is asked no further until it has. */
const UNREAD_BYTES_SOFT = 2 ** 20
/** Beyond this, with the answers to what it had asked by then, it is cut. */
const UNREAD_BYTES_MAX = 64 * 2 ** 20
/** A connection on which no hello came by then is closed. */
const HELLO_MS = 5_000
/** Closed in order, the other side gets this long to do the same. */
const CLOSE_MS = 1_000
/** Codes of RFC 6455, section 7.4.1. */
const CLOSED = {normally: 1000, noText: 1003, unwanted: 1008} as const
/** What a close frame has room for. */
const REASON_BYTES_MAX = 123

/** Only these leave the ordinary way; others that name an upgrade are answered as if they did not. */
export function isAgentUpgrade({url, headers}: IncomingMessage): boolean {
  const path = (url ?? '').split('?', 1)[0]!.replace(/\/+$/, '')
  return path === AGENT_PATH && headers.upgrade?.toLowerCase() === 'websocket'
}

export function listenForAgents(
  app: FastifyInstance,
  {
    door,
    gate,
    clock,
  }: {readonly door: AgentAdmissionOptions; readonly gate: Authenticator; readonly clock: Clock},
): void {
  const sockets = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: AGENT_MESSAGE_BYTES_MAX,
    clientTracking: true,
  })
  let isClosing = false
  app.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    // A connection that breaks while it is being refused is nobody's concern.
    socket.on('error', () => socket.destroy())
    const refusal = refusalOf(request, gate, isClosing || sockets.clients.size >= AGENTS_MAX)
    if (refusal !== null) return refuse(socket, refusal)
    sockets.handleUpgrade(request, socket, head, (webSocket) =>
      serve(webSocket, request, door, clock),
    )
  })
  app.addHook('preClose', async () => {
    isClosing = true
    await door.stop()
    await allClosed(sockets, clock)
  })
}

function refusalOf(
  request: IncomingMessage,
  gate: Authenticator,
  isFull: boolean,
): DomainError | null {
  const {headers, httpVersion, socket} = request
  const refusal = gate.refusal({
    method: 'GET',
    headers,
    httpVersion,
    address: socket.remoteAddress ?? '',
    access: 'guarded',
    streams: true,
  })
  if (refusal !== null || !isFull) return refusal
  const sentence = `This server has ${AGENTS_MAX} agents or is about to end; ask another one.`
  return new DomainError('too_many_agents', sentence, {retryAfterSeconds: 5})
}

function refuse(socket: Duplex, refusal: DomainError): void {
  const {status, contentType, body, headers} = refusalAnswer(refusal, false, false)
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`,
    'connection: close',
    `content-type: ${contentType}`,
    `content-length: ${Buffer.byteLength(body)}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ]
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
}

function serve(
  webSocket: WebSocket,
  {socket}: IncomingMessage,
  door: AgentAdmissionOptions,
  clock: Clock,
): void {
  let underWay = 0
  let hasSpoken = false
  const close = (code: number, why: string) => {
    webSocket.close(code, shortened(why))
    clock.after(CLOSE_MS, () => webSocket.terminate())
  }
  // One that asks faster than it reads, or than the store answers, waits.
  const pace = () => {
    const isBehind = underWay >= QUESTIONS_MAX || webSocket.bufferedAmount > UNREAD_BYTES_SOFT
    if (isBehind) webSocket.pause()
    else webSocket.resume()
  }
  const connection = door.connect({
    address: plainAddress(socket.remoteAddress ?? ''),
    port: socket.remotePort ?? 0,
    send: (message) => {
      if (webSocket.readyState !== webSocket.OPEN) return
      webSocket.send(JSON.stringify(message), pace)
      if (webSocket.bufferedAmount > UNREAD_BYTES_MAX) webSocket.terminate()
    },
    close: (why) => close(CLOSED.normally, why),
  })
  const silence = clock.after(HELLO_MS, () => {
    if (!hasSpoken) close(CLOSED.unwanted, 'the agent did not introduce itself in time')
  })
  webSocket.on('message', (data: RawData, isBinary: boolean) => {
    if (isBinary) return close(CLOSED.noText, 'only texts are understood')
    hasSpoken = true
    underWay += 1
    pace()
    void connection.receive(textOf(data)).then(() => {
      underWay -= 1
      pace()
    })
  })
  // What is too large or against the protocol is already being answered with a close frame that says so.
  webSocket.on('error', () => clock.after(CLOSE_MS, () => webSocket.terminate()))
  webSocket.on('close', () => {
    silence.cancel()
    connection.closed()
  })
}

/** Cut between characters. */
function shortened(text: string): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= REASON_BYTES_MAX) return text
  return bytes
    .subarray(0, REASON_BYTES_MAX)
    .toString('utf8')
    .replace(/\uFFFD$/, '')
}

/** Resolves when no connection is open, by force after a while. */
async function allClosed(sockets: WebSocketServer, clock: Clock): Promise<void> {
  const open = [...sockets.clients]
  if (open.length === 0) return
  const timer = clock.after(CLOSE_MS, () => {
    for (const socket of open) socket.terminate()
  })
  await Promise.all(
    open
      .filter((socket) => socket.readyState !== socket.CLOSED)
      .map((socket) => new Promise<void>((resolve) => socket.once('close', () => resolve()))),
  )
  timer.cancel()
}

/** An IPv4 address that came in by an IPv6 socket is shown as what it is. */
function plainAddress(address: string): string {
  return ipaddr.isValid(address) ? ipaddr.process(address).toString() : address
}

function textOf(data: RawData): string {
  if (Array.isArray(data)) return Buffer.concat(data).toString('utf8')
  return Buffer.isBuffer(data) ? data.toString('utf8') : Buffer.from(data).toString('utf8')
}
