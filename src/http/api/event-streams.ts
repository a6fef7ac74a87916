/**
 * Server-sent events: the events of this server, and the output of one execution while it runs. Open streams
 * are limited in number and end with the server; `revocation.ts` ends them with their token. Slow clients
 * of the event stream are disconnected instead of buffered; they reconnect and read the current state.
 */
import {Readable} from 'node:stream'
import type {FastifyReply, FastifyRequest} from 'fastify'
import {decide, isShown, type Principal, readableJobs} from '../../core/access/authorization.ts'
import {DomainError} from '../../core/errors.ts'
import {type BelfryEvent, EVENTS} from '../../core/events.ts'
import type {AccessTable} from '../../identity/token-cache.ts'
import type {Followed} from '../../operations/follow.ts'
import type {Operations} from '../../operations/operations.ts'
import type {Events} from '../../ports/events.ts'
import type {Clock} from '../../ports/runtime.ts'
import {encodeExecution} from '../../wire/execution.ts'
import {formatTime} from '../../lib/rfc3339.ts'
import type {HttpLimits} from '../options.ts'
import {callerOf} from './request.ts'

/** Unsent bytes of one client before it is disconnected. */
const QUEUE_BYTES_MAX = 1024 * 1024
const STREAM_RETRY_SECONDS = 5
/** Shorter than the idle timeouts of usual proxies. */
const KEEP_ALIVE_MS = 15_000
/** An SSE comment, which clients ignore. */
const KEEP_ALIVE = Buffer.from(': \n\n')

/** `GET /v1/events`: the events of this server. Each event is encoded once, for all clients. */
export class EventStreams {
  readonly #events: Events
  readonly #clock: Clock
  readonly #access: Pick<AccessTable, 'current'>
  readonly #streams: OpenStreams
  readonly #open = new Map<Readable, Principal>()
  /** Set while streams are open. */
  #unsubscribe: (() => void) | null = null

  constructor(
    {
      events,
      clock,
      access,
    }: {
      readonly events: Events
      readonly clock: Clock
      readonly access: Pick<AccessTable, 'current'>
    },
    streams: OpenStreams,
  ) {
    this.#events = events
    this.#clock = clock
    this.#access = access
    this.#streams = streams
  }

  open(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    return this.#streams.open(request, reply, async () => this.#subscribe(callerOf(request)))
  }

  #subscribe(caller: Principal): Readable {
    const stream = new Readable({read: () => undefined, highWaterMark: QUEUE_BYTES_MAX})
    this.#open.set(stream, caller)
    this.#unsubscribe ??= this.#events.listen((event) => this.#push(event))
    const stopKeepAlive = this.#repeat(() => push(stream, KEEP_ALIVE))
    stream.once('close', () => {
      stopKeepAlive()
      this.#open.delete(stream)
      if (this.#open.size > 0) return
      this.#unsubscribe?.()
      this.#unsubscribe = null
    })
    push(stream, KEEP_ALIVE)
    return stream
  }

  #push(event: BelfryEvent): void {
    if (EVENTS[event.name].shownTo === null) return
    const bytes = Buffer.from(encodeEvent(event))
    for (const [stream, caller] of this.#open) if (this.#shows(caller, event)) push(stream, bytes)
  }

  /** Applies the policies of now. */
  #shows(caller: Principal, {name, data}: BelfryEvent): boolean {
    if (caller.kind === 'management') return true
    const principal = this.#access.current(caller)
    if (principal === null) return false
    const {shownTo} = EVENTS[name]
    if (shownTo === null || shownTo === 'any') return shownTo === 'any'
    if (typeof shownTo === 'object') return decide(principal, ...shownTo).allowed
    const jobs = readableJobs(principal)
    if (jobs === null) return true
    return shownTo === 'job' && 'job' in data && isShown(jobs, data.job)
  }

  #repeat(sendKeepAlive: () => void): () => void {
    const again = () => {
      sendKeepAlive()
      timer = this.#clock.after(KEEP_ALIVE_MS, again)
    }
    let timer = this.#clock.after(KEEP_ALIVE_MS, again)
    return () => timer.cancel()
  }
}

/** Ends the stream of a client that does not read. */
function push(stream: Readable, bytes: Buffer): void {
  if (stream.destroyed) return
  stream.push(bytes)
  if (stream.readableLength > QUEUE_BYTES_MAX) stream.destroy()
}

function encodeEvent(event: BelfryEvent): string {
  const data = Object.fromEntries(
    Object.entries(event.data).map(([key, value]) => [
      key,
      key.endsWith('_at') && typeof value === 'number' ? formatTime(value) : value,
    ]),
  )
  return eventText(event.name, {at: formatTime(event.at), ...data})
}

