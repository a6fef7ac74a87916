/**
 * Everything that happens in this server, as an event stream for whoever keeps fresh by it. A client that
 * reads more slowly than things happen is cut off rather than remembered for: it comes back and reads the
 * present.
 */
import {Readable} from 'node:stream'
import type {FastifyReply, FastifyRequest} from 'fastify'
import {DomainError} from '../core/errors.ts'
import type {Followed} from '../operations/follow.ts'
import type {Operations} from '../operations/operations.ts'
import type {BelfryEvent, EventName, Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import {encodeExecution} from '../wire/execution.ts'
import {formatTime} from '../wire/time.ts'
import {STREAMS_MAX} from './options.ts'

/** What may wait for one client. */
const QUEUE_BYTES_MAX = 1024 * 1024
/** Below the idle limits of usual proxies. */
const SIGN_OF_LIFE_MS = 15_000

/** Inner workings in numbers: they have metrics and would drown everything else. */
const NOT_SENT: ReadonlySet<EventName> = new Set(['store_committed', 'launch_pass_done'])

export class EventStreams {
  readonly #events: Events
  readonly #clock: Clock
  readonly #streams: OpenStreams

  constructor(events: Events, clock: Clock, streams: OpenStreams) {
    this.#events = events
    this.#clock = clock
    this.#streams = streams
  }

  open(reply: FastifyReply): FastifyReply {
    this.#streams.admit()
    const stream = new Readable({read: () => undefined, highWaterMark: QUEUE_BYTES_MAX})
    const push = (text: string) => {
      if (stream.destroyed) return
      stream.push(text)
      if (stream.readableLength > QUEUE_BYTES_MAX) stream.destroy()
    }
    const stop = this.#events.listen((event) => {
      if (!NOT_SENT.has(event.name)) push(textOf(event))
    })
    const stopLife = this.#signsOfLife(() => push(COMMENT))
    stream.once('close', () => {
      stop()
      stopLife()
    })
    push(COMMENT)
    return this.#streams.send(reply, stream)
  }

  #signsOfLife(sign: () => void): () => void {
    const again = () => {
      sign()
      timer = this.#clock.after(SIGN_OF_LIFE_MS, again)
    }
    let timer = this.#clock.after(SIGN_OF_LIFE_MS, again)
    return () => timer.cancel()
  }
}

function textOf(event: BelfryEvent): string {
  const data = Object.fromEntries(
    Object.entries(event.data).map(([key, value]) => [
      key,
      key.endsWith('_at') && typeof value === 'number' ? formatTime(value) : value,
    ]),
  )
  return eventText(event.name, {at: formatTime(event.at), ...data})
}

/*
 * The output of one execution as an event stream: `output` with its text and position, then `end` with the
 * execution. The id of each event is where the next one begins, so a client that comes back with
 * `Last-Event-ID` misses nothing.
 */

export class OutputStreams {
  readonly #operations: Pick<Operations, 'follow'>
  readonly #streams: OpenStreams

  constructor(operations: Pick<Operations, 'follow'>, streams: OpenStreams) {
    this.#operations = operations
    this.#streams = streams
  }

  async open(
    request: FastifyRequest,
    reply: FastifyReply,
    name: string,
    execution: string,
  ): Promise<FastifyReply> {
    this.#streams.admit()
    const followed = await this.#operations.follow(name, execution, resumeAt(request))
    return this.#streams.send(reply, Readable.from(texts(followed), {objectMode: false}))
  }
}

/** A header nobody can have got from here is taken as none. */
function resumeAt(request: FastifyRequest): number {
  const value = request.headers['last-event-id']
  const position = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : 0
  return position
}

async function* texts(followed: AsyncGenerator<Followed>): AsyncGenerator<string> {
  // Sent at once, so that a client sees the stream open before the run writes anything.
  yield COMMENT
  for await (const item of followed) {
    switch (item.kind) {
      case 'output':
        yield eventText('output', {offset: item.from, text: item.text}, String(item.next))
        break
      case 'quiet':
        yield COMMENT
        break
      case 'end': {
        const view = {...item.execution, output: new Uint8Array(), outputTruncated: false}
        const {output: _output, output_truncated: _truncated, ...facts} = encodeExecution(view, 0)
        yield eventText('end', {
          ...facts,
          head: item.execution.outputHead,
          foot: item.execution.outputFoot,
        })
        break
      }
    }
  }
}

/*
 * Server-sent events: how many may be open, what each line looks like, and that they all end when the server
 * does. What is sent stands with the two kinds of streams.
 */

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
