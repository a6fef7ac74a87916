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
import {DomainError} from '../core/errors.ts'
import type {Operations} from '../operations/operations.ts'
import type {Clock} from '../ports/runtime.ts'
import {Query} from '../wire/query.ts'
import {isAgentUpgrade, listenForAgents} from './agent-socket.ts'
import {type Access, Authenticator} from './auth.ts'
import {answerBrokenRequest, asRefusal, faultRefusal, refusalAnswer} from './errors.ts'
import {EventStreams, OpenStreams, OutputStreams} from './event-streams.ts'
import {describeInterface, routeDocument} from './openapi.ts'
import {
  BODY_BYTES_MAX,
  CLOSE_TIMEOUT_MS,
  CONNECTIONS_CHECK_MS,
  HEADERS_TIMEOUT_MS,
  type HttpOptions,
  KEEP_ALIVE_TIMEOUT_MS,
  PARAMETER_LENGTH_MAX,
  REQUEST_TIMEOUT_MS,
} from './options.ts'
import {isPretty} from './reply.ts'
import {readBody} from './request.ts'
import {routeCluster} from './routes/cluster.ts'
import {routeFiles} from './routes/files.ts'
import {acceptsEvents, routeHistory} from './routes/history.ts'
import {routeJobs} from './routes/jobs.ts'
import {routePolicies} from './routes/policies.ts'
import {routeDocs, routeService, routeUi} from './routes/service.ts'

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
    new GracefulShutdown(options.clock, streams).watch(app)
    const gate = new Authenticator(options)
    requireAuthentication(app, gate, options)
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

function requireAuthentication(
  app: FastifyInstance,
  gate: Authenticator,
  options: HttpOptions,
): void {
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

/*
 * Ending the server in good order: streams, which would never end, are ended; everything else under way gets
 * a moment to finish; only then are connections cut.
 */

export class GracefulShutdown {
  readonly #clock: Clock
  readonly #streams: OpenStreams
  #underWay = 0
  #idle: (() => void) | null = null

  constructor(clock: Clock, streams: OpenStreams) {
    this.#clock = clock
    this.#streams = streams
  }

  watch(app: FastifyInstance): void {
    app.addHook('onRequest', async (_request, reply) => {
      this.#underWay += 1
      reply.raw.once('close', () => this.#over())
    })
    app.addHook('preClose', async () => {
      this.#streams.endAll()
      await this.#finished()
      if (this.#underWay > 0) app.server.closeAllConnections()
    })
  }

  #over(): void {
    this.#underWay -= 1
    if (this.#underWay === 0) this.#idle?.()
  }

  /** Resolves when nothing is under way, or after the time that is given for it. */
  #finished(): Promise<void> {
    if (this.#underWay === 0) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = this.#clock.after(CLOSE_TIMEOUT_MS, resolve)
      this.#idle = () => {
        timer.cancel()
        resolve()
      }
    })
  }
}

/**
 * Which methods a path answers, so that a wrong method can be told from an unknown path. Filled as the routes
 * are registered, so that it cannot disagree with them.
 */

interface Entry {
  readonly segments: readonly string[]
  readonly methods: Set<string>
}

export class RouteTable {
  readonly #entries = new Map<string, Entry>()

  /** `pattern` in the form of the router: `/v1/jobs/:name`. */
  add(methods: string | readonly string[], pattern: string): void {
    const segments = segmentsOf(pattern)
    const key = segments.join('/')
    const entry = this.#entries.get(key) ?? {segments, methods: new Set()}
    for (const method of [methods].flat()) entry.methods.add(method)
    this.#entries.set(key, entry)
  }

  /** Methods that the path answers, sorted; empty = nothing is there. `path` is without its query. */
  methodsAt(path: string): readonly string[] {
    const segments = segmentsOf(path)
    const found = new Set<string>()
    for (const entry of this.#entries.values()) {
      if (matches(entry.segments, segments)) for (const method of entry.methods) found.add(method)
    }
    return [...found].toSorted()
  }
}

function segmentsOf(path: string): string[] {
  return path.replace(/\/$/, '').split('/').slice(1)
}

function matches(pattern: readonly string[], segments: readonly string[]): boolean {
  return (
    pattern.length === segments.length &&
    pattern.every((part, index) =>
      part.startsWith(':') ? segments[index] !== '' : part === segments[index],
    )
  )
}
