/**
 * The HTTP server: one Fastify instance with authentication, body parsing, error replies and all routes. The
 * composition root listens and closes. Routes only translate; operations and `Authenticator` decide.
 */
import type {IncomingMessage} from 'node:http'
import type {Socket} from 'node:net'
import helmet from '@fastify/helmet'
import fastify, {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify'
import {DomainError} from '../core/errors.ts'
import {assert, AssertionFailed} from '../lib/assert.ts'
import type {Operations} from '../operations/operations.ts'
import {Query} from '../wire/query.ts'
import {type RouteAccess, routeRefusal} from './security/access.ts'
import {isAgentUpgrade, listenForAgents} from './agent-socket.ts'
import {type Access, Authenticator, authRequestOf} from './security/auth.ts'
import {compressReplies} from './api/compression.ts'
import {Connections} from './security/connections.ts'
import {Cors} from './security/cors.ts'
import {
  asRefusal,
  BARE_HEADERS,
  errorReply,
  internalError,
  replyToMalformedRequest,
} from './api/errors.ts'
import {EventStreams, OpenStreams, OutputStreams} from './api/event-streams.ts'
import {LongLists} from './api/long-lists.ts'
import {collectRoutes, routeOpenApi, type Routes} from './api/openapi.ts'
import {type HttpOptions, PARAMETER_LENGTH_MAX, type SentReply} from './options.ts'
import {PathTable} from './api/paths.ts'
import {checkParameters} from './api/query-parameters.ts'
import {isRefusedAccess} from './security/refusals.ts'
import {sendInPieces} from './api/reply.ts'
import {endWithAccess} from './security/revocation.ts'
import {
  acceptsEvents,
  isDryRun,
  isPageScript,
  isPretty,
  queryOf,
  readBody,
  withoutExtraSlashes,
} from './api/request.ts'
import {routeAudit} from './routes/audit.ts'
import {routeChannels} from './routes/channels.ts'
import {routeCluster} from './routes/cluster.ts'
import {routeFiles} from './routes/files.ts'
import {routeAcrossJobs} from './routes/across-jobs.ts'
import {routeProblems} from './routes/problems.ts'
import {routeHistory} from './routes/history.ts'
import {routeJobs} from './routes/jobs.ts'
import {routePlanned} from './routes/planned.ts'
import {routeStatus} from './routes/status.ts'
import {routeSubmits} from './routes/submits.ts'
import {routeOidc} from './routes/oidc.ts'
import {routeNodes} from './routes/nodes.ts'
import {routePolicies} from './routes/policies.ts'
import {routeFiring} from './routes/firing.ts'
import {routeSettings} from './routes/settings.ts'
import {routeNotices} from './routes/notices.ts'
import {routeRules} from './routes/rules.ts'
import {routeSecrets} from './routes/secrets.ts'
import {routeSession} from './routes/session.ts'
import {routeTokens} from './routes/tokens.ts'
import {routeDocs, routeService, routeUi} from './routes/service.ts'

/** Builds the server. The caller calls `listen` and `close`; `close` is a graceful shutdown. */
export function createHttpServer(operations: Operations, options: HttpOptions): FastifyInstance {
  const connections = new Connections({
    ...options,
    isUpgrade: (request) => options.agents !== undefined && isAgentUpgrade(request),
  })
  const app = newFastify(options, connections)
  const authenticator = new Authenticator(options)
  const paths = new PathTable()
  const streams = new OpenStreams(options)
  app.addHook('onRoute', ({method, url, config}) => {
    const access = config?.access
    assert(access !== undefined, `${String(method)} ${url} declares what it needs of a token`)
    paths.add(method, url === '' ? '/' : url, access)
  })
  parseBodies(app, options)
  handleErrors(app, options, paths)
  // The first hook of all, so that failed authentication has these headers too.
  app.register(helmet, {global: true, ...securityHeaders(options.tls !== null)})
  app.after((error) => {
    if (error !== null && error !== undefined) throw error
    authenticate(app, authenticator, connections, options)
    checkParameters(app)
    compressReplies(app)
    sendInPieces(app)
    reportReplies(app, options)
    // The shutdown ends first what never ends by itself: agents and event streams.
    if (options.agents !== undefined)
      listenForAgents(app, {...options, hub: options.agents, authenticator, connections})
    app.addHook('preClose', async () => {
      streams.endAll()
      await connections.close()
    })
  })
  app.register(async (root) => {
    const routes = collectRoutes(root)
    await root.register((v1) => routeV1(v1, operations, {...options, routes, streams, paths}), {
      prefix: '/v1',
    })
    routeService(root, options)
    routeDocs(root)
    if (options.ui) routeUi(root, options.oidc !== undefined)
    if (options.oidc !== undefined)
      routeOidc(root, operations, options.oidc, {...options, authenticator})
  })
  return app
}

interface V1Options extends HttpOptions {
  readonly routes: Routes
  readonly streams: OpenStreams
  readonly paths: PathTable
}

async function routeV1(
  v1: FastifyInstance,
  operations: Operations,
  {routes, streams, paths, ...options}: V1Options,
): Promise<void> {
  const lists = new LongLists(options.clock, options.limits.longListsMax)
  const shared = {...options, lists}
  routeSubmits(v1, operations)
  routeJobs(v1, operations, shared)
  routeHistory(v1, operations, shared, new OutputStreams(operations, streams))
  routeAcrossJobs(v1, operations)
  routeProblems(v1, operations)
  routePlanned(v1, operations)
  routeStatus(v1, operations)
  routeCluster(v1, operations, options, new EventStreams(options, streams))
  routeNodes(v1, operations)
  routePolicies(v1, operations, paths)
  routeTokens(v1, operations, paths)
  routeFiring(v1, operations)
  routeSettings(v1, operations)
  routeSecrets(v1, operations)
  routeChannels(v1, operations)
  routeRules(v1, operations)
  routeNotices(v1, operations)
  routeSession(v1, operations, options)
  routeAudit(v1, operations, shared)
  routeOpenApi(v1, routes, options.version)
  await v1.register((scope) => routeFiles(scope, operations, options))
}

function newFastify(options: HttpOptions, connections: Connections): FastifyInstance {
  return fastify({
    serverFactory: (handler) => connections.createServer(handler),
    logger: false,
    trustProxy: false,
    return503OnClosing: false,
    exposeHeadRoutes: true,
    rewriteUrl: ({url}) => withoutExtraSlashes(url ?? ''),
    schemaController: NO_COMPILERS,
    routerOptions: {
      ignoreTrailingSlash: true,
      maxParamLength: PARAMETER_LENGTH_MAX,
      // Fastify's type is a plain object; `queryOf` reads the real one.
      querystringParser: (text: string) => new Query(text) as unknown as Record<string, string>,
    },
    clientErrorHandler: (error: NodeJS.ErrnoException, socket: Socket) => {
      if (!connections.mayReplyToMalformed(socket)) socket.destroy()
      else replyToMalformedRequest(error, socket, options.nodeName)
    },
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      reply.headers({...BARE_HEADERS, 'x-whom': options.nodeName})
      sendError(error, request, reply, options)
    },
  })
}

