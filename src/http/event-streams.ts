/**
 * Everything that happens in this server, as an event stream for whoever keeps fresh by it. A client that
 * reads more slowly than things happen is cut off rather than remembered for: it comes back and reads the
 * present.
 */
import {Readable} from 'node:stream'
import type {FastifyReply} from 'fastify'
import type {Clock} from '../ports/runtime.ts'
import type {BelfryEvent, EventName, Events} from '../ports/events.ts'
import {formatTime} from '../wire/time.ts'
import {COMMENT, eventText, type OpenStreams} from './streams.ts'

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
