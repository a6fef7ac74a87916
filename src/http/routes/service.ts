/** Routes outside of `/v1`: health, readiness, metrics, the API reference, and the status page. */
import {createHash} from 'node:crypto'
import {readFileSync} from 'node:fs'
import fastify, {type FastifyInstance} from 'fastify'
import {Type} from 'typebox'
import {DomainError} from '../../core/errors.ts'
import {Health, Readiness} from '../../wire/status.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {describeRoute} from '../api/describe-route.ts'
import type {HttpOptions} from '../options.ts'
import {sendJson} from '../api/reply.ts'

const PUBLIC = {access: 'public'} as const

export function routeService(app: FastifyInstance, options: HttpOptions): void {
  for (const [url, operationId, status] of [
    ['/livez', 'isAlive', 'alive'],
    ['/health', 'getHealth', 'healthy'],
  ] as const) {
    app.get(url, {
      ...describeRoute({
        access: 'public',
        operationId,
        summary: 'Whether the process is alive',
        tag: 'service',
        reply: schemaRef(Health),
      }),
      handler: (request, reply) => sendJson(request, reply, 200, {status}),
    })
  }
  app.get('/readyz', {
    ...describeRoute({
      access: 'public',
      operationId: 'isReady',
      summary: 'Whether this server can do its work',
      description:
        'With a token of type `management` or `read`, the body names the cause of a failed check.',
      tag: 'service',
      reply: schemaRef(Readiness),
      otherReplies: {503: {about: 'It is not ready.', reply: schemaRef(Readiness)}},
    }),
    handler: async (request, reply) => {
      const {ok, checks, details} = await options.ready()
      const status = ok ? 'ready' : 'not_ready'
      const kind = request.principal?.kind
      const shown = kind === 'management' || kind === 'read' ? details : checks
      return sendJson(request, reply, ok ? 200 : 503, {status, checks: shown})
    },
  })
  app.get('/metrics', {
    ...describeRoute({
      access: 'metrics',
      operationId: 'getMetrics',
      summary: 'Metrics in the Prometheus text format',
      tag: 'service',
      reply: Type.String(),
      replyType: 'text/plain',
    }),
    handler: async (_request, reply) => {
      if (options.metrics === null)
        throw new DomainError('route_unknown', 'This server has no metrics.')
      const {contentType, body} = await options.metrics()
      return reply.header('content-type', contentType).send(body)
    },
  })
  app.get('/', {
    config: PUBLIC,
    handler: (request, reply) => {
      const wantsPage = request.headers.accept?.toLowerCase().includes('text/html') ?? false
      if (options.ui && wantsPage) return reply.code(303).header('location', '/ui/').send()
      return sendJson(request, reply, 200, {service: 'belfry', api: '/v1', docs: '/docs'})
    },
  })
}

const DOCS_TYPES: Readonly<Record<string, string>> = {
  '/docs/': 'text/html; charset=utf-8',
  '/docs/js/scalar.js': 'text/javascript; charset=utf-8',
}

/**
 * The API reference at `/docs`. Its package serves everything itself; browsers load nothing from elsewhere.
 * The package is large: it is imported at the first visit, into a Fastify instance of its own. Requests reach
 * that instance after authentication, and the headers that it sets are not passed on.
 */
export function routeDocs(app: FastifyInstance): void {
  let reference: Promise<FastifyInstance> | null = null
  for (const [path, contentType] of Object.entries(DOCS_TYPES)) {
    app.get(path === '/docs/' ? '/docs' : path, {
      config: {access: 'any'},
      handler: async (_request, reply) => {
        reference ??= openReference()
        const {statusCode, body} = await (await reference).inject({url: path})
        if (path === '/docs/') reply.header('content-security-policy', policyFor(body))
        return reply.code(statusCode).header('content-type', contentType).send(body)
      },
    })
  }
}

async function openReference(): Promise<FastifyInstance> {
  const {default: apiReference} = await import('@scalar/fastify-api-reference')
  const inner = fastify({routerOptions: {ignoreTrailingSlash: true}})
  await inner.register(apiReference, {
    routePrefix: '/docs',
    configuration: {
      url: '/v1/openapi.json',
      cdn: '/docs/js/scalar.js',
      withDefaultFonts: false,
      telemetry: false,
      // Products of the package's vendor, which would lead readers to other sites.
      agent: {disabled: true},
      mcp: {disabled: true},
      showDeveloperTools: 'never',
      hideClientButton: true,
      orderSchemaPropertiesBy: 'preserve',
      pageTitle: 'Belfry API',
    },
  })
  await inner.ready()
  return inner
}

/** Allows exactly the inline scripts of the page, by digest. Its styles are generated at run time. */
function policyFor(page: string): string {
  const scripts = [...page.matchAll(/<script[^>]*>([^]*?)<\/script>/g)]
    .map((match) => match[1] ?? '')
    .filter((text) => text.trim() !== '')
    .map((text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`)
  return [
    "default-src 'none'",
    `script-src 'self' ${scripts.join(' ')}`,
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "worker-src 'self' blob:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}

/** Link in the page to sign in through a provider. */
const PROVIDER_HIDDEN = '<p id="provider" hidden>'
const PROVIDER_SHOWN = '<p id="provider">'

const UI_FILES = [
  ['/ui', 'index.html', 'text/html; charset=utf-8'],
  ['/ui/page.js', 'page.js', 'text/javascript; charset=utf-8'],
  ['/ui/page.css', 'page.css', 'text/css; charset=utf-8'],
  ['/ui/bell.svg', 'bell.svg', 'image/svg+xml'],
] as const

/**
 * The status page at `/ui/`: static files without secrets, read once at start and public. The page reads its
 * data through the API like any other client.
 */
export function routeUi(app: FastifyInstance, hasProvider: boolean): void {
  for (const [url, file, contentType] of UI_FILES) {
    const read = readFileSync(new URL(`../ui/${file}`, import.meta.url), 'utf8')
    const content = hasProvider ? read.replace(PROVIDER_HIDDEN, PROVIDER_SHOWN) : read
    app.get(url, {
      config: PUBLIC,
      handler: (_request, reply) =>
        reply.header('content-type', contentType).header('cache-control', 'no-cache').send(content),
    })
  }
}