function securityHeaders(tls: boolean) {
  return {
    hsts: tls,
    contentSecurityPolicy: {
      useDefaults: false,
      directives: {
        defaultSrc: ["'none'"],
        scriptSrc: ["'self'"],
        styleSrc: ["'self'"],
        imgSrc: ["'self'", 'data:'],
        fontSrc: ["'self'"],
        connectSrc: ["'self'"],
        baseUri: ["'none'"],
        formAction: ["'self'"],
        frameAncestors: ["'none'"],
      },
    },
    frameguard: {action: 'deny' as const},
    referrerPolicy: {policy: 'no-referrer' as const},
  }
}

/** Fastify loads its own compilers otherwise, although no route has a schema: decoders check requests. */
const NO_COMPILERS = {
  compilersFactory: {buildValidator: neverBuilt, buildSerializer: neverBuilt},
}

function neverBuilt(): never {
  throw new AssertionFailed('no route has a schema')
}

const MULTIPART = /^multipart\/form-data *;/i

/** Parser for all content types: a body is bytes. Operations decode them; many bodies are ignored. */
function parseBodies(app: FastifyInstance, options: HttpOptions): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', (request: FastifyRequest, payload: IncomingMessage) =>
    readBody(payload, request.headers, options.limits.bodyBytesMax),
  )
  app.addHook('onRequest', async (request) => {
    // Fastify rejects malformed content types. Clients send them, and they make no difference here.
    const {headers} = request.raw
    const isForm = MULTIPART.test(headers['content-type'] ?? '')
    if (!isForm || request.routeOptions.config.ownBody !== true) delete headers['content-type']
  })
}

const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i

