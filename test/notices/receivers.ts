/** Receivers of notices on this machine, and messages to send to them. */
import {once} from 'node:events'
import {
  createServer as createHttpServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import {createServer as createHttpsServer} from 'node:https'
import {type AddressInfo, createServer as createTcpServer, type Socket} from 'node:net'
import type {TestContext} from 'node:test'
import {SMTPServer, type SMTPServerOptions} from 'smtp-server'
import type {Delivery} from '../../src/core/notice-delivery.ts'
import type {NoticeIncident, NoticeMessage} from '../../src/core/notice-message.ts'
import {deliver} from '../../src/notices/channels/deliver.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {NetworkGuard} from '../../src/platform/network-guard.ts'
import type {NoticeChannel} from '../../src/ports/notice-channel.ts'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'
import type {Owner} from '../support/server-process.ts'

export const realClock = systemClock()

export function anIncident(changes: Partial<NoticeIncident> = {}): NoticeIncident {
  return {
    key: 'all-jobs/load/failed',
    job: 'load',
    openedAt: Date.parse('2026-11-22T02:12:05Z'),
    closedAt: null,
    count: 1,
    launch: 48240,
    execution: '48240-web-1-1',
    sentences: ['Launch 48240 ended failed: exit status 3.', '2 dependents did not run.'],
    advice: 'See the output.',
    outputTail: 'connecting\nrelation "orders" does not exist\n',
    url: 'https://belfry.example.org/ui/#/launches/48240',
    ownerEmail: '',
    ...changes,
  }
}

export function aMessage(changes: Partial<NoticeMessage> = {}): NoticeMessage {
  return {
    id: 'ntc_8f2k',
    attempt: 1,
    repeat: false,
    kind: 'opened',
    rule: 'all-jobs',
    severity: 'critical',
    cluster: 'c1f0',
    sentAt: Date.parse('2026-11-22T02:12:10Z'),
    summary: 'load failed: exit status 3; 2 dependents did not run',
    incidents: [anIncident()],
    more: 0,
    part: 0,
    ...changes,
  }
}

export function aChannel(
  kind: string,
  config: Record<string, unknown>,
  secrets: Record<string, string> = {},
): NoticeChannel {
  return {kind, config, secrets}
}

type Options = Parameters<typeof deliver>[2]

export function send(
  channel: NoticeChannel,
  message = aMessage(),
  options: Partial<Options> = {},
): Promise<Delivery> {
  return deliver(channel, message, {
    clock: realClock,
    addresses: new NetworkGuard([], []),
    signal: new AbortController().signal,
    roots: CERTIFICATE,
    ...options,
  })
}

export interface Received {
  readonly method: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
}

export interface HttpReceiver {
  readonly url: string
  readonly port: number
  /** Requests whose body arrived. */
  readonly received: Received[]
  /** Number of connections. */
  connections(): number
  /** Resolves when the next request has arrived. */
  next(): Promise<unknown>
}

type Answer = (response: ServerResponse, request: Received) => void

const accept: Answer = (response) => void response.writeHead(200).end('ok')

export async function startHttp(
  context: Owner,
  answer: Answer = accept,
  tls?: {readonly key: string; readonly cert: string},
): Promise<HttpReceiver> {
  const received: Received[] = []
  const listen = async (request: IncomingMessage, response: ServerResponse) => {
    let body = ''
    for await (const chunk of request) body += String(chunk)
    const seen = {method: request.method!, path: request.url!, headers: request.headers, body}
    received.push(seen)
    server.emit('received')
    answer(response, seen)
  }
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    listen(request, response).catch(() => response.destroy())
  }
  const server: Server =
    tls === undefined ? createHttpServer(onRequest) : createHttpsServer(tls, onRequest)
  let connections = 0
  server.on('connection', () => void (connections += 1))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => {
    server.closeAllConnections()
    server.close()
  })
  const {port} = server.address() as AddressInfo
  const url = `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`
  return {
    url,
    port,
    received,
    connections: () => connections,
    next: () => once(server, 'received'),
  }
}

export function startHttps(context: TestContext, answer: Answer = accept): Promise<HttpReceiver> {
  return startHttp(context, answer, {key: PRIVATE_KEY, cert: CERTIFICATE})
}

/** A server that speaks no protocol by itself. */
export async function startTcp(
  context: TestContext,
  onSocket: (socket: Socket) => void,
): Promise<{readonly port: number; next(): Promise<unknown>}> {
  const sockets = new Set<Socket>()
  const server = createTcpServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    onSocket(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  context.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  const {port} = server.address() as AddressInfo
  return {port, next: () => once(server, 'connection')}
}

/** A port on which nothing listens. */
export async function closedPort(): Promise<number> {
  const server = createTcpServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const {port} = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

export interface ReceivedMail {
  readonly from: string
  readonly to: readonly string[]
  readonly source: string
  readonly isSecure: boolean
  readonly user: string
}

export interface SmtpReceiver {
  readonly port: number
  readonly mails: ReceivedMail[]
}

/** A real mail server. By default it takes mails without login, and offers STARTTLS. */
export async function startSmtp(
  context: TestContext,
  options: SMTPServerOptions = {},
): Promise<SmtpReceiver> {
  const mails: ReceivedMail[] = []
  const server = new SMTPServer({
    key: PRIVATE_KEY,
    cert: CERTIFICATE,
    authOptional: true,
    logger: false,
    onData(stream, session, callback) {
      let source = ''
      stream.on('data', (chunk: Buffer) => void (source += chunk.toString('utf8')))
      stream.on('end', () => {
        const {mailFrom, rcptTo} = session.envelope
        mails.push({
          from: mailFrom === false ? '' : mailFrom.address,
          to: rcptTo.map(({address}) => address),
          source,
          isSecure: session.secure,
          user: String(session.user ?? ''),
        })
        callback()
      })
    },
    ...options,
  })
  server.on('error', () => undefined)
  server.listen(0, '127.0.0.1')
  await once(server.server, 'listening')
  context.after(() => new Promise<void>((resolve) => server.close(resolve)))
  const {port} = server.server.address() as AddressInfo
  return {port, mails}
}

/**
 * Connects to a mail server of a test instead of the port of the channel: those of mail are fixed.
 * `elsewhere`: the connection claims to be one to another machine.
 */
export class MailGuard extends NetworkGuard {
  readonly #port: number
  readonly #elsewhere: boolean

  constructor(port: number, {elsewhere = false} = {}) {
    super([], [])
    this.#port = port
    this.#elsewhere = elsewhere
  }

  override async connect(host: string, _port: number, signal: AbortSignal): Promise<Socket> {
    const socket = await super.connect(host, this.#port, signal)
    if (this.#elsewhere) Object.defineProperty(socket, 'remoteAddress', {value: '192.0.2.1'})
    return socket
  }
}
