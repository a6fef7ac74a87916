/**
 * The OpenAPI document, generated from the descriptions of the registered routes and the schemas that they
 * reference. It cannot describe a route that does not exist. The generator is large and imported at the first
 * request for the document. `openapi-30.ts` renders the document as OpenAPI 3.0.
 */
import fastify, {type FastifyInstance, type RouteOptions} from 'fastify'
import {type TSchema, Type} from 'typebox'
import {type ErrorCode, ERROR_CODES} from '../../core/error-codes.ts'
import {isObject} from '../../wire/json.ts'
import {Problem} from '../../wire/problem.ts'
import {Pretty} from '../../wire/query.ts'
import {referencedSchemas, schemaRef} from '../../wire/shapes.ts'
import {type DescribedRoute, errorsOf, type Route, type RouteDescription} from './describe-route.ts'
import {isAlwaysProblem} from './errors.ts'
import {asOpenApi30} from './openapi-30.ts'
import {sendJson} from './reply.ts'

const PROBLEM = schemaRef(Problem)
const ABOUT = `Belfry runs jobs by cron-style schedules on the nodes of a cluster.

Lists take \`_start\`, \`_end\`, \`_sort\` and \`_order\`; \`X-Total-Count\` is the number of rows before
paging.
Add \`pretty\` to any request for indented JSON. \`X-Whom\` names the node that replied.`

/** Routes, in the order they were registered; `described` has those of the API. */
export interface Routes {
  readonly all: readonly Route[]
  readonly described: readonly DescribedRoute[]
}

/** Collects the routes that are registered from now on, in this instance and the instances below it. */
export function collectRoutes(app: FastifyInstance): Routes {
  const all: Route[] = []
  const described: DescribedRoute[] = []
  app.addHook('onRoute', ({method, url, config}: RouteOptions) => {
    // Fastify adds a HEAD route to each GET route.
    if (method === 'HEAD') return
    const route = {method: String(method), url}
    all.push(route)
    if (isDescription(config)) described.push({...config, ...route})
  })
  return {all, described}
}

function isDescription(config: Partial<RouteDescription> = {}): config is RouteDescription {
  return config.operationId !== undefined
}

/** Generated in an instance of its own, which answers no request. */
async function generate(routes: readonly DescribedRoute[], version: string): Promise<object> {
  const {default: swagger} = await import('@fastify/swagger')
  const app = fastify({exposeHeadRoutes: false})
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => (data) => JSON.stringify(data))
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Belfry',
        version,
        description: ABOUT,
        license: {name: 'Apache-2.0', url: 'https://www.apache.org/licenses/LICENSE-2.0'},
      },
      servers: [{url: '/'}],
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
        {name: 'policies', description: 'Tokens, access policies and secrets'},
        {name: 'notices', description: 'Channels of notices'},
        {name: 'service', description: 'Health, readiness, metrics'},
      ],
    },
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) =>
        typeof json.$id === 'string' ? json.$id : `shape-${index}`,
    },
  })
  for (const schema of referencedSchemas()) app.addSchema(schema)
  for (const route of routes) {
    const {method, url} = route
    app.route({method, url, schema: operationOf(route), handler: () => undefined})
  }
  await app.ready()
  return completed(app.swagger()) as object
}

/** Adds what the generator cannot write, or not from our schemas. Copies every part: schemas are shared. */
function completed(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(completed)
  if (!isObject(part)) return part
  const {[OPTIONAL_BODY]: hasOptionalBody, ...rest} = part
  const result: Record<string, unknown> = Object.fromEntries(
    Object.entries(rest).map(([key, inner]) => [key, completed(inner)]),
  )
  if (hasOptionalBody === true)
    result.requestBody = {...(result.requestBody as object), required: false}
  // Generators treat an enumeration without a type as any value.
  if (Array.isArray(result.enum) && result.enum.every((value) => typeof value === 'string'))
    result.type = 'string'
  if (result.in === 'query' && result.required === false) result.allowEmptyValue = true
  return result
}

/**
 * `/v1/openapi.json` and `/v1/openapi-3.0.json`. The document is generated at the first request, after all
 * routes are registered.
 */
export function routeOpenApi(app: FastifyInstance, routes: Routes, version: string): void {
  let document: Promise<object> | null = null
  for (const [url, render] of [
    ['/openapi.json', (whole: object) => whole],
    ['/openapi-3.0.json', asOpenApi30],
  ] as const) {
    app.get(url, {
      config: {access: 'any'},
      handler: async (request, reply) => {
        document ??= generate(routes.described, version)
        return sendJson(request, reply, 200, render(await document))
      },
    })
  }
}

/** The generator copies members of this form into the operation. */
const OPTIONAL_BODY = 'x-optional-body'

/** The `schema` of a route for the generator. */
function operationOf(route: DescribedRoute): Record<string, unknown> {
  const {operationId, summary, tag, description, params, query, headers, body, consumes} = route
  return {
    operationId,
    summary: withoutLinks(summary),
    tags: [tag],
    ...(description === undefined ? {} : {description: withoutLinks(description)}),
    querystring: Type.Object({pretty: Pretty, ...query?.properties}),
    ...(params === undefined ? {} : {params: paramsSchema(params)}),
    ...(headers === undefined ? {} : {headers: Type.Object(headers)}),
    ...(body === undefined ? {} : {body}),
    ...(route.bodyOptional === true ? {[OPTIONAL_BODY]: true} : {}),
    ...(consumes === undefined ? {} : {consumes}),
    ...(route.access === 'public' ? {security: []} : {}),
    response: responsesOf(route),
  }
}

/** Links between pages of docs/ lead nowhere in the document. */
function withoutLinks(markdown: string): string {
  return markdown.replaceAll(/\[([^\]]+)\]\((?!https?:)[^)]+\)/g, '$1')
}

function paramsSchema(params: Readonly<Record<string, string | TSchema>>) {
  return Type.Object(
    Object.fromEntries(
      Object.entries(params).map(([name, about]) => [
        name,
        typeof about === 'string' ? Type.String({description: about}) : about,
      ]),
    ),
  )
}

function responsesOf(route: DescribedRoute): Record<string, unknown> {
  const byStatus = Map.groupBy(errorsOf(route), (code) => ERROR_CODES[code].status)
  const refusals = [...byStatus].toSorted(([one], [other]) => one - other)
  const others = Object.entries(route.otherReplies ?? {})
  return {
    [route.status ?? 200]: {
      description: 'Success.',
      content: {[route.replyType ?? 'application/json']: {schema: route.reply}},
    },
    ...Object.fromEntries(
      refusals.map(([status, codes]) => [
        status,
        {description: codes.map(titleOf).join(' '), content: problemContent(route, status)},
      ]),
    ),
    ...Object.fromEntries(others.map(([status, other]) => [status, otherReply(other)])),
  }
}

function titleOf(code: ErrorCode): string {
  return `\`${code}\`: ${ERROR_CODES[code].title}.`
}

/** The generator describes a response of the type `null` as one without content. */
function otherReply({about, reply}: {about: string; reply: TSchema | null}) {
  return reply === null
    ? {description: about, type: 'null'}
    : {description: about, content: {'application/json': {schema: reply}}}
}

function problemContent({submit}: DescribedRoute, status: number) {
  return submit === true && !isAlwaysProblem(status)
    ? {'text/plain': {schema: Type.String({description: 'One sentence.'})}}
    : {'application/problem+json': {schema: PROBLEM}}
}
