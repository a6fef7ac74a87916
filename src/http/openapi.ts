/**
 * The OpenAPI 3.1 document, generated from the descriptions of the registered routes and the schemas of
 * `wire/`. It cannot describe a route that does not exist. It validates nothing; decoding does. The generator
 * is large: it is imported at the first request for the document.
 */
import fastify, {type FastifyInstance, type RouteOptions} from 'fastify'
import {Type, type TObject, type TProperties, type TSchema} from 'typebox'
import * as clusterSchemas from '../wire/cluster.ts'
import * as executionSchemas from '../wire/execution.ts'
import * as jobSchemas from '../wire/job.ts'
import {Pretty} from '../wire/query.ts'
import {Refer} from '../wire/shapes.ts'
import type {Access} from './auth.ts'
import {isAlwaysProblem} from './errors.ts'
import {sendJson} from './reply.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Absent = `protected`. */
    access?: Access
    /** Errors are text, as the API contract requires for a submit. */
    submit?: boolean
    /** The route parses its multipart body itself. */
    ownBody?: boolean
    /** Every reply is an event stream. */
    stream?: boolean
  }

  interface FastifyRequest {
    /** The client may read names and causes. Always true in the handler of a protected route. */
    isAuthenticated: boolean
  }
}

const ABOUT = `Belfry runs jobs by cron-style schedules on the nodes of a cluster.

Lists take \`_start\`, \`_end\`, \`_sort\` and \`_order\`; \`X-Total-Count\` is the number of rows before
paging.
Add \`pretty\` to any request for indented JSON. \`X-Whom\` names the node that replied.`

/** Routes of the API, in the order they were registered. */
export type DescribedRoutes = readonly Pick<RouteOptions, 'method' | 'url' | 'schema'>[]

/** Collects the routes that are registered from now on, in this instance and the instances below it. */
export function collectRoutes(app: FastifyInstance): DescribedRoutes {
  const routes: Pick<RouteOptions, 'method' | 'url' | 'schema'>[] = []
  app.addHook('onRoute', ({method, url, schema}) => {
    // Fastify adds a HEAD route to each GET route.
    if (method === 'HEAD') return
    routes.push(schema === undefined ? {method, url} : {method, url, schema})
  })
  return routes
}

/** Generated in an instance of its own, which answers no request. */
async function generate(routes: DescribedRoutes, version: string): Promise<object> {
  const {default: swagger} = await import('@fastify/swagger')
  const app = fastify({exposeHeadRoutes: false})
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => (data) => JSON.stringify(data))
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {title: 'Belfry', version, description: ABOUT},
      components: {
        securitySchemes: {
          token: {type: 'apiKey', in: 'header', name: 'X-Service-Token'},
          bearer: {type: 'http', scheme: 'bearer'},
          basic: {type: 'http', scheme: 'basic', description: 'The token as password.'},
        },
      },
      security: [{token: []}, {bearer: []}, {basic: []}],
      tags: [
        {name: 'jobs', description: 'Jobs and their runs'},
        {name: 'history', description: 'Executions, launches, statistics'},
        {name: 'cluster', description: 'Nodes and schedules'},
        {name: 'administration', description: 'Pause, restore, backup'},
        {name: 'policies', description: 'Access policies'},
        {name: 'service', description: 'Health, readiness, metrics'},
      ],
    },
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) =>
        typeof json.$id === 'string' ? json.$id : `shape-${index}`,
    },
  })
  for (const schema of namedSchemas()) app.addSchema(schema)
  for (const route of routes) app.route({...route, handler: () => undefined})
  await app.ready()
  return app.swagger()
}

/** Every named schema exported by these three files of `wire/`. A new file needs an import here. */
function namedSchemas(): readonly object[] {
  const values: readonly unknown[] = [jobSchemas, executionSchemas, clusterSchemas].flatMap(
    (module) => Object.values<unknown>(module),
  )
  return values.filter(
    (value): value is object => typeof value === 'object' && value !== null && '$id' in value,
  )
}

/** `/v1/openapi.json`. The document is generated at the first request, after all routes are registered. */
export function routeOpenApi(app: FastifyInstance, routes: DescribedRoutes, version: string): void {
  let document: Promise<object> | null = null
  app.get('/openapi.json', {
    schema: {hide: true},
    handler: async (request, reply) => {
      document ??= generate(routes, version)
      return sendJson(request, reply, 200, await document)
    },
  })
}

export interface RouteDescription {
  readonly operationId: string
  readonly summary: string
  readonly tag: 'jobs' | 'history' | 'cluster' | 'administration' | 'policies' | 'service'
  readonly description?: string
  readonly params?: Readonly<Record<string, string>>
  readonly query?: TObject
  readonly headers?: TProperties
  readonly body?: TSchema
  readonly consumes?: readonly string[]
  /** Of a success; absent = 200. */
  readonly status?: number
  readonly reply: TSchema
  /** Media type of a success; absent = JSON. */
  readonly replyType?: string
  /** Error statuses and their causes, in addition to those that every route shares. */
  readonly refusals?: Readonly<Record<number, string>>
  /** Errors are one line of text, except those that every route shares. */
  readonly textRefusals?: boolean
  /** No token is needed. */
  readonly isPublic?: boolean
}

const SHARED_REFUSALS = {
  401: 'No valid token.',
  403: 'The client address or the origin is not allowed.',
  429: 'Rate limit: too many requests without a valid token.',
  500: 'Internal error.',
  503: 'The store does not answer.',
}

/** The `schema` of a Fastify route. */
export function describeRoute(description: RouteDescription): Record<string, unknown> {
  const {operationId, summary, tag, params, body} = description
  const query = Type.Object({pretty: Pretty, ...description.query?.properties})
  return {
    operationId,
    summary,
    tags: [tag],
    ...(description.description === undefined ? {} : {description: description.description}),
    querystring: query,
    ...(params === undefined ? {} : {params: paramsSchema(params)}),
    ...(description.headers === undefined ? {} : {headers: Type.Object(description.headers)}),
    ...(body === undefined ? {} : {body}),
    ...(description.consumes === undefined ? {} : {consumes: description.consumes}),
    ...(description.isPublic === true ? {security: []} : {}),
    response: responses(description),
  }
}

function paramsSchema(params: Readonly<Record<string, string>>): TObject {
  return Type.Object(
    Object.fromEntries(
      Object.entries(params).map(([name, about]) => [name, Type.String({description: about})]),
    ),
  )
}

function responses(description: RouteDescription): Record<string, unknown> {
  const refusals: Record<string, string> = {
    ...(description.isPublic === true ? {} : SHARED_REFUSALS),
    ...description.refusals,
  }
  const success = {
    description: 'Success.',
    content: {[description.replyType ?? 'application/json']: {schema: description.reply}},
  }
  return {
    [description.status ?? 200]: success,
    ...Object.fromEntries(
      Object.entries(refusals).map(([status, about]) => [
        status,
        {description: about, content: refusalContent(description, Number(status))},
      ]),
    ),
  }
}

function refusalContent(description: RouteDescription, status: number) {
  return description.textRefusals === true && !isAlwaysProblem(status)
    ? {'text/plain': {schema: Type.String({description: 'One sentence.'})}}
    : {'application/problem+json': {schema: Refer(clusterSchemas.Problem)}}
}
