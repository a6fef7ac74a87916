/**
 * The HTTP server, put together: one Fastify instance with the door, the readers, the error answers and all
 * routes. The caller listens and closes. It translates only; every decision is made by the operations or, at
 * the door, by `Gate`.
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
import type {Operations} from '../operations/operations.ts'
import {Query} from '../wire/query.ts'
import {Gate, type Access} from './auth.ts'
import {isAgentUpgrade, listenForAgents} from './agent-socket.ts'
import {isPretty} from './reply.ts'
import {readBody} from './request.ts'
import {Closing} from './closing.ts'
import {routeDocs} from './routes/docs.ts'
import {EventStreams} from './event-streams.ts'
import {describeInterface, routeDocument} from './openapi.ts'
import {
  BODY_BYTES_MAX,
  CONNECTIONS_CHECK_MS,
  HEADERS_TIMEOUT_MS,
  KEEP_ALIVE_TIMEOUT_MS,
  PARAMETER_LENGTH_MAX,
  REQUEST_TIMEOUT_MS,
  type HttpOptions,
} from './options.ts'
import {OutputStreams} from './output-stream.ts'
import {DomainError} from '../core/errors.ts'
import {asRefusal, faultRefusal, refusalAnswer} from './errors.ts'
import {RouteTable} from './route-table.ts'
import {routeCluster} from './routes/cluster.ts'
import {routeFiles} from './routes/files.ts'
import {acceptsEvents, routeHistory} from './routes/history.ts'
import {routeJobs} from './routes/jobs.ts'
import {routePolicies} from './routes/policies.ts'
import {routeService} from './routes/service.ts'
import {OpenStreams} from './streams.ts'
import {answerBrokenRequest} from './broken-request.ts'
import {routeUi} from './routes/ui.ts'

/**
 * Builds the server; `listen` and `close` are the caller's. `close` ends open streams and waits for what is
 * under way.
 */
export function createHttpServer(operations: Operations, options: HttpOptions): FastifyInstance {
  const app = newFastify(options)
  const table = new RouteTable()
  const streams = new OpenStreams()
  app.addHook('onRoute', (route) => {
    const path = route.url === '' ? '/' : route.url
    table.add(route.method, path)
  })
  // Everything is described and decoded by the schemas of wire/, so the framework's own checking has nothing
  // to do.
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => (data) => JSON.stringify(data))
  readBodies(app, options)
  answerErrors(app, options, table)
  // First of all hooks, so that refusals at the door carry the headers too.
  app.register(helmet, {global: true, ...securityHeaders(options.tls !== null)})
  app.after((error) => {
    if (error !== null && error !== undefined) throw error
    new Closing(options.clock, streams).watch(app)
    const gate = new Gate(options)
    keepTheDoor(app, gate, options)
    if (options.agents !== undefined)
      listenForAgents(app, {door: options.agents, gate, clock: options.clock})
  })
  app.register(async (root) => {
    await describeInterface(root, options)
    await root.register((v1) => routeV1(v1, operations, options, streams), {prefix: '/v1'})
    routeService(root, options)
    routeDocs(root)
    if (options.ui) routeUi(root)
  })
  return app
}