function authenticate(
  app: FastifyInstance,
  authenticator: Authenticator,
  connections: Connections,
  options: HttpOptions,
): void {
  const cors = new Cors(options.corsOrigins)
  app.decorateRequest('principal', null)
  app.decorateRequest('actor', null)
  app.addHook('onRequest', async (request, reply) => {
    const {config} = request.routeOptions
    const {method, headers, raw, params} = request
    const isPreflight = cors.isPreflight(method, headers)
    // An unknown path needs a token too.
    const needed = isPreflight ? 'public' : (config.access ?? 'any')
    const isStream = config.stream === true || acceptsEvents(headers)
    const asked = authRequestOf(raw, accessOf(needed), isStream, true)
    const {principal, refusal} = await authenticator.authenticate(asked)
    request.principal = principal
    // Only if tokens exist: otherwise all callers on this machine are accepted, which proves nothing.
    if (principal !== null && options.access.isLocked) connections.trust(raw, reply.raw)
    if (principal !== null || needed !== 'public') reply.header('x-whom', options.nodeName)
    // Replies hold what only this client may read, and are old a moment later.
    reply.header('cache-control', 'no-store').headers(cors.headers(headers))
    const forbidden =
      principal === null ? null : routeRefusal(needed, principal, params as Record<string, string>)
    if (refusal !== null) throw refusal
    if (forbidden !== null) throw forbidden
    if (principal !== null && needed !== 'public')
      endWithAccess(options.access, request, reply, principal, needed)
    if (isPreflight) return reply.code(204).headers(cors.preflightHeaders()).send()
    if (headers.expect !== undefined && !CONTINUE.test(headers.expect))
      throw new DomainError(
        'expectation_unsupported',
        'The header Expect cannot be met. Send 100-continue, or no such header.',
      )
    if (headers.expect !== undefined && raw.httpVersion === '1.1') reply.raw.writeContinue()
    return undefined
  })
}

function accessOf(needed: RouteAccess): Access {
  return needed === 'public' ? needed : 'protected'
}

function reportReplies(app: FastifyInstance, {onReply}: HttpOptions): void {
  if (onReply === undefined) return
  app.addHook('onResponse', async (request, reply) => {
    onReply({
      method: request.method,
      route: request.routeOptions.url ?? '',
      status: reply.statusCode,
      durationMs: reply.elapsedTime,
      ...changeOf(request, reply),
    })
  })
}

function changeOf(request: FastifyRequest, reply: FastifyReply): Pick<SentReply, 'change'> {
  const {actor, url} = request
  if (actor === null || reply.statusCode >= 400 || isDryRun(request)) return {}
  const location = reply.getHeader('location')
  const path = url.split('?', 1)[0]!
  return {change: {actor, path, ...(typeof location === 'string' ? {location} : {})}}
}

function handleErrors(app: FastifyInstance, options: HttpOptions, paths: PathTable): void {
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply, options))
  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split('?', 1)[0] ?? ''
    const methods = paths.methodsOf(path)
    if (methods.length === 0)
      throw new DomainError('route_unknown', 'There is no route at this path. See /docs.')
    const allowed = methods.join(', ')
    reply.header('allow', allowed)
    throw new DomainError('method_not_allowed', `The method is not allowed here: use ${allowed}.`)
  })
}

function sendError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  options: HttpOptions,
): FastifyReply {
  const refusal = asRefusal(error) ?? reportFault(error, request, options)
  if (isRefusedAccess(refusal.code))
    options.onRefused?.({
      principal: request.principal ?? null,
      address: request.socket.remoteAddress ?? '',
      method: request.method,
      route: request.routeOptions.url ?? '',
      url: request.url,
      job: refusal.job,
      code: refusal.code,
    })
  const {status, headers, contentType, body} = errorReply(refusal, {
    asText: request.routeOptions.config?.submit === true && !wantsProblem(request),
    pretty: isPretty(request),
    isScript: isPageScript(request.headers),
  })
  return reply.code(status).headers(headers).header('content-type', contentType).send(body)
}

/** True for options beyond the API contract: such errors are problem+json, like those of other routes. */
function wantsProblem(request: FastifyRequest): boolean {
  const query = queryOf(request)
  if (query.isSet('strict') || query.isSet('dry_run')) return true
  return request.headers.accept?.toLowerCase().includes('application/problem+json') ?? false
}

function reportFault(error: unknown, request: FastifyRequest, options: HttpOptions): DomainError {
  const id = options.random.id()
  options.onFault(error, {id, method: request.method, route: request.routeOptions.url ?? ''})
  return internalError(id)
}
