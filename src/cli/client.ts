/**
 * The API as the commands see it: one place that knows the address, the token, and how a refusal becomes a
 * sentence. It translates nothing else; shapes are those of `wire/`.
 */
import {UsageProblem} from './errors.ts'
import {oneLine} from './sanitize.ts'

/** A call that did not succeed. The message is one sentence for people. */
export class CallFailed extends Error {
  override readonly name = 'CallFailed'
  /** HTTP status; `null` when there was no answer. */
  readonly status: number | null

  constructor(message: string, status: number | null, options: ErrorOptions = {}) {
    super(message, options)
    this.status = status
  }
}

export interface CallOptions {
  readonly query?: Readonly<Record<string, string | undefined>>
  /** Sent as JSON. */
  readonly body?: unknown
  readonly form?: FormData
  readonly headers?: Readonly<Record<string, string>>
}

export interface Answered<Value> {
  readonly value: Value
  readonly headers: Headers
}

/** An answer that is only there to tell what went wrong is not read beyond this. */
const REFUSAL_LENGTH_MAX = 2_000

export class Client {
  readonly #base: string
  readonly #token: string | null

  /**
   * `server` such as `http://127.0.0.1:8080`; a path in it (as of a proxy) is kept, a trailing `/v1` is not
   * needed. Throws `UsageProblem`.
   */
  constructor(server: string, token: string | null) {
    const url = URL.parse(server)
    if (url === null || !['http:', 'https:'].includes(url.protocol))
      throw new UsageProblem(
        `--server wants a URL such as http://127.0.0.1:8080, not ${JSON.stringify(server)}.`,
      )
    this.#base = `${url.origin}${url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '')}`
    this.#token = token
  }

  /** Calls `path` below `/v1` and reads JSON. Throws `CallFailed`. */
  async call<Value>(
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<Answered<Value>> {
    const response = await this.open(method, path, options)
    const text = await this.#read(response, () => response.text())
    try {
      return {value: JSON.parse(text) as Value, headers: response.headers}
    } catch (error) {
      throw new CallFailed(
        `${this.#base} did not answer with JSON; is it a Belfry server?`,
        response.status,
        {cause: error},
      )
    }
  }

  /** The same, for an answer that is read as it comes. */
  async open(method: string, path: string, options: CallOptions = {}): Promise<Response> {
    const url = new URL(`${this.#base}/v1${path}`)
    for (const [name, value] of Object.entries(options.query ?? {}))
      if (value !== undefined) url.searchParams.set(name, value)
    const headers = new Headers({accept: 'application/json, text/plain;q=0.9', ...options.headers})
    if (this.#token !== null) headers.set('x-service-token', this.#token)
    let body: FormData | string | null = options.form ?? null
    if (options.body !== undefined) {
      headers.set('content-type', 'application/json')
      body = JSON.stringify(options.body)
    }
    const response = await this.#send(url, {method, headers, body, redirect: 'error'})
    if (!response.ok) throw await this.#refusal(response)
    return response
  }

  async #send(url: URL, request: RequestInit): Promise<Response> {
    try {
      return await fetch(url, request)
    } catch (error) {
      throw this.#unreachable(error)
    }
  }

  async #read<Value>(response: Response, read: () => Promise<Value>): Promise<Value> {
    try {
      return await read()
    } catch (error) {
      throw new CallFailed(
        `The answer of ${this.#base} broke off (${whyOf(error)}); try again.`,
        response.status,
        {cause: error},
      )
    }
  }

  #unreachable(error: unknown): CallFailed {
    return new CallFailed(
      `No server answers at ${this.#base} (${whyOf(error)}); ` +
        'start one with "belfry server" or name another with --server.',
      null,
      {cause: error},
    )
  }

  async #refusal(response: Response): Promise<CallFailed> {
    const text = await this.#read(response, () => response.text())
    const detail = oneLine(detailOf(text).slice(0, REFUSAL_LENGTH_MAX))
    const said = detail === '' ? `The server answered ${response.status}.` : detail
    const hint =
      response.status === 401 ? ' Give a token with --token-file, --token or BELFRY_TOKEN.' : ''
    return new CallFailed(`${said}${hint}`, response.status)
  }
}

/** The sentence in a problem document, or the text itself. */
function detailOf(text: string): string {
  try {
    const problem: unknown = JSON.parse(text)
    if (typeof problem === 'object' && problem !== null && 'detail' in problem)
      return String(problem.detail)
    return ''
  } catch (error) {
    if (error instanceof SyntaxError) return text
    throw error
  }
}

/** The platform hides what happened below its own "fetch failed". */
function whyOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined
  if (cause instanceof Error) return 'code' in cause ? String(cause.code) : cause.message
  return error instanceof Error ? error.message : String(error)
}

/** A path of parts that may hold anything. */
export function path(...parts: readonly string[]): string {
  return parts.map((part) => `/${encodeURIComponent(part)}`).join('')
}

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
