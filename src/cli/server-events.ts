/** Reads server-sent events, as the API streams them. */

/** Exceeds any event of a server: a longer one means that the stream is something else. */
const EVENT_LENGTH_MAX = 4 * 2 ** 20

export interface ServerEvent {
  readonly name: string
  readonly data: string
  /** `''` when the event has none. */
  readonly id: string
}

/**
 * Reads server-sent events. Throws when the stream breaks or is not an event stream; ends with the stream.
 */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  let buffered = ''
  const decoder = new TextDecoder()
  for await (const bytes of body) {
    buffered += decoder.decode(bytes, {stream: true})
    const blocks = buffered.split('\n\n')
    buffered = blocks.pop()!
    if (buffered.length > EVENT_LENGTH_MAX) throw new Error('the event has no end')
    for (const block of blocks) {
      const event = parseBlock(block)
      if (event !== null) yield event
    }
  }
}

/** `null` for a block that contains comments only. */
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
