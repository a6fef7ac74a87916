/**
 * Request to one server over a connection of its own. `fetch` has no bound for the connection and does not
 * say whether a failed request was sent; a request that was not sent may go to another server.
 */
import {request as requestHttp, type ClientRequest, type IncomingMessage} from 'node:http'
import {request as requestHttps} from 'node:https'
import {Readable} from 'node:stream'
import {codeOf} from '../lib/error.ts'

/** Exceeds a handshake with a distant server, and the next of several servers is tried soon. */
const CONNECT_TIMEOUT_MS = 5_000

export interface Outgoing {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string | FormData | null
  /** Longest time without a byte in either direction. Keep-alives of a stream count as bytes. */
  readonly idleMs: number
}

/** The response is missing or incomplete. `isSent`: the server may have the request. */
export class ExchangeFailed extends Error {
  override readonly name = 'ExchangeFailed'
  /** Code such as `ECONNREFUSED`; `TIMEOUT` = the server accepted the connection and was silent. */
  readonly code: string
  readonly isSent: boolean

  constructor(code: string, isSent: boolean, options: ErrorOptions = {}) {
    super(code, options)
    this.code = code
    this.isSent = isSent
  }
}

export const TIMEOUT = 'TIMEOUT'

/** Follows no redirect. Throws `ExchangeFailed`; so does reading the body. */
export async function exchange(url: URL, outgoing: Outgoing): Promise<Response> {
  const isTls = url.protocol === 'https:'
  const {method, body, idleMs} = outgoing
  const encoded = body === null ? null : new Response(body)
  const headers = {...outgoing.headers}
  const type = encoded?.headers.get('content-type')
  if (type != null) headers['content-type'] ??= type
  if (typeof body === 'string') headers['content-length'] = String(Buffer.byteLength(body))
  // A server that refuses a file before it has read it would close the connection: the next write would fail,
  // and Node would drop the reply. This way the server reads the rest first.
  if (body instanceof FormData) headers['connection'] = 'keep-alive'
  const request = (isTls ? requestHttps : requestHttp)(url, {
    method,
    headers,
    agent: false,
    timeout: Math.min(CONNECT_TIMEOUT_MS, idleMs),
  })
  const replied = repliesOf(request, isTls, idleMs)
  if (encoded?.body == null) request.end()
  // A failure of the request is reported by `replied`.
  else
    Readable.fromWeb(encoded.body)
      .on('error', (error) => request.destroy(error))
      .pipe(request)
  const incoming = await replied
  return responseOf(incoming, idleMs)
}

function repliesOf(
  request: ClientRequest,
  isTls: boolean,
  idleMs: number,
): Promise<IncomingMessage> {
  let isSent = false
  request.once('socket', (socket) => {
    socket.once(isTls ? 'secureConnect' : 'connect', () => {
      isSent = true
      socket.setTimeout(idleMs)
    })
  })
  return new Promise((resolve, reject) => {
    request.on('timeout', () => request.destroy(new ExchangeFailed(TIMEOUT, isSent)))
    request.on('response', (incoming) => resolve(incoming))
    request.on('error', (error) => {
      if (error instanceof ExchangeFailed) reject(error)
      else reject(new ExchangeFailed(codeOf(error), isSent, {cause: error}))
    })
  })
}

/** Statuses whose response has no body. */
const BODILESS = [204, 205, 304]

function responseOf(incoming: IncomingMessage, idleMs: number): Response {
  incoming.socket.removeAllListeners('timeout')
  incoming.socket.setTimeout(idleMs, () => incoming.destroy(new ExchangeFailed(TIMEOUT, true)))
  const headers = new Headers()
  for (let at = 0; at < incoming.rawHeaders.length; at += 2)
    headers.append(incoming.rawHeaders[at]!, incoming.rawHeaders[at + 1]!)
  const status = incoming.statusCode!
  const body = Readable.toWeb(incoming) as ReadableStream<Uint8Array>
  return new Response(BODILESS.includes(status) ? null : body, {status, headers})
}
