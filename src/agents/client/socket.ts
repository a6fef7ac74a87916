/**
 * WebSocket to a server: the only place of an agent that knows the `ws` package. It opens, transports texts
 * and reports once why it closed. The link decides when to dial again.
 */
import {WebSocket, type RawData} from 'ws'
import {schemeMismatch} from '../../platform/peer-protocol.ts'
import {AGENT_PATH, SERVER_MESSAGE_BYTES_MAX} from '../protocol.ts'

export interface SocketClosed {
  readonly reason: string
  /** HTTP status with which the server refused the connection; `null` = it was not refused. */
  readonly status: number | null
  /** The agent has sent no token. */
  readonly isAnonymous?: boolean
}

export interface SocketHandlers {
  onOpen(): void
  onMessage(text: string): void
  /** Called once, and no message follows. */
  onClose(why: SocketClosed): void
}

export interface AgentSocket {
  send(text: string): void
  /** Bytes accepted by `send` and not sent yet. */
  readonly bufferedBytes: number
  /** Closes the connection at once, without the closing handshake. */
  terminate(): void
}

export type Dial = (url: string, handlers: SocketHandlers) => AgentSocket

export interface DialOptions {
  readonly token: string | null
  /** PEM text of the trusted certificate authorities; `null` = those of the platform. */
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
    let isOpen = false
    const close = (reason: string, status: number | null = null) => {
      if (isClosed) return
      isClosed = true
      handlers.onClose({reason, status, isAnonymous: token === null})
    }
    socket.on('open', () => {
      isOpen = true
      if (!isClosed) handlers.onOpen()
    })
    socket.on('message', (data: RawData, isBinary: boolean) => {
      if (isClosed) return
      if (isBinary) return socket.terminate()
      handlers.onMessage(textOf(data))
    })
    socket.on('unexpected-response', (_request, response) => {
      close(`HTTP status ${response.statusCode}`, response.statusCode ?? null)
      response.resume()
      socket.terminate()
    })
    const fail = async (failure: Error) =>
      close(isOpen ? failure.message : await dialFailure(url, failure))
    socket.on('error', (failure) => void fail(failure))
    // A dial that failed has an error, which says more.
    socket.on('close', (code, reason) => isOpen && close(reason.toString() || `closed (${code})`))
    return {
      send: (text) => socket.send(text),
      get bufferedBytes() {
        return socket.bufferedAmount
      },
      terminate: () => {
        close('terminated')
        socket.terminate()
      },
    }
  }
}

/** Codes of certificates that no trusted authority has signed. */
const UNTRUSTED = /SELF_SIGNED|UNABLE_TO_(VERIFY|GET)/

/** Why a server cannot be reached, with the fix, as a clause. */
async function dialFailure(url: string, error: Error & {code?: string}): Promise<string> {
  const {code = '', message} = error
  if (UNTRUSTED.test(code))
    return `its certificate is not trusted (${code}): set --tls-ca to the file of its authority`
  if (code === 'ECONNREFUSED')
    return `nothing listens there (${code}). Start a server, or set another URL with --server`
  const mismatch = await schemeMismatch(url, code)
  return mismatch === null ? message : `it ${mismatch}`
}

/** HTTP statuses that a second attempt meets again: a wrong token, host name or address. */
const PERMANENT_REFUSALS: Readonly<Record<number, string>> = {
  400: 'it does not support agents',
  401: 'it refuses the token. Set the right one with --token or --token-file',
  403: 'it does not accept agents without a token, or with a token of this type. Create one of type agent',
  404: 'it has no endpoint for agents: it is not a Belfry server, or it is an older version',
  421: 'it refuses that host name. Start it with --allow-host',
}

/** Why dialling this server again is useless, and the fix; `null` = it may succeed. */
export function permanentRefusal({
  status,
  isAnonymous = false,
}: Pick<SocketClosed, 'status' | 'isAnonymous'>): string | null {
  if (status === 401 && isAnonymous)
    return 'it needs a token. Create one with belfry token create NAME --type agent, and set --token-file'
  return (status === null ? undefined : PERMANENT_REFUSALS[status]) ?? null
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
