/** A client of server-sent events that keeps the received text. Closed at the end of its test. */
import {atEnd, type Owner, type ServerProcess} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'

export class Stream {
  /** Text received so far. */
  text = ''

  /** Resolves when the response headers have arrived. */
  static async open(owner: Owner, server: ServerProcess, path: string): Promise<Stream> {
    const closing = new AbortController()
    const headers = {accept: 'text/event-stream'}
    const response = await fetch(`${server.url}/v1${path}`, {headers, signal: closing.signal})
    if (response.status !== 200) throw new Error(`${path}: ${response.status}`)
    const stream = new Stream()
    const ended = stream.#read(response.body!).catch((error: unknown) => {
      // Aborting the stream is how the caller closes it.
      if (!closing.signal.aborted) throw error
    })
    atEnd(owner, () => {
      closing.abort()
      return ended
    })
    return stream
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder()
    for await (const part of body) this.text += decoder.decode(part, {stream: true})
  }

  /** Resolves when the received text matches `pattern`. */
  async says(pattern: RegExp): Promise<void> {
    await until(`the stream says ${pattern.source}`, () => pattern.test(this.text))
  }

  /** The `text` field of each event that has one. */
  texts(): string[] {
    const lines = this.text.split('\n').filter((line) => line.startsWith('data: '))
    const data = lines.map((line): {text?: string} => JSON.parse(line.slice('data: '.length)))
    return data.flatMap(({text}) => (text === undefined ? [] : [text]))
  }
}
