/**
 * Reading a request's body: its bytes whatever the content type says, up to a limit. Beyond the limit some
 * more is read and thrown away before the refusal, because a client that is still sending would never read
 * it.
 */
import type {IncomingHttpHeaders} from 'node:http'
import type {Readable} from 'node:stream'
import {DomainError} from '../core/errors.ts'
import {DRAIN_BYTES_MAX} from './options.ts'
import {tooLarge} from './errors.ts'

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
