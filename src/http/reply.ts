/**
 * Success as an answer: JSON compact or indented, headers that travel safely, and long lists in pieces, so
 * that a hundred thousand rows are neither one string in memory nor one pause of the event loop.
 */
import {Readable} from 'node:stream'
import type {FastifyReply, FastifyRequest} from 'fastify'
import type {Clock} from '../ports/runtime.ts'
import {Query} from '../wire/query.ts'

export const JSON_TYPE = 'application/json; charset=utf-8'

/** Rows that are encoded without letting other work have its turn: some milliseconds of jobs. */
const ROWS_AT_ONCE = 500
const IGNORED_FIELDS_SHOWN = 10
const FIELD_NAME_LENGTH_MAX = 100
/** Within what every client accepts of all headers together. */
const WARNINGS_LENGTH_MAX = 4_096

export function queryOf(request: FastifyRequest): Query {
  return request.query instanceof Query ? request.query : new Query('')
}

export function isPretty(request: FastifyRequest): boolean {
  return queryOf(request).switched('pretty')
}

export function sendJson(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  value: unknown,
): FastifyReply {
  const text = JSON.stringify(value, null, isPretty(request) ? 2 : undefined)
  return reply.code(status).header('content-type', JSON_TYPE).send(text)
}

/** An array of rows with `X-Total-Count`. Short ones go out at once, long ones as a stream. */
export function sendRows<Row>(
  request: FastifyRequest,
  reply: FastifyReply,
  clock: Clock,
  page: {readonly total: number; readonly rows: readonly Row[]},
  encode: (row: Row) => unknown,
): FastifyReply {
  reply.header('x-total-count', String(page.total))
  if (page.rows.length <= ROWS_AT_ONCE) return sendJson(request, reply, 200, page.rows.map(encode))
  const pieces = rowTexts(page.rows, encode, isPretty(request), clock)
  return reply
    .code(200)
    .header('content-type', JSON_TYPE)
    .send(Readable.from(pieces, {objectMode: false}))
}

async function* rowTexts<Row>(
  rows: readonly Row[],
  encode: (row: Row) => unknown,
  pretty: boolean,
  clock: Clock,
): AsyncGenerator<string> {
  const text = (row: Row) =>
    pretty
      ? `\n  ${JSON.stringify(encode(row), null, 2).replaceAll('\n', '\n  ')}`
      : JSON.stringify(encode(row))
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE) {
    const texts = rows.slice(from, from + ROWS_AT_ONCE).map(text)
    yield (from === 0 ? '[' : ',') + texts.join(',')
    await new Promise<void>((resolve) => {
      clock.after(0, resolve)
    })
  }
  yield pretty ? '\n]' : ']'
}

/** Names of fields nobody knows, percent-encoded. */
export function sendIgnoredFields(reply: FastifyReply, names: readonly string[]): void {
  if (names.length === 0) return
  const shown = names
    .slice(0, IGNORED_FIELDS_SHOWN)
    .map((name) => encodeURIComponent(name.slice(0, FIELD_NAME_LENGTH_MAX).toWellFormed()))
  reply.header('x-ignored-fields', shown.join(', '))
}

/** Sentences for people; what a header cannot hold is percent-encoded. */
export function sendWarnings(reply: FastifyReply, warnings: readonly string[]): void {
  if (warnings.length === 0) return
  reply.header('x-warnings', headerText(warnings.join('; ')).slice(0, WARNINGS_LENGTH_MAX))
}

function headerText(text: string): string {
  return text
    .toWellFormed()
    .replace(/[^\x20-\x7e]|%/gu, (character) => encodeURIComponent(character))
}
