/**
 * Error replies: a problem document (RFC 9457), or lines of text for errors of a submit. An error that is
 * neither a `DomainError` nor the client's fault is internal: status 500 with an id, and no details.
 */
import type {Socket} from 'node:net'
import {DomainError} from '../../core/errors.ts'
import {type Finding, sentenceOf} from '../../core/findings.ts'
import {type ErrorCode, ERROR_CODES} from '../../core/error-codes.ts'
import type {ProblemJson} from '../../wire/problem.ts'
import {QueryProblem} from '../../wire/query.ts'
import {launchLocation} from './paths.ts'
import {endConnection} from '../security/connections.ts'

export const PROBLEM_TYPE = 'application/problem+json; charset=utf-8'
export const TEXT_TYPE = 'text/plain; charset=utf-8'

const ALWAYS_PROBLEM: ReadonlySet<number> = new Set([401, 403, 421, 422, 429])

/** Statuses that are a problem document even as the reply to a submit. */
export function isAlwaysProblem(status: number): boolean {
  return ALWAYS_PROBLEM.has(status)
}

const BEARER = 'Bearer realm="belfry"'
const BASIC = 'Basic realm="belfry", charset="UTF-8"'

export interface ErrorReply {
  readonly status: number
  readonly contentType: string
  readonly body: string
  readonly headers: ReplyHeaders
}

/** A header with several values is sent as several fields. */
export type ReplyHeaders = Readonly<Record<string, string | string[]>>

interface ErrorForm {
  /** The route is a submit. */
  readonly asText: boolean
  readonly pretty: boolean
  /** The client is a script of a web page. */
  readonly isScript: boolean
}

export function errorReply(
  refusal: DomainError,
  {asText, pretty, isScript}: ErrorForm,
): ErrorReply {
  const {status} = ERROR_CODES[refusal.code]
  const detail = detailOf(refusal)
  const headers: Record<string, string | string[]> = {}
  if (refusal.retryAfterSeconds !== null)
    headers['retry-after'] = String(Math.ceil(refusal.retryAfterSeconds))
  // A browser opens its login dialog for Basic. It should do so for pages, but not for their scripts. Basic
  // is first, in a field of its own: clients that wait for a challenge may read only the first one.
  if (status === 401) headers['www-authenticate'] = isScript ? BEARER : [BASIC, BEARER]
  if (status === 415) headers['accept-encoding'] = 'identity'
  if (asText && !isAlwaysProblem(status))
    return {status, contentType: TEXT_TYPE, body: textOf(detail, refusal), headers}
  const problem = problemOf(refusal.code, detail, {...refusal.members, ...locationOf(refusal)})
  const body = JSON.stringify(problem, null, pretty ? 2 : undefined)
  return {status, contentType: PROBLEM_TYPE, body, headers}
}

/** Requests that are the fix, or that show it: operations know no routes. */
const FIXES: Partial<Record<ErrorCode, string>> = {
  submissions_paused: 'End the pause with POST /v1/unpause.',
  token_unknown: 'See GET /v1/acl/tokens.',
}

function detailOf({code, message}: DomainError): string {
  const fix = FIXES[code]
  return fix === undefined ? message : `${message} ${fix}`
}

/** The launch that an error names. */
function locationOf({code, job, members}: DomainError): {readonly location?: string} {
  const {group} = members
  if (code !== 'launch_open' || job === null || typeof group !== 'number') return {}
  return {location: launchLocation(job, group)}
}

/** The detail, and a line for each further fault. */
function textOf(detail: string, {members}: DomainError): string {
  const {errors = []} = members as {errors?: readonly Finding[]}
  return [detail, ...errors.slice(1).map(sentenceOf)].map((line) => `${line}\n`).join('')
}

/** The reply to an internal error shows only the id, under which the log has the error. */
export function internalError(id: string): DomainError {
  return new DomainError('internal', `Internal error, try again later (id ${id})`, {members: {id}})
}

/** The error as a `DomainError`; `null` for an internal error. */
export function asRefusal(error: unknown): DomainError | null {
  if (error instanceof DomainError) return error
  if (error instanceof QueryProblem)
    return new DomainError(error.code, `${error.message}.`, {cause: error})
  const status = clientStatusOf(error)
  if (status === null) return null
  if (status === 413) return tooLarge(error)
  return new DomainError('request_malformed', 'The request is malformed.', {cause: error})
}

export function tooLarge(cause?: unknown): DomainError {
  return new DomainError('body_too_large', 'The body exceeds the limit of this route.', {cause})
}

function problemOf(
  code: ErrorCode,
  detail: string,
  members: Readonly<Record<string, unknown>> = {},
): ProblemJson {
  return {
    ...members,
    type: `urn:belfry:error:${code}`,
    title: ERROR_CODES[code].title,
    status: ERROR_CODES[code].status,
    detail,
    message: detail,
    code,
  }
}

/** Errors of Fastify and its plugins carry a status. `null` unless it blames the client. */
function clientStatusOf(error: unknown): number | null {
  if (typeof error !== 'object' || error === null || !('statusCode' in error)) return null
  const {statusCode} = error
  return typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500 ? statusCode : null
}

const PARSER_CODES: Readonly<Record<string, ErrorCode>> = {
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

const REASON_PHRASES: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
}

/** Headers of replies to requests that reach no route, and so no hook. */
export const BARE_HEADERS: Readonly<Record<string, string>> = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'cache-control': 'no-store',
}

/** Header lines of a reply that is written to the socket. */
export function headerLines(headers: ReplyHeaders): string[] {
  return Object.entries(headers).flatMap(([name, value]) =>
    [value].flat().map((each) => `${name}: ${each}`),
  )
}

/** Replies to bytes that are no HTTP request. There is no route and no header, only the socket. */
export function replyToMalformedRequest(
  error: NodeJS.ErrnoException,
  socket: Socket,
  nodeName: string,
): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const code = PARSER_CODES[error.code ?? ''] ?? 'request_malformed'
  const status = ERROR_CODES[code].status
  const body = JSON.stringify(problemOf(code, `${ERROR_CODES[code].title}.`))
  endConnection(
    socket,
    [
      `HTTP/1.1 ${status} ${REASON_PHRASES[status] ?? ''}`,
      `Content-Type: ${PROBLEM_TYPE}`,
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Whom: ${nodeName}`,
      ...headerLines(BARE_HEADERS),
      'Connection: close',
      '',
      body,
    ].join('\r\n'),
  )
}
