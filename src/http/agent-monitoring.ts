/**
 * The HTTP server of an agent: metrics and health, and nothing else. Requests are authenticated as on a
 * server; the only token is that of the configuration.
 */
import type {IncomingMessage, Server, ServerResponse} from 'node:http'
import type {Socket} from 'node:net'
import {Server as TlsServer} from 'node:tls'
import {DomainError} from '../core/errors.ts'
import {digestOf, LOCAL} from '../identity/token-cache.ts'
import type {Clock} from '../ports/runtime.ts'
import {Authenticator, authRequestOf} from './security/auth.ts'
import {type ConnectionLimits, Connections} from './security/connections.ts'
import {BARE_HEADERS, errorReply, type ReplyHeaders, replyToMalformedRequest} from './api/errors.ts'
import {JSON_TYPE} from './api/reply.ts'

export interface AgentServerSettings {
  /** `null` = requests from this machine need none. */
  readonly token: string | null
  /** PEM texts; `null` = plain HTTP. */
  readonly tls: {readonly cert: string; readonly key: string} | null
}

export interface AgentServerOptions extends AgentServerSettings {
  readonly limits: ConnectionLimits
  readonly nodeName: string
  readonly clock: Clock
  readonly metrics: () => Promise<{readonly contentType: string; readonly body: string}>
  /** True if the agent is a member of its cluster and has a connection to it. */
  readonly isReady: () => boolean
  readonly onFault: (error: unknown) => void
}

export interface AgentServer {
  /** Server that does not listen yet. */
  readonly server: Server
  /** Puts another certificate and token into effect. */
  configure(settings: AgentServerSettings): void
  close(): Promise<void>
}

interface Reply {
  readonly status: number
  readonly contentType: string
  readonly body: string
  readonly headers?: ReplyHeaders
}

interface Page {
  readonly isPublic: boolean
  readonly reply: () => Reply | Promise<Reply>
}

export function createAgentServer(options: AgentServerOptions): AgentServer {
  const connections = new Connections({...options, isUpgrade: () => false})
  let token = options.token === null ? null : digestOf(options.token)
  const authenticator = new Authenticator({
    ...options,
    allowHosts: [],
    corsOrigins: [],
    access: {
      find: (digest) => (digest === token ? LOCAL : null),
      findSession: () => null,
      get isLocked() {
        return token !== null
      },
      refresh: async () => undefined,
    },
  })
  const pages = pagesOf(options)
  const server = connections.createServer((request, response) => {
    void answer(request, pages, authenticator, () => {
      if (token !== null) connections.trust(request, response)
    }).then(
      (reply) => send(response, request.method === 'HEAD', reply),
      (error: unknown) => {
        options.onFault(error)
        response.destroy()
      },
    )
  })
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (!connections.mayReplyToMalformed(socket)) socket.destroy()
    else replyToMalformedRequest(error, socket, options.nodeName)
  })
  return {
    server,
    configure: (settings) => {
      token = settings.token === null ? null : digestOf(settings.token)
      if (settings.tls !== null && server instanceof TlsServer)
        server.setSecureContext(settings.tls)
    },
    close: async () => {
      server.close()
      await connections.close()
    },
  }
}

function pagesOf({metrics, isReady}: AgentServerOptions): ReadonlyMap<string, Page> {
  const health = (status: number, value: object): Reply => {
    return {status, contentType: JSON_TYPE, body: JSON.stringify(value)}
  }
  return new Map<string, Page>([
    ['/livez', {isPublic: true, reply: () => health(200, {status: 'alive'})}],
    [
      '/readyz',
      {
        isPublic: true,
        reply: () =>
          isReady()
            ? health(200, {status: 'ready', checks: {server: 'ok'}})
            : health(503, {status: 'not_ready', checks: {server: 'no server is connected'}}),
      },
    ],
    ['/metrics', {isPublic: false, reply: async () => ({status: 200, ...(await metrics())})}],
  ])
}

async function answer(
  request: IncomingMessage,
  pages: ReadonlyMap<string, Page>,
  authenticator: Authenticator,
  onAccepted: () => void,
): Promise<Reply> {
  const [path = ''] = (request.url ?? '').split('?')
  const page = pages.get(path)
  // Health reveals nothing, and probes may use any host name.
  if (page?.isPublic !== true) {
    const {refusal} = await authenticator.authenticate(
      authRequestOf(request, 'protected', false, false),
    )
    if (refusal !== null) return refused(refusal.code === 'host_not_served' ? otherHost() : refusal)
    onAccepted()
  }
  if (page === undefined) {
    const known = [...pages.keys()].join(', ')
    return refused(new DomainError('route_unknown', `An agent has only these pages: ${known}.`))
  }
  if (request.method === 'GET' || request.method === 'HEAD') return await page.reply()
  const reply = refused(new DomainError('method_not_allowed', `${path} takes only GET and HEAD.`))
  return {...reply, headers: {...reply.headers, allow: 'GET, HEAD'}}
}

/** An agent has no list of host names that it serves. */
function otherHost(): DomainError {
  return new DomainError(
    'host_not_served',
    'The host name of the request is not allowed. Use an IP address, localhost or the node name, or set ' +
      '--metrics-token-file.',
  )
}

function refused(refusal: DomainError): Reply {
  return errorReply(refusal, {asText: false, pretty: false, isScript: false})
}

function send(response: ServerResponse, isHead: boolean, reply: Reply): void {
  const {status, contentType, body, headers} = reply
  response.writeHead(status, {
    ...BARE_HEADERS,
    ...headers,
    'content-type': contentType,
    'content-length': Buffer.byteLength(body),
  })
  response.end(isHead ? undefined : body)
}