/**
 * The output of one execution: `output` events with text and position, then `end` with the execution. The id
 * of an event is the position of the next one: a client that reconnects with `Last-Event-ID` misses nothing.
 */
export class OutputStreams {
  readonly #operations: Pick<Operations, 'follow'>
  readonly #streams: OpenStreams

  constructor(operations: Pick<Operations, 'follow'>, streams: OpenStreams) {
    this.#operations = operations
    this.#streams = streams
  }

  open(
    request: FastifyRequest,
    reply: FastifyReply,
    name: string,
    execution: string,
  ): Promise<FastifyReply> {
    return this.#streams.open(request, reply, async () => {
      const followed = await this.#operations.follow(name, execution, resumePosition(request))
      return Readable.from(encodeOutput(followed), {objectMode: false})
    })
  }
}

/** 0 without `Last-Event-ID`, and with one that this server cannot have sent. */
function resumePosition(request: FastifyRequest): number {
  const value = request.headers['last-event-id']
  return typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : 0
}

async function* encodeOutput(
  followed: AsyncGenerator<Followed>,
): AsyncGenerator<string | Uint8Array> {
  // Sent at once, so that a client sees the stream open before the execution writes anything.
  yield KEEP_ALIVE
  for await (const item of followed) {
    switch (item.kind) {
      case 'output':
        yield eventText('output', outputOf(item), String(item.next))
        break
      case 'idle':
        yield KEEP_ALIVE
        break
      case 'end': {
        const view = {...item.execution, output: new Uint8Array(), outputTruncated: false}
        const fields = encodeExecution(view, 0)
        yield eventText('end', {
          ...fields,
          // The events before have it.
          output: undefined,
          output_truncated: undefined,
          output_omitted: undefined,
          head: item.execution.outputHead,
          foot: item.execution.outputFoot,
        })
        break
      }
    }
  }
}

/** `omitted` is absent when nothing before this text is missing, as it is in nearly all events. */
function outputOf({from, text, omitted}: Followed & {readonly kind: 'output'}): object {
  return omitted === 0 ? {offset: from, text} : {offset: from, text, omitted}
}

/** Server-sent event. `data` is encoded as JSON, which has no line breaks. */
function eventText(event: string, data: unknown, id: string | null = null): string {
  const idLine = id === null ? '' : `id: ${id}\n`
  return `${idLine}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

interface StreamOptions {
  readonly limits: Pick<HttpLimits, 'streamsMax' | 'tokenStreamsMax'>
  readonly access: Pick<AccessTable, 'holderOf'>
}

interface Place {
  readonly holder: string
  /** `null` while it is being opened. */
  stream: Readable | null
}

/** All open streams of this server. */
export class OpenStreams {
  readonly #options: StreamOptions
  readonly #places = new Set<Place>()
  #isEnding = false

  constructor(options: StreamOptions) {
    this.#options = options
  }

  /** Sends the stream that `create` returns. Throws `too_many_streams`. */
  async open(
    request: FastifyRequest,
    reply: FastifyReply,
    create: () => Promise<Readable>,
  ): Promise<FastifyReply> {
    const place = this.#take(callerOf(request))
    try {
      return this.#send(reply, place, await create())
    } catch (error) {
      this.#places.delete(place)
      throw error
    }
  }

  #take(caller: Principal): Place {
    const {access} = this.#options
    const {streamsMax, tokenStreamsMax} = this.#options.limits
    const holder = access.holderOf(caller)
    const fix = 'Close some or poll instead.'
    if (this.#places.size >= streamsMax)
      throw refusedStream(`${streamsMax} event streams are open. ${fix}`)
    const own = [...this.#places].filter((place) => place.holder === holder)
    if (caller.kind !== 'management' && own.length >= tokenStreamsMax)
      throw refusedStream(`${tokenStreamsMax} event streams of this token are open. ${fix}`)
    const place = {holder, stream: null}
    this.#places.add(place)
    return place
  }

  #send(reply: FastifyReply, place: Place, stream: Readable): FastifyReply {
    if (this.#isEnding) {
      stream.destroy()
      throw refusedStream('the server shuts down. Use another server.')
    }
    place.stream = stream
    stream.once('close', () => this.#places.delete(place))
    return reply
      .header('content-type', 'text/event-stream; charset=utf-8')
      .header('cache-control', 'no-store, no-transform')
      .header('x-accel-buffering', 'no')
      .send(stream)
  }

  /** Ends all streams and refuses new ones. */
  endAll(): void {
    this.#isEnding = true
    for (const {stream} of this.#places) stream?.destroy()
  }
}

function refusedStream(cause: string): DomainError {
  return new DomainError('too_many_streams', `The stream cannot be opened: ${cause}`, {
    retryAfterSeconds: STREAM_RETRY_SECONDS,
  })
}
