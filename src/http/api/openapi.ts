/**
 * The OpenAPI document, generated from the descriptions of the registered routes and the schemas of `wire/`.
 * It cannot describe a route that does not exist. It validates nothing; decoding does. The generator is large
 * and imported at the first request for the document. `openapi-30.ts` renders the document as OpenAPI 3.0.
 */
import fastify, {type FastifyInstance, type RouteOptions} from 'fastify'
import {Type, type TObject, type TProperties, type TSchema} from 'typebox'
import * as auditSchemas from '../../wire/audit.ts'
import * as clusterSchemas from '../../wire/cluster.ts'
import * as dryRunSchemas from '../../wire/dry-run.ts'
import * as executionSchemas from '../../wire/execution.ts'
import * as firingSchemas from '../../wire/firing.ts'
import * as jobSchemas from '../../wire/job.ts'
import {isObject} from '../../wire/json.ts'
import * as secretSchemas from '../../wire/secret.ts'
import * as settingsSchemas from '../../wire/settings.ts'
import * as tokenSchemas from '../../wire/token.ts'
import {Pretty} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import type {Actor} from '../../core/audit.ts'
import type {Principal} from '../../core/access/authorization.ts'
import type {RouteAccess} from '../security/access.ts'
import {isAlwaysProblem} from './errors.ts'
import {asOpenApi30} from './openapi-30.ts'
import {sendJson} from './reply.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Access that the route requires of its caller; absent only where no route matches. */
    access?: RouteAccess
    /** Errors are text, as the API contract requires for a submit. */
    submit?: boolean
    /** The route parses its multipart body itself. */
    ownBody?: boolean
    /** Every reply is an event stream. */
    stream?: boolean
  }

  interface FastifyRequest {
    /** Not `null` in the handler of a route that is not public. */
    principal: Principal | null
    /** Set where the audit log names who made a change. */
    actor: Actor | null
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
  return completed(app.swagger()) as object
}

/** Parts that the generator cannot write, or not from our schemas. Copies everything: schemas are shared. */
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

/** Every named schema exported by these files of `wire/`. A new file needs an import here. */
function namedSchemas(): readonly object[] {
  const modules = [
    jobSchemas,
    dryRunSchemas,
    executionSchemas,
    clusterSchemas,
    tokenSchemas,
    secretSchemas,
    firingSchemas,
    settingsSchemas,
    auditSchemas,
  ]
  const values: readonly unknown[] = modules.flatMap((module) => Object.values<unknown>(module))
  return values.filter(
    (value): value is object => typeof value === 'object' && value !== null && '$id' in value,
  )
}

/**
 * `/v1/openapi.json` and `/v1/openapi-3.0.json`. The document is generated at the first request, after all
 * routes are registered.
 */
export function routeOpenApi(app: FastifyInstance, routes: DescribedRoutes, version: string): void {
  let document: Promise<object> | null = null
  for (const [url, render] of [
    ['/openapi.json', (whole: object) => whole],
    ['/openapi-3.0.json', asOpenApi30],
  ] as const) {
    app.get(url, {
      config: {access: 'any'},
      schema: {hide: true},
      handler: async (request, reply) => {
        document ??= generate(routes, version)
        return sendJson(request, reply, 200, render(await document))
      },
    })
  }
}

/** The generator copies members of this form into the operation. */
const OPTIONAL_BODY = 'x-optional-body'

/** Text of a failure with a problem as the body; or with another body, `null` = an empty one. */
type Refusal = string | {readonly about: string; readonly reply: TSchema | null}

export interface RouteDescription {
  readonly operationId: string
  readonly summary: string
  readonly tag: 'jobs' | 'history' | 'cluster' | 'administration' | 'policies' | 'service'
  readonly description?: string
  readonly params?: Readonly<Record<string, string | TSchema>>
  readonly query?: TObject
  readonly headers?: TProperties
  readonly body?: TSchema
  /** The body may be empty. */
  readonly bodyOptional?: boolean
  readonly consumes?: readonly string[]
  /** Status of a success; absent = 200. */
  readonly status?: number
  readonly reply: TSchema
  /** Media type of a success; absent = JSON. */
  readonly replyType?: string
  /** Error statuses and their causes, in addition to those that every route shares. */
  readonly refusals?: Readonly<Record<number, Refusal>>
  /** Errors are one line of text, except those that every route shares. */
  readonly textRefusals?: boolean
  /** No token is needed. */
  readonly isPublic?: boolean
}

const SHARED_REFUSALS = {
  401: 'No valid token.',
  403: 'The token does not allow this, or the client address or the origin is not allowed.',
  429: 'Rate limit: too many requests without a valid token, or too many runs of a job.',
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
    ...(description.bodyOptional === true ? {[OPTIONAL_BODY]: true} : {}),
    ...(description.consumes === undefined ? {} : {consumes: description.consumes}),
    ...(description.isPublic === true ? {security: []} : {}),
    response: responses(description),
  }
}

function paramsSchema(params: Readonly<Record<string, string | TSchema>>): TObject {
  return Type.Object(
    Object.fromEntries(
      Object.entries(params).map(([name, about]) => [
        name,
        typeof about === 'string' ? Type.String({description: about}) : about,
      ]),
    ),
  )
}

function responses(description: RouteDescription): Record<string, unknown> {
  const refusals: Record<string, Refusal> = {
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
      Object.entries(refusals).map(([status, refusal]) => [
        status,
        typeof refusal === 'string'
          ? {description: refusal, content: refusalContent(description, Number(status))}
          : otherReply(refusal),
      ]),
    ),
  }
}

/** The generator describes a response of the type `null` as one without content. */
function otherReply({about, reply}: Exclude<Refusal, string>): Record<string, unknown> {
  return reply === null
    ? {description: about, type: 'null'}
    : {description: about, content: {'application/json': {schema: reply}}}
}

function refusalContent(description: RouteDescription, status: number) {
  return description.textRefusals === true && !isAlwaysProblem(status)
    ? {'text/plain': {schema: Type.String({description: 'One sentence.'})}}
    : {'application/problem+json': {schema: schemaRef(clusterSchemas.Problem)}}
}
