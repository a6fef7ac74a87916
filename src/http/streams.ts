/**
 * Server-sent events: how many may be open, what each line looks like, and that they all end when the server
 * does. What is sent stands with the two kinds of streams.
 */
import type {Readable} from 'node:stream'
import type {FastifyReply} from 'fastify'
import {DomainError} from '../core/errors.ts'
import {STREAMS_MAX} from './options.ts'

export class OpenStreams {
  readonly #open = new Set<Readable>()

  /** Throws `too_many_streams`; to be asked before the work of opening one begins. */
  admit(): void {
    if (this.#open.size >= STREAMS_MAX)
      throw new DomainError(
        'too_many_streams',
        `There are already ${STREAMS_MAX} open event streams; close some or ask for pages instead.`,
        {retryAfterSeconds: 5},
      )
  }

  send(reply: FastifyReply, stream: Readable): FastifyReply {
    this.#open.add(stream)
    stream.once('close', () => this.#open.delete(stream))
    return reply
      .header('content-type', 'text/event-stream; charset=utf-8')
      .header('cache-control', 'no-cache, no-transform')
      .header('x-accel-buffering', 'no')
      .send(stream)
  }

  get size(): number {
    return this.#open.size
  }

  endAll(): void {
    for (const stream of this.#open) stream.destroy()
  }
}

/** One event. `data` is encoded as JSON, which has no line breaks. */
export function eventText(event: string, data: unknown, id: string | null = null): string {
  const idLine = id === null ? '' : `id: ${id}\n`
  return `${idLine}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

/** A sign of life that clients do not see. */
export const COMMENT = ': \n\n'
