/**
 * Errors as answers: a problem document (RFC 9457), or one line of text for what a submit decides. Everything
 * that is not a refusal is a fault of ours: 500 with an id and nothing about its inside.
 */
import type {Socket} from 'node:net'
import {DomainError, REFUSAL_TITLES, type RefusalCode} from '../core/errors.ts'
import type {ProblemJson} from '../wire/cluster.ts'
import {QueryProblem} from '../wire/query.ts'

export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8'
export const TEXT_TYPE = 'text/plain; charset=utf-8'

/** What a submit does not decide itself, and so answers like every other route. */
const NEVER_TEXT: ReadonlySet<number> = new Set([401, 403, 421, 422, 429])

/** The HTTP status of every error code. */
export const REFUSAL_STATUSES: Readonly<Record<RefusalCode, number>> = {
  payload_unparsable: 400,
  job_invalid: 400,
  body_invalid: 400,
  query_invalid: 400,
  schedule_invalid: 400,
  policy_invalid: 400,
  restore_invalid: 400,
  request_malformed: 400,
  token_required: 401,
  token_not_configured: 403,
  origin_refused: 403,
  route_unknown: 404,
  job_unknown: 404,
  parent_unknown: 404,
  execution_unknown: 404,
  launch_unknown: 404,
  policy_unknown: 404,
  member_unknown: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  launch_open: 409,
  no_target: 409,
  job_has_dependents: 409,
  execution_over: 409,
  member_present: 409,
  member_ambiguous: 409,
  backup_running: 409,
  idempotency_in_progress: 409,
  precondition_failed: 412,
  body_too_large: 413,
  encoding_unsupported: 415,
  host_not_served: 421,
  idempotency_mismatch: 422,
  too_many_failures: 429,
  headers_too_large: 431,
  internal: 500,
  submissions_paused: 503,
  store_unavailable: 503,
  outcome_unknown: 503,
  no_leader: 503,
  too_many_streams: 503,
  too_many_agents: 503,
}

export interface ErrorReply {
  readonly status: number
  readonly contentType: string
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

/** `errorOf` for refusals; faults need an id, see `faultAnswer`. `asText` = the route is a submit. */
export function refusalAnswer(refusal: DomainError, asText: boolean, pretty: boolean): ErrorReply {
  const status = REFUSAL_STATUSES[refusal.code]
  const headers: Record<string, string> = {}
  if (refusal.retryAfterSeconds !== null)
    headers['retry-after'] = String(Math.ceil(refusal.retryAfterSeconds))
  if (status === 401) headers['www-authenticate'] = 'Bearer realm="belfry"'
  if (asText && !NEVER_TEXT.has(status))
    return {status, contentType: TEXT_TYPE, body: `${refusal.message}\n`, headers}
  const body = problemText(problemOf(refusal.code, refusal.message, refusal.members), pretty)
  return {status, contentType: PROBLEM_TYPE, body, headers}
}

/** What the caller is told of a fault: only the id under which it is in the log. */
export function faultRefusal(id: string): DomainError {
  return new DomainError('internal', `Internal error, try again later (id ${id})`, {members: {id}})
}

/** The refusal that an error is, or `null` for a fault of ours. */
export function asRefusal(error: unknown): DomainError | null {
  if (error instanceof DomainError) return error
  if (error instanceof QueryProblem)
    return new DomainError('query_invalid', `${error.message}.`, {cause: error})
  const status = clientStatusOf(error)
  if (status === null) return null
  if (status === 413) return tooLarge(error)
  return new DomainError('request_malformed', 'The request is not well formed.', {cause: error})
}

export function tooLarge(cause?: unknown): DomainError {
  return new DomainError('body_too_large', 'The body is larger than this route accepts.', {cause})
}

export function problemOf(
  code: RefusalCode,
  detail: string,
  members: Readonly<Record<string, unknown>> = {},
): ProblemJson {
  const [status, title] = [REFUSAL_STATUSES[code], REFUSAL_TITLES[code]]
  return {...members, type: `urn:belfry:error:${code}`, title, status, detail, code}
}

function problemText(problem: ProblemJson, pretty: boolean): string {
  return JSON.stringify(problem, null, pretty ? 2 : undefined)
}

/**
 * Errors of the framework and its plugins carry the status they mean; only the caller's mistakes are told.
 */
function clientStatusOf(error: unknown): number | null {
  if (typeof error !== 'object' || error === null || !('statusCode' in error)) return null
  const {statusCode} = error
  return typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500 ? statusCode : null
}

/*
 * What is answered to bytes that are not an HTTP request: no route, no headers, only the socket and a reason.
 */

const CODES: Readonly<Record<string, RefusalCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

const REASONS: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
}

export function answerBrokenRequest(
  error: NodeJS.ErrnoException,
  socket: Socket,
  nodeName: string,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const code = CODES[error.code ?? ''] ?? 'request_malformed'
  const status = REFUSAL_STATUSES[code]
  const body = JSON.stringify(problemOf(code, `${REFUSAL_TITLES[code]}.`))
  socket.end(
    [
      `HTTP/1.1 ${status} ${REASONS[status] ?? ''}`,
      `Content-Type: ${PROBLEM_TYPE}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Whom: ${nodeName}`,
      'X-Content-Type-Options: nosniff',
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  )
}
