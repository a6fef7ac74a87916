/**
 * One WebSocket to a server: the only place of an agent that knows the `ws` package. It opens, carries texts
 * and says once why it closed; when to dial again is for the link.
 */
import {WebSocket, type RawData} from 'ws'
import {AGENT_PATH, SERVER_MESSAGE_BYTES_MAX} from '../protocol.ts'

export interface Closed {
  readonly reason: string
  /** The HTTP status with which the server refused the connection; `null` = it was not refused. */
  readonly status: number | null
}

export interface SocketHandlers {
  opened(): void
  heard(text: string): void
  /** Once, whatever happened; nothing is heard afterwards. */
  closed(why: Closed): void
}

export interface AgentSocket {
  send(text: string): void
  /** Sent and not gone out yet. */
  readonly bufferedBytes: number
  /** Cuts it at once. */
  cut(): void
}

export type Dial = (url: string, handlers: SocketHandlers) => AgentSocket

export interface DialOptions {
  readonly token: string | null
  /** PEM text of the authorities that are trusted instead of the usual ones; `null` = those. */
  readonly ca: string | null
  readonly handshakeMs: number
  readonly version: string
}

export function webSocketDial({token, ca, handshakeMs, version}: DialOptions): Dial {
  return (url, handlers) => {
    const socket = new WebSocket(agentUrl(url), {
      perMessageDeflate: false,
      maxPayload: SERVER_MESSAGE_BYTES_MAX,
      handshakeTimeout: handshakeMs,
      followRedirects: false,
      headers: {
        'user-agent': `belfry-agent/${version}`,
        ...(token === null ? {} : {'x-service-token': token}),
      },
      ...(ca === null ? {} : {ca}),
    })
    let isClosed = false
    const closed = (reason: string, status: number | null = null) => {
      if (isClosed) return
      isClosed = true
      handlers.closed({reason, status})
    }
    socket.on('open', () => isClosed || handlers.opened())
    socket.on('message', (data: RawData, isBinary: boolean) => {
      if (isClosed) return
      if (isBinary) return socket.terminate()
      handlers.heard(textOf(data))
    })
    socket.on('unexpected-response', (_request, response) => {
      closed(`it answered ${response.statusCode}`, response.statusCode ?? null)
      response.resume()
      socket.terminate()
    })
    socket.on('error', (error) => closed(error.message))
    socket.on('close', (code, reason) => closed(reason.toString() || `closed (${code})`))
    return {
      send: (text) => socket.send(text),
      get bufferedBytes() {
        return socket.bufferedAmount
      },
      cut: () => {
        closed('cut')
        socket.terminate()
      },
    }
  }
}

/** Statuses that the same request meets again: a wrong token, host name or address. */
const LASTING_REFUSALS: Readonly<Record<number, string>> = {
  400: 'does not understand agents',
  401: 'refuses the token; give the right one with --token or --token-file',
  403: 'refuses this agent; it needs a token, given to both with --token',
  404: 'knows no agents; it is no Belfry server, or of an older version',
  421: 'does not answer under that host name; start it with --allow-host',
}

/** Why dialling that server again is of no use, as a sentence without its subject; `null` = it may be. */
export function lastingRefusal(status: number | null): string | null {
  return (status === null ? undefined : LASTING_REFUSALS[status]) ?? null
}

/** `http://host:8080` → `ws://host:8080/v1/agent`. */
export function agentUrl(url: string): string {
  const target = new URL(url)
  target.protocol = target.protocol === 'https:' ? 'wss:' : 'ws:'
  target.pathname = AGENT_PATH
  target.search = ''
  target.hash = ''
  return target.href
}

function textOf(data: RawData): string {
  if (Array.isArray(data)) return Buffer.concat(data).toString('utf8')
  return Buffer.isBuffer(data) ? data.toString('utf8') : Buffer.from(data).toString('utf8')
}
