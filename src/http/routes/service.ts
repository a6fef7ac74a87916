/** Routes for machines that watch over this one, and the door for people: health, readiness, metrics, `/`. */
import {createHash} from 'node:crypto'
import {readFileSync} from 'node:fs'
import fastify, {type FastifyInstance} from 'fastify'
import Type from 'typebox'
import {DomainError} from '../../core/errors.ts'
import {Health, Readiness} from '../../wire/cluster.ts'
import {Refer} from '../../wire/shapes.ts'
import {describe} from '../openapi.ts'
import type {HttpOptions} from '../options.ts'
import {sendJson} from '../reply.ts'

const OPEN = {access: 'open'} as const

export function routeService(app: FastifyInstance, options: HttpOptions): void {
  for (const [url, operationId, status] of [
    ['/livez', 'isAlive', 'alive'],
    ['/health', 'getHealth', 'healthy'],
  ] as const) {
    app.get(url, {
      config: OPEN,
      schema: describe({
        operationId,
        summary: 'Whether the process answers',
        tag: 'service',
        answer: Refer(Health),
        open: true,
      }),
      handler: (request, reply) => sendJson(request, reply, 200, {status}),
    })
  }
  app.get('/readyz', {
    config: OPEN,
    schema: describe({
      operationId: 'isReady',
      summary: 'Whether this server can do its work',
      tag: 'service',
      answer: Refer(Readiness),
      refusals: {503: 'It cannot; the body has the same form and says why.'},
      open: true,
    }),
    handler: async (request, reply) => {
      const {ok, checks} = await options.ready()
      const status = ok ? 'ready' : 'not_ready'
      return sendJson(request, reply, ok ? 200 : 503, {status, checks})
    },
  })
  app.get('/metrics', {
    schema: describe({
      operationId: 'getMetrics',
      summary: 'Metrics in the form of Prometheus',
      tag: 'service',
      answer: Type.String(),
      answerType: 'text/plain',
      refusals: {404: 'This server keeps no metrics.'},
    }),
    handler: async (_request, reply) => {
      if (options.metrics === null)
        throw new DomainError('route_unknown', 'This server keeps no metrics.')
      const {contentType, body} = await options.metrics()
      return reply.header('content-type', contentType).send(body)
    },
  })
  app.get('/', {
    config: OPEN,
    schema: {hide: true},
    handler: (request, reply) => {
      const wantsPage = request.headers.accept?.toLowerCase().includes('text/html') ?? false
      if (options.ui && wantsPage) return reply.code(303).header('location', '/ui/').send()
      return sendJson(request, reply, 200, {service: 'belfry', api: '/v1', docs: '/docs'})
    },
  })
}

/*
 * The browsable reference at `/docs`, from a package whose page brings all it needs: nothing is loaded from
 * elsewhere. The package is large, so it is loaded at the first visit and lives in an application of its own,
 * behind this one's door: its answers are passed on without the headers it would like to set.
 */

const PASSED_TYPES: Readonly<Record<string, string>> = {
  '/docs/': 'text/html; charset=utf-8',
  '/docs/js/scalar.js': 'text/javascript; charset=utf-8',
}

export function routeDocs(app: FastifyInstance): void {
  let reference: Promise<FastifyInstance> | null = null
  for (const [path, contentType] of Object.entries(PASSED_TYPES)) {
    app.get(path === '/docs/' ? '/docs' : path, {
      schema: {hide: true},
      handler: async (_request, reply) => {
        reference ??= openReference()
        const inner = await (await reference).inject({url: path})
        if (path === '/docs/') reply.header('content-security-policy', policyFor(inner.body))
        return reply.code(inner.statusCode).header('content-type', contentType).send(inner.body)
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
      // Offers of the package's maker that would send the reader elsewhere.
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

/**
 * The page has inline scripts: exactly these are allowed, by their digests. Its styles are made at run time.
 */
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

/*
 * The page at `/ui/`: a few static files, read once at the start and open to everyone, since they hold
 * nothing but themselves. What the page shows it asks of the API like any other client.
 */

const FILES = [
  ['/ui', 'index.html', 'text/html; charset=utf-8'],
  ['/ui/page.js', 'page.js', 'text/javascript; charset=utf-8'],
  ['/ui/page.css', 'page.css', 'text/css; charset=utf-8'],
  ['/ui/bell.svg', 'bell.svg', 'image/svg+xml'],
] as const

export function routeUi(app: FastifyInstance): void {
  for (const [url, file, contentType] of FILES) {
    const content = readFileSync(new URL(`../ui/${file}`, import.meta.url))
    app.get(url, {
      config: {access: 'open'},
      schema: {hide: true},
      handler: (_request, reply) =>
        reply.header('content-type', contentType).header('cache-control', 'no-cache').send(content),
    })
  }
}
