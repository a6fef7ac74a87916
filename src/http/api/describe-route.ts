/**
 * The declaration of a route: what it needs of its caller, what it takes and answers, and its errors. The
 * server acts on it, and the OpenAPI document and docs/reference/api.md are written from it. It validates
 * nothing; decoding does.
 */
import type {TObject, TProperties, TSchema} from 'typebox'
import type {Actor} from '../../core/audit.ts'
import type {Principal} from '../../core/access/authorization.ts'
import type {ErrorCode} from '../../core/error-codes.ts'
import type {RouteAccess} from '../security/access.ts'

declare module 'fastify' {
  /** Routes without a description, such as pages, have only `access`. It is absent where no route matches. */
  interface FastifyContextConfig extends Partial<RouteDescription> {}

  interface FastifyRequest {
    /** Set in the handler of every route that is not public. */
    principal: Principal | null
    /** Set where the audit log names who made a change. */
    actor: Actor | null
  }
}

export interface RouteDescription {
  readonly access: RouteAccess
  readonly operationId: string
  readonly summary: string
  readonly tag:
    'jobs' | 'history' | 'cluster' | 'administration' | 'policies' | 'notices' | 'service'
  /** Markdown, with links as in docs/reference/api.md. */
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
  /** Errors beside those of `IMPLIED_ERRORS`. */
  readonly errors?: readonly ErrorCode[]
  /** Replies that are neither the success nor an error. A body of `null` is empty. */
  readonly otherReplies?: Readonly<Record<number, {about: string; reply: TSchema | null}>>
  /** Clients that are older than Belfry call it: unknown query parameters are accepted. */
  readonly isOfContract?: boolean
  /** Errors are text, as the API contract requires for a submit, except those of `isAlwaysProblem`. */
  readonly submit?: boolean
  /** The route parses its multipart body itself. */
  readonly ownBody?: boolean
  /** Every reply is an event stream. */
  readonly stream?: boolean
}

/** Options of a route: `app.get(url, {...describeRoute({…}), handler})`. */
export function describeRoute(description: RouteDescription): {readonly config: RouteDescription} {
  return {config: description}
}

export interface Route {
  readonly method: string
  /** Path in the form of the router: `/v1/jobs/:name`. */
  readonly url: string
}

export interface DescribedRoute extends Route, RouteDescription {}

/** Errors of requests as such; no route declares them. */
export const REQUEST_ERRORS: readonly ErrorCode[] = [
  'request_malformed',
  'request_timeout',
  'headers_too_large',
  'expectation_unsupported',
  'route_unknown',
  'method_not_allowed',
  'internal',
]

interface ImpliedErrors {
  /** Which routes; text of docs/reference/api.md. */
  readonly of: string
  readonly holds: (route: DescribedRoute) => boolean
  readonly errors: readonly ErrorCode[]
}

/** Errors that follow from the rest of a declaration. */
export const IMPLIED_ERRORS: readonly ImpliedErrors[] = [
  {of: 'exist', holds: () => true, errors: ['host_not_served', 'too_many_failures']},
  {
    of: 'need a token',
    holds: ({access}) => access !== 'public',
    errors: [
      'token_required',
      'token_not_configured',
      'not_allowed',
      'origin_refused',
      'store_unavailable',
      'internal',
    ],
  },
  {
    of: 'change something: all methods but `GET`',
    holds: ({method}) => method !== 'GET',
    errors: ['body_too_large', 'encoding_unsupported', 'outcome_unknown'],
  },
  {of: 'have query parameters', holds: ({query}) => query !== undefined, errors: ['query_invalid']},
  {
    of: 'refuse unknown query parameters, always or with `strict`',
    holds: ({url, isOfContract, query}) =>
      checksParameters(url) && (isOfContract !== true || 'strict' in (query?.properties ?? {})),
    errors: ['parameter_unknown'],
  },
  {of: 'have a body', holds: ({body}) => body !== undefined, errors: ['payload_unparsable']},
  {
    of: 'read `If-Match`',
    holds: ({headers}) => headers?.['if-match'] !== undefined,
    errors: ['precondition_failed'],
  },
  {
    of: 'read `Idempotency-Key`',
    holds: ({headers}) => headers?.['idempotency-key'] !== undefined,
    errors: ['request_malformed', 'idempotency_in_progress', 'idempotency_mismatch'],
  },
]

/** Routes outside of `/v1` (probes) accept any parameter. */
export function checksParameters(url: string): boolean {
  return /^\/v1(?:\/|$)/.test(url)
}

/** Errors of a route, but those of `REQUEST_ERRORS`. */
export function errorsOf(route: DescribedRoute): readonly ErrorCode[] {
  const implied = IMPLIED_ERRORS.filter(({holds}) => holds(route)).flatMap(({errors}) => errors)
  return [...new Set([...(route.errors ?? []), ...implied])]
}
