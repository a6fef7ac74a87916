/**
 * How a route is described for the OpenAPI document, in the few words the routes need. The schemas come from
 * `wire/`; nothing here validates, decoding does.
 */
import Type, {type TObject, type TProperties, type TSchema} from 'typebox'
import {Problem} from '../wire/cluster.ts'
import {Pretty} from '../wire/list-query.ts'
import {Refer} from '../wire/shapes.ts'
import type {Access} from './auth.ts'

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
