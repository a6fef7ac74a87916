/**
 * Successful replies: JSON compact or indented, safe header values, and long lists in chunks. A hundred
 * thousand rows are neither one string in memory nor one pause of the event loop.
 */
import {hash} from 'node:crypto'
import {Readable} from 'node:stream'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {decide, jobPath, shownJobs} from '../../core/access/authorization.ts'
import type {JobRecord, ShownJob} from '../../core/job.ts'
import {withoutDetails} from '../../core/job-fields.ts'
import {pause} from '../../lib/pause.ts'
import type {Page, Slice} from '../../ports/page.ts'
import type {Clock} from '../../ports/runtime.ts'
import {encodeJob, type JobJson} from '../../wire/job.ts'
import {PAGE_ROWS_MAX} from '../../wire/query.ts'
import type {LongLists} from './long-lists.ts'
import {callerOf, isPretty} from './request.ts'

export const JSON_TYPE = 'application/json; charset=utf-8'

/** Rows encoded before the event loop gets a turn: some milliseconds of jobs. */
const CHUNK_ROWS = 500
/** A client that reads 10 KB/s takes some seconds for it. */
const PIECE_BYTES = 64 * 1024
const IGNORED_FIELDS_SHOWN = 10
const FIELD_NAME_LENGTH_MAX = 100
/** Every client accepts this much in all headers together. */
const WARNINGS_LENGTH_MAX = 4_096

export function sendJson(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  value: unknown,
): FastifyReply {
  const text = JSON.stringify(value, null, isPretty(request) ? 2 : undefined)
  return reply.code(status).header('content-type', JSON_TYPE).send(text)
}

/** A job in a reply; replies to a change have no conditions. Names only dependents the caller may read. */
export function encodeJobFor(request: FastifyRequest, job: ShownJob): JobJson {
  if (job.dependentJobs.length === 0) return encodeJob(job)
  return encodeJob({...job, dependentJobs: shownJobs(callerOf(request), job.dependentJobs)})
}

/**
 * The job with its `ETag`: the revision, which conditional writes compare, and a digest of the body. A strong
 * validator must change with the body, and counters change without a revision. `more` is after its fields. A
 * caller that changed the job may not be able to read it: then its details are left out.
 */
export function sendJob(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  job: ShownJob,
  more: {readonly warnings?: readonly string[]} = {},
): FastifyReply {
  const isReadable = decide(callerOf(request), 'read', jobPath(job.spec.name)).allowed
  const body = encodeJobFor(request, isReadable ? job : jobWithoutDetails(job))
  reply.header('etag', `"${job.revision}.${digestOf(body)}"`)
  return sendJson(request, reply, status, {...body, ...more})
}

/** 64 bits: two bodies of one revision must differ in it. */
const DIGEST_LENGTH = 11

function digestOf(body: JobJson): string {
  return hash('sha256', JSON.stringify(body), 'base64url').slice(0, DIGEST_LENGTH)
}

/**
 * An array of rows with `X-Total-Count`. Short arrays are sent at once, long ones as a stream. `onSent` is
 * called once when the rows are encoded or the client has disconnected.
 */
export function sendRows<Row>(
  request: FastifyRequest,
  reply: FastifyReply,
  clock: Clock,
  page: Page<Row>,
  encode: (row: Row) => unknown,
  onSent: () => void = () => undefined,
): FastifyReply {
  reply.header('x-total-count', String(page.total))
  if (page.rows.length <= CHUNK_ROWS) {
    onSent()
    return sendJson(request, reply, 200, page.rows.map(encode))
  }
  const chunks = rowChunks([...page.rows], encode, isPretty(request), clock)
  const stream = Readable.from(chunks, {objectMode: false})
  stream.once('close', onSent)
  return reply.code(200).header('content-type', JSON_TYPE).send(stream)
}

function jobWithoutDetails(job: JobRecord): JobRecord {
  const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
  return {...job, spec: withoutDetails(job.spec), counters, status: '', dependentJobs: []}
}

export interface ListParts {
  readonly clock: Clock
  readonly lists: LongLists
}

interface List<Row> {
  readonly slice: Slice
  readonly read: () => Promise<Page<Row>>
  readonly encode: (row: Row) => unknown
}

/** Reads and sends a list. Throws `too_many_lists` for one without a limit. */
export async function sendList<Row>(
  request: FastifyRequest,
  reply: FastifyReply,
  {clock, lists}: ListParts,
  {slice, read, encode}: List<Row>,
): Promise<FastifyReply> {
  const isLong = slice.end === null || slice.end - slice.start > PAGE_ROWS_MAX
  const leave = isLong ? await lists.enter() : () => undefined
  try {
    return sendRows(request, reply, clock, await read(), encode, leave)
  } catch (error) {
    leave()
    throw error
  }
}

/** Removes the rows that it has encoded: a slow client holds only the rest in memory. */
async function* rowChunks<Row>(
  remaining: Row[],
  encode: (row: Row) => unknown,
  pretty: boolean,
  clock: Clock,
): AsyncGenerator<string> {
  const text = (row: Row) =>
    pretty
      ? `\n  ${JSON.stringify(encode(row), null, 2).replaceAll('\n', '\n  ')}`
      : JSON.stringify(encode(row))
  for (let start = '['; remaining.length > 0; start = ',') {
    yield start + remaining.splice(0, CHUNK_ROWS).map(text).join(',')
    await pause(clock, 0)
  }
  yield pretty ? '\n]' : ']'
}

/**
 * Sends large replies in pieces. A connection with TLS shows no progress before a write is complete, and a
 * client without progress is disconnected: a write must not take long, however slow the client is.
 */
export function sendInPieces(app: FastifyInstance): void {
  app.addHook('onSend', (_request, reply, payload: unknown, done) => {
    const isWhole = typeof payload === 'string' || payload instanceof Uint8Array
    if (!isWhole || payload.length <= PIECE_BYTES) return done(null, payload)
    const bytes = typeof payload === 'string' ? Buffer.from(payload) : payload
    reply.header('content-length', String(bytes.length))
    done(null, Readable.from(piecesOf(bytes), {objectMode: false}))
  })
}

function* piecesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let from = 0; from < bytes.length; from += PIECE_BYTES)
    yield bytes.subarray(from, from + PIECE_BYTES)
}

/** `X-Ignored-Fields`: unknown fields of the request, percent-encoded. */
export function setIgnoredFields(reply: FastifyReply, names: readonly string[]): void {
  if (names.length === 0) return
  const shown = names
    .slice(0, IGNORED_FIELDS_SHOWN)
    .map((name) => encodeURIComponent(name.slice(0, FIELD_NAME_LENGTH_MAX).toWellFormed()))
  reply.header('x-ignored-fields', shown.join(', '))
}

/** Adds to `X-Warnings`: sentences for people. Characters that a header cannot carry are percent-encoded. */
export function setWarnings(reply: FastifyReply, warnings: readonly string[]): void {
  if (warnings.length === 0) return
  const before = reply.getHeader('x-warnings')
  const text = headerText(warnings.join('; '))
  const whole = before === undefined ? text : `${String(before)}; ${text}`
  reply.header('x-warnings', whole.slice(0, WARNINGS_LENGTH_MAX))
}

function headerText(text: string): string {
  return text
    .toWellFormed()
    .replace(/[^\x20-\x7e]|%/gu, (character) => encodeURIComponent(character))
}
