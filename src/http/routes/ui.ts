/**
 * The page at `/ui/`: a few static files, read once at the start and open to everyone, since they hold
 * nothing but themselves. What the page shows it asks of the API like any other client.
 */
import {readFileSync} from 'node:fs'
import type {FastifyInstance} from 'fastify'

const FILES = [
  ['/ui', 'index.html', 'text/html; charset=utf-8'],
  ['/ui/page.js', 'page.js', 'text/javascript; charset=utf-8'],
  ['/ui/page.css', 'page.css', 'text/css; charset=utf-8'],
  ['/ui/bell.svg', 'bell.svg', 'image/svg+xml'],
] as const

export function routeUi(app: FastifyInstance): void {
  for (const [url, file, contentType] of FILES) {
    const content = readFileSync(new URL(`./ui/${file}`, import.meta.url))
    app.get(url, {
      config: {access: 'open'},
      schema: {hide: true},
      handler: (_request, reply) =>
        reply.header('content-type', contentType).header('cache-control', 'no-cache').send(content),
    })
  }
}
