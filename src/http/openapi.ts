/**
 * The OpenAPI 3.1 document, made from the descriptions of the routes as they are registered and from the
 * schemas of `wire/`. Nothing is written down twice, so it cannot describe a route that is not there.
 */
import swagger from '@fastify/swagger'
import type {FastifyInstance} from 'fastify'
import Type, {type TObject, type TProperties, type TSchema} from 'typebox'
import {
  ExecutionStat,
  ExecutionStats,
  Health,
  Member,
  PauseStatus,
  PlannedTimes,
  PolicyShape,
  Problem,
  Readiness,
  Status,
} from '../wire/cluster.ts'
import {Execution, Launch, LaunchExecution} from '../wire/execution.ts'
import {Job, JobDefinition} from '../wire/job.ts'
import {Pretty} from '../wire/query.ts'
import {Refer} from '../wire/shapes.ts'
import type {Access} from './auth.ts'
import type {HttpOptions} from './options.ts'
import {sendJson} from './reply.ts'

const SHAPES = [
  Job,
  JobDefinition,
  Execution,
  LaunchExecution,
  Launch,
  Member,
  Status,
  PauseStatus,
  PolicyShape,
  ExecutionStat,
  ExecutionStats,
  PlannedTimes,
  Health,
  Readiness,
  Problem,
]

const ABOUT = `Belfry runs jobs by cron-style schedules on the nodes of a cluster.

Lists take \`_start\`, \`_end\`, \`_sort\` and \`_order\`, and say in \`X-Total-Count\` how many rows there
are in all.
Add \`pretty\` to any request for indented JSON. \`X-Whom\` names the node that answered.`

/** To be awaited before the first route is registered. */
export async function describeInterface(app: FastifyInstance, options: HttpOptions): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {title: 'Belfry', version: options.version, description: ABOUT},
      components: {
        securitySchemes: {
          token: {type: 'apiKey', in: 'header', name: 'X-Service-Token'},
          bearer: {type: 'http', scheme: 'bearer'},
        },
      },
      security: [{token: []}, {bearer: []}],
      tags: [
        {name: 'jobs', description: 'Jobs and running them'},
        {name: 'history', description: 'What has happened'},
        {name: 'cluster', description: 'Nodes and schedules'},
        {name: 'administration', description: 'Pause, restore, backup'},
        {name: 'policies', description: 'Access policies'},
        {name: 'service', description: 'For whatever watches over the service'},
      ],
    },
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) =>
        typeof json.$id === 'string' ? json.$id : `shape-${index}`,
    },
  })
  for (const shape of SHAPES) app.addSchema(shape)
}

/** Served once everything is registered; made once. */
export function routeDocument(app: FastifyInstance): void {
  let document: object | null = null
  app.get('/openapi.json', {
    schema: {hide: true},
    handler: (request, reply) => {
      document ??= app.swagger()
      return sendJson(request, reply, 200, document)
    },
  })
}

/*
 * How a route is described for the OpenAPI document, in the few words the routes need. The schemas come from
 * `wire/`; nothing here validates, decoding does.
 */

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Absent = `guarded`. */
    access?: Access
    /** Errors of a submit are text. */
    submit?: boolean
    /** The route reads its body itself. */
    ownBody?: boolean
    /** Always an event stream. */
    streams?: boolean
  }
}

export interface Description {
  readonly operationId: string
  readonly summary: string
  readonly tag: 'jobs' | 'history' | 'cluster' | 'administration' | 'policies' | 'service'
  readonly description?: string
  readonly params?: Readonly<Record<string, string>>
  readonly query?: TObject
  readonly headers?: TProperties
  readonly body?: TSchema
  readonly consumes?: readonly string[]
  readonly status?: number
  readonly answer: TSchema
  /** Media type of the success answer; absent = JSON. */
  readonly answerType?: string
  /** Statuses of refusals, each with its reason. */
  readonly refusals?: Readonly<Record<number, string>>
  /** Refusals are one line of text, except those that every route shares. */
  readonly textRefusals?: boolean
  readonly open?: boolean
}

const SHARED_REFUSALS = {
  401: 'No valid token.',
  403: 'Not from here, or from another web site.',
  429: 'Too many requests without a valid token.',
  500: 'Internal error.',
  503: 'The store does not answer.',
}

/** The `schema` of a Fastify route. */
export function describe(description: Description): Record<string, unknown> {
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
    ...(description.open === true ? {security: []} : {}),
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

function responses(description: Description): Record<string, unknown> {
  const refusals: Record<string, string> = {
    ...(description.open === true ? {} : SHARED_REFUSALS),
    ...description.refusals,
  }
  const success = {
    description: 'Success.',
    content: {[description.answerType ?? 'application/json']: {schema: description.answer}},
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

function refusalContent(description: Description, status: number) {
  const text = description.textRefusals === true && ![401, 403, 422, 429].includes(status)
  return text
    ? {'text/plain': {schema: Type.String({description: 'One sentence.'})}}
    : {'application/problem+json': {schema: Refer(Problem)}}
}
