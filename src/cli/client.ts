/**
 * HTTP client of the API: it adds the address and the token, tries the next of several servers, and turns
 * error responses into messages. Values have the shapes of `wire/`.
 */
import type {ErrorCode} from '../core/error-codes.ts'
import {codeOf} from '../lib/error.ts'
import {CallFailed, UsageError} from './errors.ts'
import {exchange, ExchangeFailed, type Outgoing, TIMEOUT} from './exchange.ts'
import {formatDuration} from '../lib/duration.ts'
import {schemeMismatch} from '../platform/peer-protocol.ts'
import {oneLine} from './sanitize.ts'
import type {TokenChoice} from './token.ts'

export interface CallOptions {
  readonly query?: Readonly<Record<string, string | number | undefined>>
  /** Sent as JSON. */
  readonly body?: unknown
  readonly form?: FormData
  readonly headers?: Readonly<Record<string, string>>
  /** Sends an `Idempotency-Key`: a lost request is repeated at the next server, and done once. */
  readonly once?: true
  /** Sends the request only to the server that replied last. */
  readonly sameServer?: true
  /** Subject of warnings, if a command sends several requests. */
  readonly about?: string
  /** Default `REPLY_TIMEOUT_MS`. */
  readonly timeoutMs?: number
}

export interface Reply<Value> {
  readonly value: Value
  readonly headers: Headers
}

export interface ClientOptions {
  /** Replaces the time-outs of all calls; `null` = those of each call. */
  readonly timeoutMs: number | null
  /** Makes an `Idempotency-Key`. */
  readonly newId: (() => string) | null
  /** Receives the headers of every success. */
  readonly onReply?: (headers: Headers, about?: string) => void
}

/** A server replies within 30 s, or says that its store is late: this is longer. */
const REPLY_TIMEOUT_MS = 40_000
/** Restores and backups: a server gives them ten minutes. */
export const LONG_TIMEOUT_MS = 660_000
/** Three keep-alives of a stream. */
export const STREAM_TIMEOUT_MS = 45_000
/** Exceeds the servers of any cluster. */
const SERVERS_MAX = 20
/** A longer error message is truncated. */
const MESSAGE_LENGTH_MAX = 2_000
const UNTRUSTED = /CERT|SELF_SIGNED|UNABLE_TO_VERIFY|ERR_TLS_/

export class Client {
  readonly #servers: readonly string[]
  readonly #token: TokenChoice | null
  readonly #options: ClientOptions
  /** Index of the server that replied last: those before it were not reachable. */
  #current = 0

  /**
   * `servers` is a URL such as `http://127.0.0.1:8080`, or several with commas. A path (of a proxy) is kept;
   * a trailing `/v1` is optional. Throws `UsageError`.
   */
  constructor(
    servers: string,
    token: TokenChoice | null,
    options: ClientOptions = {timeoutMs: null, newId: null},
  ) {
    this.#servers = servers.split(',').map((server) => baseOf(server.trim()))
    if (this.#servers.length > SERVERS_MAX)
      throw new UsageError(`--server must have at most ${SERVERS_MAX} URLs.`)
    this.#token = token
    this.#options = options
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
        {cause: error, code: 'response_invalid'},
      )
    }
  }

  /** `call` with a response that is streamed. */
  async open(method: string, path: string, options: CallOptions = {}): Promise<Response> {
    const headers: Record<string, string> = {
      // Asks for the structured form of errors, where there is one.
      accept: 'application/json, application/problem+json, text/plain;q=0.9',
      ...options.headers,
    }
    if (this.#token !== null) headers['x-service-token'] = this.#token.text
    const id = options.once === undefined ? undefined : this.#options.newId?.()
    if (id !== undefined) headers['idempotency-key'] = id
    let body: FormData | string | null = options.form ?? null
    if (options.body !== undefined) {
      headers['content-type'] = 'application/json'
      body = JSON.stringify(options.body)
    }
    const idleMs = this.#options.timeoutMs ?? options.timeoutMs ?? REPLY_TIMEOUT_MS
    const outgoing = {method, headers, body, idleMs}
    const count = options.sameServer === true ? 1 : this.#servers.length
    const response = await this.#send(path, options.query ?? {}, outgoing, count)
    if (!response.ok) throw await this.#errorOf(response)
    this.#options.onReply?.(response.headers, options.about)
    return response
  }

  get #base(): string {
    return this.#servers[this.#current]!
  }

  /** Tries up to `count` servers, one after the other. A request that may have been done is not repeated. */
  async #send(
    path: string,
    query: Readonly<Record<string, string | number | undefined>>,
    outgoing: Outgoing,
    count: number,
  ): Promise<Response> {
    const {method, headers} = outgoing
    const mayRepeat = method === 'GET' || headers['idempotency-key'] !== undefined
    const failures: Failure[] = []
    for (const _ of this.#servers.slice(0, count)) {
      const url = new URL(`${this.#base}/v1${path}`)
      for (const [name, value] of Object.entries(query))
        if (value !== undefined) url.searchParams.set(name, String(value))
      try {
        return await exchange(url, outgoing)
      } catch (error) {
        if (!(error instanceof ExchangeFailed)) throw error
        failures.push({base: this.#base, url, error})
        if (error.isSent && !mayRepeat) break
        this.#current = (this.#current + 1) % this.#servers.length
      }
    }
    throw await failureOf(failures, outgoing)
  }

  async #read<Value>(response: Response, read: () => Promise<Value>): Promise<Value> {
    try {
      return await read()
    } catch (error) {
      throw new CallFailed(
        `The connection to ${this.#base} was lost (${reasonOf(error)}). Try again.`,
        response.status,
        {cause: error, code: 'connection_lost'},
      )
    }
  }

  async #errorOf(response: Response): Promise<CallFailed> {
    const {status} = response
    if (status >= 300 && status < 400) {
      await response.body?.cancel()
      const target = oneLine(response.headers.get('location') ?? 'another URL')
      const message = `${this.#base} redirects to ${target}. Set the URL of the server with --server.`
      return new CallFailed(message, status, {code: 'response_invalid'})
    }
    const text = await this.#read(response, () => response.text())
    const problem = problemIn(text)
    const {code, errors} = (problem ?? {}) as {code?: string; errors?: readonly unknown[]}
    const more = {...(code === undefined ? {} : {code}), ...(errors === undefined ? {} : {errors})}
    if (status === 401) return new CallFailed(this.#unauthenticated(), status, more)
    const detail = oneLine(detailOf(text).slice(0, MESSAGE_LENGTH_MAX))
    const message = detail === '' ? `The server responded with ${status}.` : detail
    const hint = HINTS[code ?? '']
    const first = withDelay(message, response) + (hint === undefined ? '' : ` ${hint}`)
    const lines = [first, ...problemsOf(text)]
    return new CallFailed(lines.join('\n'), status, more)
  }

  /** The server does not say why a token is invalid. The client knows what it sent. */
  #unauthenticated(): string {
    return this.#token === null
      ? 'A token is needed. Set one with --token-file, --token or BELFRY_TOKEN.'
      : `The token in ${this.#token.source} is not accepted: it is unknown, revoked or has expired.`
  }
}

