/** Server-sent events read from a response, one at a time. Knows the format, not what the events mean. */

export interface ServerEvent {
  readonly name: string
  readonly data: string
  /** `''` when the event has none. */
  readonly id: string
}

/** Longer than any event of ours; what is longer is no event stream. */
const EVENT_LENGTH_MAX = 4 * 2 ** 20

/** Throws when the stream breaks, or is none. Ends when the server ends it. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  let waiting = ''
  const decoder = new TextDecoder()
  for await (const bytes of body) {
    waiting += decoder.decode(bytes, {stream: true})
    const blocks = waiting.split('\n\n')
    waiting = blocks.pop()!
    if (waiting.length > EVENT_LENGTH_MAX) throw new Error('an event without an end')
    for (const block of blocks) {
      const event = parseBlock(block)
      if (event !== null) yield event
    }
  }
}

/** `null` for a block of comments only. */
function parseBlock(block: string): ServerEvent | null {
  let name = ''
  let id = ''
  const data: string[] = []
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':')
    const field = colon === -1 ? line : line.slice(0, colon)
    const value = line.slice(colon + 1).replace(/^ /, '')
    if (field === 'event') name = value
    else if (field === 'id') id = value
    else if (field === 'data') data.push(value)
  }
  return name === '' && data.length === 0 ? null : {name, id, data: data.join('\n')}
}
