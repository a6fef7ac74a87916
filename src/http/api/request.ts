/**
 * Requests: query, body and headers, read into the arguments of operations. A body is read as bytes for every
 * content type, up to a limit. Beyond the limit more bytes are read and dropped before the error reply: a
 * client that is still sending would never read it.
 */
import {createHash} from 'node:crypto'
import type {IncomingHttpHeaders} from 'node:http'
import type {Readable} from 'node:stream'
import type {FastifyRequest} from 'fastify'
import {type Actor, actorOf as actorFrom} from '../../core/audit.ts'
import type {Principal} from '../../core/access/authorization.ts'
import {DomainError} from '../../core/errors.ts'
import {assert} from '../../lib/assert.ts'
import {LOCAL} from '../../identity/token-cache.ts'
import type {RevisionMatch} from '../../core/submit.ts'
import type {RequestKey} from '../../operations/submit.ts'
import {Query} from '../../wire/query.ts'
import {tooLarge} from './errors.ts'
import {DRAIN_BYTES_MAX} from '../options.ts'

const EMPTY_BODY = new Uint8Array()

/** Leaves one slash at the start of the path. Clients append a path to a base URL that ends in `/`. */
export function withoutExtraSlashes(url: string): string {
  return url.startsWith('//') ? url.replace(/^\/+/, '/') : url
}

/** Empty when the request had no body. */
export function bodyOf(request: FastifyRequest): Uint8Array {
  return request.body instanceof Uint8Array ? request.body : EMPTY_BODY
}

/** The caller; only for routes that are not public. */
export function callerOf({principal}: FastifyRequest): Principal {
  assert(principal !== null, 'a route that is not public has an authenticated caller')
  return principal
}

/** The caller as the audit log names it. */
export function actorOf(request: FastifyRequest): Actor {
  const caller = callerOf(request)
  const actor = actorFrom(caller, caller === LOCAL, request.socket.remoteAddress)
  request.actor = actor
  return actor
}

export function queryOf(request: FastifyRequest): Query {
  return request.query instanceof Query ? request.query : new Query('')
}

/** True if the query has `dry_run`, even with no value, on a route that defines jobs. */
export function isDryRun(request: FastifyRequest): boolean {
  const isDefinition = request.routeOptions.config.submit === true || request.method === 'PATCH'
  return isDefinition && queryOf(request).isSet('dry_run')
}

export function isPretty(request: FastifyRequest): boolean {
  return queryOf(request).isSet('pretty')
}

/** A script of a web page, not the page itself. Browsers say so; our pages say so for those that do not. */
export function isPageScript(headers: IncomingHttpHeaders): boolean {
  const mode = headers['sec-fetch-mode']
  return headers['x-requested-with'] !== undefined || (mode !== undefined && mode !== 'navigate')
}

export function acceptsEvents(headers: IncomingHttpHeaders): boolean {
  return headers.accept?.toLowerCase().includes('text/event-stream') ?? false
}

/**
 * Throws `body_too_large`, `encoding_unsupported`, and `request_malformed` when the client disconnects.
 */
export async function readBody(
  stream: Readable,
  headers: IncomingHttpHeaders,
  bytesMax: number,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = []
  for await (const chunk of limitedChunks(stream, bytesMax)) chunks.push(chunk)
  requireUncompressed(headers)
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

/** Throws `encoding_unsupported`. */
export function requireUncompressed(headers: IncomingHttpHeaders): void {
  const {'content-encoding': encoding = 'identity'} = headers
  if (encoding.toLowerCase() === 'identity') return
  throw new DomainError(
    'encoding_unsupported',
    'Content-Encoding: is not supported. Send the body uncompressed.',
  )
}

/** The chunks of a stream. More than `bytesMax` in all is `body_too_large`, after draining. */
export async function* limitedChunks(
  stream: Readable,
  bytesMax: number,
): AsyncGenerator<Uint8Array> {
  let total = 0
  try {
    for await (const chunk of stream.iterator({destroyOnReturn: false})) {
      total += chunk.length
      if (total > bytesMax + DRAIN_BYTES_MAX) break
      if (total <= bytesMax) yield chunk
    }
  } catch (error) {
    throw new DomainError('request_malformed', 'The body ended before it was complete.', {
      cause: error,
    })
  }
  if (total > bytesMax) throw tooLarge()
}

/**
 * Revisions from `If-Match`. Tags of another form match nothing and are left out. A weak tag counts: proxies
 * that compress weaken the tag, and the revision is the same. The part after the revision changes without a
 * change of the definition, so it is not compared.
 */
export function readIfMatch(headers: IncomingHttpHeaders): RevisionMatch {
  const value = headers['if-match']
  if (value === undefined) return null
  if (value.trim() === '*') return '*'
  return [...value.matchAll(/(?:^|,)\s*(?:W\/)?"([1-9]\d{0,14})(?:\.[\w-]+)?"\s*(?=,|$)/g)].map(
    (match) => Number(match[1]),
  )
}

export function readCreateOnly(headers: IncomingHttpHeaders): boolean {
  return headers['if-none-match']?.trim() === '*'
}

/** `parts`: everything that distinguishes the request from another one. `null` = it has no key. */
export function readIdempotency(
  headers: IncomingHttpHeaders,
  parts: readonly (string | Uint8Array)[],
): RequestKey | null {
  const value = headers['idempotency-key']
  if (value === undefined) return null
  const key = Array.isArray(value) ? value.join(', ') : value
  return {key, fingerprint: fingerprintOf(parts)}
}

/** Lengths are hashed too, so that `ab`, `c` differs from `a`, `bc`. */
function fingerprintOf(parts: readonly (string | Uint8Array)[]): string {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(String(part.length)).update('\n').update(part)
  return hash.digest('hex')
}