/** `127.0.0.1:8080` is HTTP. Throws `UsageError`. */
function baseOf(server: string): string {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(server) ? server : `http://${server}`)
  const isBare = url !== null && url.username === '' && url.password === ''
  if (!isBare || !['http:', 'https:'].includes(url.protocol)) {
    // Text with an "@" may contain a password.
    const found = server.includes('@') ? '' : `, not ${JSON.stringify(server)}`
    throw new UsageError(`--server must be a URL such as http://127.0.0.1:8080${found}.`)
  }
  return `${url.origin}${url.pathname.replace(/\/+$/, '').replace(/\/v1$/, '')}`
}

interface Failure {
  readonly base: string
  readonly url: URL
  readonly error: ExchangeFailed
}

async function failureOf(
  failures: readonly Failure[],
  {method, idleMs}: Outgoing,
): Promise<CallFailed> {
  const last = failures.at(-1)!
  const {error: cause, base} = last
  const doubt =
    cause.isSent && method !== 'GET' ? ' It may be done: check before you repeat it.' : ''
  if (failures.length > 1) {
    const all = failures.map((failure) => `${failure.base} (${reasonOf(failure.error)})`)
    const fix = ' Start one of them, or set another with --server.'
    const message = `No server replies: ${all.join(', ')}.${doubt || fix}`
    return new CallFailed(message, null, {cause, code: 'unreachable'})
  }
  const mismatch = await schemeMismatch(base, cause.code)
  if (mismatch !== null) {
    const message = `The server at ${base} ${mismatch}.`
    return new CallFailed(message, null, {cause, code: 'unreachable'})
  }
  if (!cause.isSent) return new CallFailed(unreachable(last), null, {cause, code: 'unreachable'})
  if (cause.code === TIMEOUT) {
    const what = `The server at ${base} did not reply within ${formatDuration(idleMs)}.`
    const message = `${what}${doubt || ' Try again, or set a longer --timeout.'}`
    return new CallFailed(message, null, {cause, code: 'timeout'})
  }
  const what = `The connection to ${base} was lost (${cause.code}).`
  return new CallFailed(`${what}${doubt || ' Try again.'}`, null, {cause, code: 'connection_lost'})
}

function unreachable({base, error}: Failure): string {
  const {code, cause} = error
  if (UNTRUSTED.test(code)) {
    const why = cause instanceof Error ? `${cause.message}, ${code}` : code
    const fix = 'If a private authority has signed it, set NODE_EXTRA_CA_CERTS to its file.'
    return `The certificate of ${base} is not trusted (${why}). ${fix}`
  }
  return (
    `Cannot connect to a server at ${base} (${reasonOf(error)}). ` +
    'Start one with "belfry server", or set another URL with --server.'
  )
}

function reasonOf(error: unknown): string {
  const code = codeOf(error)
  return code === TIMEOUT ? 'it does not answer' : code
}

/** Flag or command for what the text of an error names as a parameter or a route. */
const HINTS: Readonly<Partial<Record<string, string>>> = {
  launch_open: 'To run it anyway, use --force.',
  too_many_lists: 'To request a page, use --limit.',
  submissions_paused: 'To end the pause, run "belfry unpause".',
} satisfies Partial<Record<ErrorCode, string>>

/** Lines of several problems, such as those of a restored file. */
function problemsOf(text: string): readonly string[] {
  const {errors = []} = (problemIn(text) ?? {}) as {errors?: readonly unknown[]}
  if (errors.length < 2) return []
  return errors.map((error) => {
    const {name, field, problem: why} = error as Readonly<Record<string, unknown>>
    return `  ${oneLine(`${String(name ?? field)}: ${String(why)}`).slice(0, MESSAGE_LENGTH_MAX)}`
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

/** Builds a path; its parts may contain any characters. Throws `UsageError` for a name that is empty. */
export function path(...parts: readonly string[]): string {
  if (parts.includes('')) throw new UsageError('A name on the command line must not be empty.')
  return parts.map((part) => `/${encodeURIComponent(part)}`).join('')
}
