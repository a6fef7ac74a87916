/**
 * Compression of replies: gzip, Brotli or Zstandard, as the client asks in `Accept-Encoding`. Streams stay
 * streams. Event streams are never compressed, because a compressor holds events back; backups neither,
 * because they are large and the client can compress them itself.
 */
import {pipeline, Readable} from 'node:stream'
import zlib, {type InputType} from 'node:zlib'
import type {FastifyInstance, FastifyReply} from 'fastify'
import {COMPRESSED_BYTES_MIN} from '../options.ts'

interface Codec {
  readonly stream: () => NodeJS.ReadWriteStream
  readonly whole: (bytes: InputType, done: (error: Error | null, bytes: Buffer) => void) => void
}

/** Brotli's default is meant for files that are compressed once: a hundred times slower than this. */
const BROTLI = {params: {[zlib.constants.BROTLI_PARAM_QUALITY]: 4}}

/** The first is preferred among equals: the fastest for its size. */
const CODECS: Readonly<Record<string, Codec>> = {
  zstd: {
    stream: () => zlib.createZstdCompress(),
    whole: (bytes, done) => zlib.zstdCompress(bytes, done),
  },
  br: {
    stream: () => zlib.createBrotliCompress(BROTLI),
    whole: (bytes, done) => zlib.brotliCompress(bytes, BROTLI, done),
  },
  gzip: {
    stream: () => zlib.createGzip(),
    whole: (bytes, done) => zlib.gzip(bytes, done),
  },
}

const COMPRESSIBLE = /^(?:application\/(?:problem\+)?json|text\/(?!event-stream)|image\/svg)/

export function compressReplies(app: FastifyInstance): void {
  app.addHook('onSend', (request, reply, payload: unknown, done) => {
    if (!isCompressible(reply, payload)) return done(null, payload)
    addVary(reply, 'Accept-Encoding')
    const encoding = chosenEncoding(request.headers['accept-encoding'])
    if (encoding === null) return done(null, payload)
    const codec = CODECS[encoding]!
    setEncoding(reply, encoding)
    // An error of either stream destroys the other one; Fastify then closes the connection.
    if (payload instanceof Readable)
      return done(
        null,
        pipeline(payload, codec.stream(), () => undefined),
      )
    codec.whole(payload, done)
  })
}

function isCompressible(reply: FastifyReply, payload: unknown): payload is InputType | Readable {
  if (reply.hasHeader('content-encoding')) return false
  if (!COMPRESSIBLE.test(String(reply.getHeader('content-type') ?? ''))) return false
  if (typeof payload === 'string' || payload instanceof Uint8Array)
    return payload.length >= COMPRESSED_BYTES_MIN
  return payload instanceof Readable
}

function setEncoding(reply: FastifyReply, encoding: string): void {
  reply.header('content-encoding', encoding).removeHeader('content-length')
  // A strong tag names one sequence of bytes. `readIfMatch` accepts both forms.
  const tag = reply.getHeader('etag')
  if (typeof tag === 'string' && !tag.startsWith('W/')) reply.header('etag', `W/${tag}`)
}

function addVary(reply: FastifyReply, name: string): void {
  const others = reply.getHeader('vary')
  reply.header('vary', others === undefined ? name : `${String(others)}, ${name}`)
}

/** The encoding with the highest weight in `Accept-Encoding`; `null` = send the reply as it is. */
export function chosenEncoding(accepted: string | string[] | undefined): string | null {
  if (accepted === undefined) return null
  const weights = weightsOf(String(accepted))
  const other = weights.get('*') ?? 0
  let best: string | null = null
  let highest = 0
  for (const encoding of Object.keys(CODECS)) {
    const weight = weights.get(encoding) ?? other
    if (weight <= highest) continue
    best = encoding
    highest = weight
  }
  return highest >= (weights.get('identity') ?? 0) ? best : null
}

/** Weights by name in lower case, from 0 to 1. A weight that is not a number counts as 0. */
function weightsOf(accepted: string): ReadonlyMap<string, number> {
  return new Map(
    accepted.split(',').map((part) => {
      const [name = '', ...parameters] = part.split(';').map((text) => text.trim().toLowerCase())
      const quality = parameters.find((text) => text.startsWith('q='))
      return [name, quality === undefined ? 1 : Number(quality.slice(2)) || 0] as const
    }),
  )
}
