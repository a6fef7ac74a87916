/**
 * The browsable reference at `/docs`, from a package whose page brings all it needs: nothing is loaded from
 * elsewhere. The package is large, so it is loaded at the first visit and lives in an application of its own,
 * behind this one's door: its answers are passed on without the headers it would like to set.
 */
import {createHash} from 'node:crypto'
import fastify, {type FastifyInstance} from 'fastify'

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
