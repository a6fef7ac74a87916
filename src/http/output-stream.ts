/**
 * The output of one execution as an event stream: `output` with its text and position, then `end` with the
 * execution. The id of each event is where the next one begins, so a client that comes back with
 * `Last-Event-ID` misses nothing.
 */
import {Readable} from 'node:stream'
import type {FastifyReply, FastifyRequest} from 'fastify'
import type {Followed} from '../operations/follow.ts'
import type {Operations} from '../operations/operations.ts'
import {encodeExecution} from '../wire/execution.ts'
import {COMMENT, eventText, type OpenStreams} from './streams.ts'

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
