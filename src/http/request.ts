/**
 * Reading a request's body: its bytes whatever the content type says, up to a limit. Beyond the limit some
 * more is read and thrown away before the refusal, because a client that is still sending would never read
 * it.
 */
import type {IncomingHttpHeaders} from 'node:http'
import type {Readable} from 'node:stream'
import type {FastifyRequest} from 'fastify'
import {DomainError} from '../core/errors.ts'
import type {JobRecord} from '../core/job.ts'
import type {Principal} from '../operations/context.ts'
import type {RevisionMatch} from '../ports/job-store.ts'
import {tooLarge} from './errors.ts'
import {DRAIN_BYTES_MAX} from './options.ts'

/**
 * Throws `DomainError` `body_too_large`, `encoding_unsupported`, `request_malformed` when the caller goes
 * away.
 */
export async function readBody(
  stream: Readable,
  headers: IncomingHttpHeaders,
  bytesMax: number,
): Promise<Uint8Array> {
  const encoding = headers['content-encoding'] ?? 'identity'
  const pieces: Uint8Array[] = []
  for await (const piece of upTo(stream, bytesMax)) pieces.push(piece)
  if (encoding.toLowerCase() !== 'identity')
    throw new DomainError(
      'encoding_unsupported',
      'Content-Encoding: is not supported; send the body uncompressed.',
    )
  return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
}

/** The pieces of a stream; more than `bytesMax` in all is `body_too_large`, after draining. */
export async function* upTo(stream: Readable, bytesMax: number): AsyncGenerator<Uint8Array> {
  let total = 0
  try {
    for await (const piece of stream.iterator({destroyOnReturn: false})) {
      total += piece.length
      if (total > bytesMax + DRAIN_BYTES_MAX) break
      if (total <= bytesMax) yield piece
    }
  } catch (error) {
    throw new DomainError('request_malformed', 'The body ended before it was complete.', {
      cause: error,
    })
  }
  if (total > bytesMax) throw tooLarge()
}

/*
 * The headers that make a write conditional, read into what the operations understand; and the tag that
 * answers carry.
 */

export function entityTag(job: Pick<JobRecord, 'revision'>): string {
  return `"${job.revision}"`
}

/**
 * Tags that are not ours match nothing, so they make an empty list. A weak one is taken as ours: proxies that
 * compress weaken the tag they pass on, and a revision means the same either way.
 */
export function readIfMatch(headers: IncomingHttpHeaders): RevisionMatch {
  const value = headers['if-match']
  if (value === undefined) return null
  if (value.trim() === '*') return '*'
  return [...value.matchAll(/(?:^|,)\s*(?:W\/)?"([1-9]\d{0,14})"\s*(?=,|$)/g)].map((match) =>
    Number(match[1]),
  )
}

export function readCreateOnly(headers: IncomingHttpHeaders): boolean {
  return headers['if-none-match']?.trim() === '*'
}

export function readIdempotencyKey(headers: IncomingHttpHeaders): string | null {
  const value = headers['idempotency-key']
  if (value === undefined) return null
  return Array.isArray(value) ? value.join(', ') : value
}

/* What the routes need to know of a request beside its path: who asks, and the bytes it brought. */

/** There is one kind of caller: whoever was let in may do everything. It has no name to give to jobs. */
const ANYONE: Principal = {id: 'server', name: ''}

const NOTHING = new Uint8Array()

export function principalOf(_request: FastifyRequest): Principal {
  return ANYONE
}

/** Empty when the request had no body. */
export function bodyOf(request: FastifyRequest): Uint8Array {
  return request.body instanceof Uint8Array ? request.body : NOTHING
}