function newFastify(options: HttpOptions): FastifyInstance {
  const shared = {
    logger: false,
    trustProxy: false,
    return503OnClosing: false,
    keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    exposeHeadRoutes: true,
    routerOptions: {
      ignoreTrailingSlash: true,
      maxParamLength: PARAMETER_LENGTH_MAX,
      // The declared type is that of a plain object; what reads it is `queryOf`.
      querystringParser: (text: string) => new Query(text) as unknown as Record<string, string>,
    },
    clientErrorHandler: (error: NodeJS.ErrnoException, socket: Socket) =>
      answerBrokenRequest(error, socket, options.nodeName),
    frameworkErrors: (error: FastifyError, request: FastifyRequest, reply: FastifyReply) => {
      reply.header('x-whom', options.nodeName)
      sendError(error, request, reply, options)
    },
  } as const
  const server = {
    headersTimeout: HEADERS_TIMEOUT_MS,
    connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
    requireHostHeader: false,
    shouldUpgradeCallback: (request: IncomingMessage) =>
      options.agents !== undefined && isAgentUpgrade(request),
  }
  const app =
    options.tls === null
      ? fastify({...shared, http: server})
      : fastify({...shared, https: {...server, cert: options.tls.cert, key: options.tls.key}})
  return app
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

async function routeV1(
  v1: FastifyInstance,
  operations: Operations,
  options: HttpOptions,
  streams: OpenStreams,
): Promise<void> {
  routeJobs(v1, operations, options)
  routeHistory(v1, operations, options, new OutputStreams(operations, streams))
  routeCluster(v1, operations, options, new EventStreams(options.events, options.clock, streams))
  routePolicies(v1, operations)
  routeDocument(v1)
  await v1.register((scope) => routeFiles(scope, operations, options))
}

const MULTIPART = /^multipart\/form-data *;/i

/**
 * One reader for every content type: what the bytes are is for the operation to say, and most bodies are not
 * looked at.
 */
function readBodies(app: FastifyInstance, options: HttpOptions): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', (request: FastifyRequest, payload: IncomingMessage) =>
    readBody(payload, request.headers, options.bodyBytesMax ?? BODY_BYTES_MAX),
  )
  app.addHook('onRequest', async (request) => {
    // A type that is no media type would be refused by the framework; clients send stranger things than that.
    const {headers} = request.raw
    const isForm = MULTIPART.test(headers['content-type'] ?? '')
    if (!isForm || request.routeOptions.config.ownBody !== true) delete headers['content-type']
  })
}

function keepTheDoor(app: FastifyInstance, gate: Gate, options: HttpOptions): void {
  app.addHook('onRequest', async (request, reply) => {
    const {config} = request.routeOptions
    const access: Access = config.access ?? 'guarded'
    const {method, headers, raw} = request
    if (access !== 'open' || gate.isKnown(request)) reply.header('x-whom', options.nodeName)
    const refusal = gate.refusal({
      method,
      headers,
      httpVersion: raw.httpVersion,
      address: request.socket.remoteAddress ?? '',
      access,
      streams: config.streams === true || acceptsEvents(headers.accept),
    })
    if (refusal !== null) throw refusal
  })
  const {answered} = options
  if (answered === undefined) return
  app.addHook('onResponse', async (request, reply) => {
    answered({
      method: request.method,
      route: request.routeOptions.url ?? '',
      status: reply.statusCode,
      durationMs: reply.elapsedTime,
    })
  })
}

function answerErrors(app: FastifyInstance, options: HttpOptions, table: RouteTable): void {
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply, options))
  app.setNotFoundHandler((request, reply) => {
    const path = request.url.split('?', 1)[0] ?? ''
    const methods = table.methodsAt(path)
    if (methods.length === 0)
      throw new DomainError('route_unknown', 'There is nothing at this path.')
    const allowed = methods.join(', ')
    reply.header('allow', allowed)
    throw new DomainError('method_not_allowed', `This path answers ${allowed}.`)
  })
}

function sendError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  options: HttpOptions,
): FastifyReply {
  const refusal = asRefusal(error) ?? fault(error, request, options)
  const asText = request.routeOptions.config?.submit === true
  const answer = refusalAnswer(refusal, asText, isPretty(request))
  return reply
    .code(answer.status)
    .headers(answer.headers)
    .header('content-type', answer.contentType)
    .send(answer.body)
}

function fault(error: unknown, request: FastifyRequest, options: HttpOptions): DomainError {
  const id = options.random.id()
  options.failed(error, {id, method: request.method, route: request.routeOptions.url ?? ''})
  return faultRefusal(id)
}
