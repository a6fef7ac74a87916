/** The two routes that carry files: restoring jobs from one, and a backup of the store as one. */
import {createReadStream} from 'node:fs'
import {Readable} from 'node:stream'
import multipart, {type MultipartValue} from '@fastify/multipart'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import Type from 'typebox'
import {DomainError} from '../../core/errors.ts'
import type {BackupFile} from '../../operations/backup.ts'
import type {Operations} from '../../operations/operations.ts'
import {formatTime} from '../../wire/time.ts'
import {tooLarge} from '../errors.ts'
import {describe} from '../openapi.ts'
import {BODY_BYTES_MAX, DRAIN_BYTES_MAX, type HttpOptions, RESTORE_BYTES_MAX} from '../options.ts'
import {queryOf, sendJson} from '../reply.ts'
import {principalOf, upTo} from '../request.ts'

const PART = 'file'
/** The file, and room for what forms send beside it. */
const PARTS_MAX = 16
const FIELD_NAME_BYTES_MAX = 256
const PART_HEADERS_MAX = 64

export async function routeFiles(
  app: FastifyInstance,
  operations: Operations,
  options: HttpOptions,
): Promise<void> {
  const bytesMax = options.restoreBytesMax ?? RESTORE_BYTES_MAX
  await app.register(multipart, {
    limits: {
      // The reader of the file has the real limit; this one leaves it room to drain.
      fileSize: bytesMax + 2 * DRAIN_BYTES_MAX,
      fieldSize: BODY_BYTES_MAX,
      fieldNameSize: FIELD_NAME_BYTES_MAX,
      parts: PARTS_MAX,
      headerPairs: PART_HEADERS_MAX,
    },
  })
  app.post('/restore', {
    config: {ownBody: true},
    schema: describe({
      operationId: 'restoreJobs',
      summary: 'Create and replace jobs from a file, all of them or none',
      tag: 'administration',
      query: Type.Object({
        disabled: Type.Optional(Type.Boolean({description: 'Import every job disabled.'})),
      }),
      consumes: ['multipart/form-data'],
      body: Type.Object({
        file: Type.String({format: 'binary', description: 'A JSON array of jobs.'}),
      }),
      answer: Type.Array(Type.String({description: 'One line a job.'})),
      refusals: {
        400: 'The part is missing, is not JSON, or holds jobs that cannot be restored.',
        413: 'The file is too large.',
        503: 'Submissions are paused, or the store does not answer.',
      },
    }),
    handler: async (request, reply) => {
      const disabled = queryOf(request).flag('disabled') ?? false
      const openFile = () => findFile(request, bytesMax)
      const lines = await operations.restore({caller: principalOf(request), openFile, disabled})
      return sendJson(request, reply, 200, lines)
    },
  })
  routeBackup(app, operations, options)
}

function routeBackup(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  app.get('/backup', {
    exposeHeadRoute: false,
    schema: describe({
      operationId: 'backup',
      summary: 'A consistent image of the store, without secrets',
      tag: 'administration',
      answer: Type.String({format: 'binary'}),
      answerType: 'application/vnd.sqlite3',
      refusals: {409: 'A backup is already being made.'},
    }),
    handler: async (_request, reply) => sendBackup(reply, operations, options),
  })
}

async function sendBackup(
  reply: FastifyReply,
  operations: Operations,
  options: HttpOptions,
): Promise<FastifyReply> {
  const image = await operations.backup()
  const stream = Readable.from(contentsOf(image), {objectMode: false})
  // Also when the client went away before the first byte was asked for.
  stream.once('close', () => {
    image.release().catch((error: unknown) => {
      options.failed(error, {id: options.random.id(), method: 'GET', route: '/v1/backup'})
    })
  })
  const stamp = formatTime(options.clock.now()).replace(/[:.]/g, '-')
  return reply
    .header('content-type', 'application/vnd.sqlite3')
    .header('content-disposition', `attachment; filename="belfry-${stamp}.sqlite"`)
    .header('cache-control', 'no-store')
    .send(stream)
}

/** Released before the end is sent, so that whoever has the whole image can ask for the next one. */
async function* contentsOf(image: BackupFile): AsyncGenerator<Uint8Array> {
  try {
    yield* createReadStream(image.file) as AsyncIterable<Uint8Array>
  } finally {
    await image.release()
  }
}

/**
 * The bytes of the part `file`, which may come as a file or as a plain field. Parts before it are thrown
 * away.
 */
async function findFile(
  request: FastifyRequest,
  bytesMax: number,
): Promise<AsyncIterable<Uint8Array>> {
  if (!request.isMultipart()) throw missing()
  try {
    for await (const part of request.parts()) {
      if (part.type === 'file' && part.fieldname === PART) return fileBytes(part.file, bytesMax)
      if (part.type === 'file') part.file.resume()
      else if (part.fieldname === PART) return fieldBytes(part)
    }
  } catch (error) {
    if (error instanceof DomainError) throw error
    throw new DomainError('request_malformed', 'The multipart body is broken.', {cause: error})
  }
  throw missing()
}

/** However reading ends, the rest is taken in and thrown away: the connection goes on after the answer. */
async function* fileBytes(file: Readable, bytesMax: number): AsyncGenerator<Uint8Array> {
  try {
    yield* upTo(file, bytesMax)
  } finally {
    file.resume()
  }
}

/** A part without a file name is a field; one that says it is JSON comes parsed. */
function fieldBytes(part: MultipartValue): AsyncIterable<Uint8Array> {
  if (part.valueTruncated) throw tooLarge()
  const text = typeof part.value === 'string' ? part.value : JSON.stringify(part.value)
  return Readable.from([Buffer.from(text)])
}

function missing(): DomainError {
  return new DomainError(
    'body_invalid',
    `Send the jobs as multipart/form-data with the part "${PART}", as curl -F ${PART}=@jobs.json does.`,
  )
}
