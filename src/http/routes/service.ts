/** Routes for machines that watch over this one, and the door for people: health, readiness, metrics, `/`. */
import type {FastifyInstance} from 'fastify'
import Type from 'typebox'
import {DomainError} from '../../core/errors.ts'
import {Health, Readiness} from '../../wire/cluster.ts'
import {Refer} from '../../wire/shapes.ts'
import {sendJson} from '../reply.ts'
import {describe} from '../describe.ts'
import type {HttpOptions} from '../options.ts'

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
