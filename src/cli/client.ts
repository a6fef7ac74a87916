/**
 * HTTP client of the API: it adds the address and the token, and turns error responses into messages. Values
 * have the shapes of `wire/`. Also reads server-sent events.
 */
import {CallFailed, UsageError} from './errors.ts'
import {oneLine} from './sanitize.ts'
import type {TokenChoice} from './token.ts'

export interface CallOptions {
  readonly query?: Readonly<Record<string, string | number | undefined>>
  /** Sent as JSON. */
  readonly body?: unknown
  readonly form?: FormData
  readonly headers?: Readonly<Record<string, string>>
}

export interface Reply<Value> {
  readonly value: Value
  readonly headers: Headers
}

/** A longer error message is truncated. */
const MESSAGE_LENGTH_MAX = 2_000
/** Longer than any event of a server; the stream is something else then. */
const EVENT_LENGTH_MAX = 4 * 2 ** 20

export class Client {
  readonly #base: string
  readonly #token: TokenChoice | null

  /**
   * `server` is a URL such as `http://127.0.0.1:8080`. Its path (of a proxy) is kept; a trailing `/v1` is
   * optional. Throws `UsageError`.
   */
  constructor(server: string, token: TokenChoice | null) {
    const url = URL.parse(server)
    if (url === null || !['http:', 'https:'].includes(url.protocol))
      throw new UsageError(
        `--server must be a URL such as http://127.0.0.1:8080, not ${JSON.stringify(server)}.`,
      )
    this.#base = `${url.origin}${url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '')}`
    this.#token = token
  }

  /** Calls `path` below `/v1` and reads JSON. Throws `CallFailed`. */
  async call<Value>(
    method: string,
    path: string,
    options: CallOptions = {},
  ): Promise<Reply<Value>> {
    const response = await this.open(method, path, options)
    const text = await this.#read(response, () => response.text())
    try {
      return {value: JSON.parse(text) as Value, headers: response.headers}
    } catch (error) {
      throw new CallFailed(
        `The response of ${this.#base} is not JSON. Check that it is a Belfry server.`,
        response.status,
        {cause: error},
      )
    }
  }

  /** As `call`, for a response that is streamed. */
  async open(method: string, path: string, options: CallOptions = {}): Promise<Response> {
    const url = new URL(`${this.#base}/v1${path}`)
    for (const [name, value] of Object.entries(options.query ?? {}))
      if (value !== undefined) url.searchParams.set(name, String(value))
    const headers = new Headers({accept: 'application/json, text/plain;q=0.9', ...options.headers})
    if (this.#token !== null) headers.set('x-service-token', this.#token.text)
    let body: FormData | string | null = options.form ?? null
    if (options.body !== undefined) {
      headers.set('content-type', 'application/json')
      body = JSON.stringify(options.body)
    }
    const response = await this.#send(url, {method, headers, body, redirect: 'error'})
    if (!response.ok) throw await this.#errorOf(response)
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
        `The connection to ${this.#base} was lost (${whyOf(error)}). Try again.`,
        response.status,
        {cause: error},
      )
    }
  }

  #unreachable(error: unknown): CallFailed {
    return new CallFailed(
      `Cannot connect to a server at ${this.#base} (${whyOf(error)}). ` +
        'Start one with "belfry server", or set another URL with --server.',
      null,
      {cause: error},
    )
  }

  async #errorOf(response: Response): Promise<CallFailed> {
    const text = await this.#read(response, () => response.text())
    const detail = oneLine(detailOf(text).slice(0, MESSAGE_LENGTH_MAX))
    const {status} = response
    if (status === 401) return new CallFailed(this.#unauthenticated(), status)
    const message = detail === '' ? `The server responded with ${status}.` : detail
    return new CallFailed([withDelay(message, response), ...problemsOf(text)].join('\n'), status)
  }

  /** The server does not tell who has no valid token why. What was sent is known here. */
  #unauthenticated(): string {
    return this.#token === null
      ? 'A token is needed. Set one with --token-file, --token or BELFRY_TOKEN.'
      : `The token in ${this.#token.source} is not accepted: it is unknown, revoked or has expired.`
  }
}

/** One line for each of several problems, as of a restored file. */
function problemsOf(text: string): readonly string[] {
  const {errors = []} = (problemIn(text) ?? {}) as {errors?: readonly unknown[]}
  if (errors.length < 2) return []
  return errors.map((error) => {
    const {name, problem: why} = error as {name: unknown; problem: unknown}
    return `  ${oneLine(`${String(name)}: ${String(why)}`).slice(0, MESSAGE_LENGTH_MAX)}`
  })
}

/** Says when to repeat the request, if the server does. */
function withDelay(message: string, {headers}: Response): string {
  const seconds = headers.get('retry-after') ?? ''
  return /^\d+$/.test(seconds) ? message.replace(/ later\.$/, ` in ${seconds} s.`) : message
}

/** The detail of a problem document, or the text itself. */
function detailOf(text: string): string {
  const problem = problemIn(text)
  if (problem === null) return text
  return 'detail' in problem ? String(problem.detail) : ''
}

/** `null` if the text is not JSON. */
function problemIn(text: string): object | null {
  try {
    const problem: unknown = JSON.parse(text)
    return typeof problem === 'object' && problem !== null ? problem : {}
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

/** The cause of an error: `fetch` hides it behind "fetch failed". */
function whyOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause : undefined
  if (cause instanceof Error) return 'code' in cause ? String(cause.code) : cause.message
  return error instanceof Error ? error.message : String(error)
}

/** Builds a path; its parts may contain any characters. Throws `UsageError` for a name that is empty. */
export function path(...parts: readonly string[]): string {
  if (parts.includes('')) throw new UsageError('A name on the command line must not be empty.')
  return parts.map((part) => `/${encodeURIComponent(part)}`).join('')
}

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
