/** Routes with files: restore of jobs from an upload, and backup of the store as a download. */
import {createReadStream} from 'node:fs'
import {Readable} from 'node:stream'
import multipart, {type MultipartValue} from '@fastify/multipart'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {DomainError} from '../../core/errors.ts'
import type {BackupFile} from '../../operations/backup.ts'
import type {Operations} from '../../operations/operations.ts'
import {decodeRestore} from '../../wire/definition.ts'
import {Strict} from '../../wire/query.ts'
import {formatTime} from '../../lib/rfc3339.ts'
import {tooLarge} from '../api/errors.ts'
import {readsWhole} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {DRAIN_BYTES_MAX, type HttpOptions} from '../options.ts'
import {sendJson, setWarnings} from '../api/reply.ts'
import {actorOf, callerOf, limitedChunks, queryOf, requireUncompressed} from '../api/request.ts'

const PART = 'file'
/** Generators of clients leave out responses of types that they do not know, such as that of SQLite. */
const BACKUP_TYPE = 'application/octet-stream'
/** The file, and room for other fields that a form sends. */
const PARTS_MAX = 16
const FIELD_NAME_BYTES_MAX = 256
const PART_HEADERS_MAX = 64

export async function routeFiles(
  app: FastifyInstance,
  operations: Operations,
  options: HttpOptions,
): Promise<void> {
  const bytesMax = options.limits.restoreBytesMax
  await app.register(multipart, {
    limits: {
      // `fileBytes` enforces the limit. This one is higher, so that it can drain the rest.
      fileSize: bytesMax + 2 * DRAIN_BYTES_MAX,
      fieldSize: options.limits.bodyBytesMax,
      fieldNameSize: FIELD_NAME_BYTES_MAX,
      parts: PARTS_MAX,
      headerPairs: PART_HEADERS_MAX,
    },
  })
  app.post('/restore', {
    ...describeRoute({
      access: 'body',
      ownBody: true,
      operationId: 'restoreJobs',
      isOfContract: true,
      summary: 'Create or replace jobs from a file, all of them or none',
      tag: 'administration',
      query: Type.Object({
        disabled: Type.Optional(Type.Boolean({description: 'Import every job disabled.'})),
        strict: Strict,
      }),
      consumes: ['multipart/form-data'],
      body: Type.Object({
        file: Type.String({format: 'binary', description: 'A JSON array of jobs.'}),
      }),
      reply: Type.Array(Type.String({description: 'One line per job.'})),
      errors: ['body_invalid', 'restore_invalid', 'restore_running', 'submissions_paused'],
    }),
    handler: async (request, reply) => {
      const disabled = queryOf(request).boolean('disabled') ?? false
      const openFile = async () =>
        decodeRestore(await findFile(request, bytesMax), options.limits.bodyBytesMax)
      const caller = callerOf(request)
      const actor = actorOf(request)
      const strict = queryOf(request).isSet('strict')
      const call = {caller, actor, openFile, disabled, strict}
      const {lines, warnings} = await operations.restore(call)
      setWarnings(reply, warnings)
      return sendJson(request, reply, 200, lines)
    },
  })
  routeBackup(app, operations, options)
}

function routeBackup(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  app.get('/backup', {
    exposeHeadRoute: false,
    ...describeRoute({
      access: readsWhole('/v1/backup'),
      operationId: 'backup',
      summary:
        'A consistent backup of the store: all definitions and output, digests of tokens, encrypted secrets',
      tag: 'administration',
      reply: Type.String({format: 'binary'}),
      replyType: BACKUP_TYPE,
      errors: ['backup_running'],
    }),
    handler: async (_request, reply) => sendBackup(reply, operations, options),
  })
}

async function sendBackup(
  reply: FastifyReply,
  operations: Operations,
  options: HttpOptions,
): Promise<FastifyReply> {
  const backup = await operations.backup()
  const stream = Readable.from(contentsOf(backup), {objectMode: false})
  // Needed when the client disconnects before the first byte is read.
  stream.once('close', () => {
    backup.release().catch((error: unknown) => {
      options.onFault(error, {id: options.random.id(), method: 'GET', route: '/v1/backup'})
    })
  })
  const stamp = formatTime(options.clock.now()).replace(/[:.]/g, '-')
  return reply
    .header('content-type', BACKUP_TYPE)
    .header('content-disposition', `attachment; filename="belfry-${stamp}.sqlite"`)
    .header('cache-control', 'no-store')
    .send(stream)
}

/** Releases the backup before the stream ends: a client with the whole file can request the next one. */
async function* contentsOf(backup: BackupFile): AsyncGenerator<Uint8Array> {
  try {
    yield* createReadStream(backup.file) as AsyncIterable<Uint8Array>
  } finally {
    await backup.release()
  }
}

/** The bytes of the part `file`, which may be a file or a plain field. Parts before it are dropped. */
async function findFile(
  request: FastifyRequest,
  bytesMax: number,
): Promise<AsyncIterable<Uint8Array>> {
  requireUncompressed(request.headers)
  if (!request.isMultipart()) throw partMissing()
  try {
    for await (const part of request.parts()) {
      if (part.type === 'file' && part.fieldname === PART) return fileBytes(part.file, bytesMax)
      if (part.type === 'file') part.file.resume()
      else if (part.fieldname === PART) return fieldBytes(part)
    }
  } catch (error) {
    if (error instanceof DomainError) throw error
    throw new DomainError('request_malformed', 'The multipart body is malformed.', {cause: error})
  }
  throw partMissing()
}

/** Drains the rest of the file after success and failure, so that the connection stays usable. */
async function* fileBytes(file: Readable, bytesMax: number): AsyncGenerator<Uint8Array> {
  try {
    yield* limitedChunks(file, bytesMax)
  } finally {
    file.resume()
  }
}

/** A part without a file name is a field. The parser has already parsed one of type JSON. */
function fieldBytes(part: MultipartValue): AsyncIterable<Uint8Array> {
  if (part.valueTruncated) throw tooLarge()
  const text = typeof part.value === 'string' ? part.value : JSON.stringify(part.value)
  return Readable.from([Buffer.from(text)])
}

function partMissing(): DomainError {
  return new DomainError(
    'body_invalid',
    `The part "${PART}" is missing. Send the jobs as multipart/form-data: curl -F ${PART}=@jobs.json`,
  )
}
