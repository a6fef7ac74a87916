/**
 * http executor: runs a job by sending a request. The response streams to the output; its status and body
 * determine the outcome. Follows a few redirects, checks each address, and never sends credentials to another
 * origin.
 */
import {constants} from 'node:fs'
import {open} from 'node:fs/promises'
import type {Agent, Dispatcher} from 'undici'
import type {StringMap} from '../core/job.ts'
import {formatByteSize} from '../lib/byte-size.ts'
import type {HeaderPair} from '../lib/http-header.ts'
import type {Executor, OutputSink, Run, RunEnd, RunHandle} from '../ports/executor.ts'
import type {Clock} from '../ports/runtime.ts'
import {CONNECTION_ERRORS} from '../platform/connection-errors.ts'
import {AddressDenied, type NetworkGuard} from '../platform/network-guard.ts'
import {
  HTTP_PARAMETERS,
  HTTP_SECRETS,
  type HttpPlan,
  type Method,
  readHttp,
} from './http-parameters.ts'

export interface HttpOptions {
  readonly clock: Clock
  readonly guard: NetworkGuard
}

/** Connect timeout, even if the timeout of the exchange is longer. */
const CONNECT_MS_MAX = 10_000
const REDIRECTS_MAX = 5
/** A larger response fails the execution; the output keeps what was read. */
const RESPONSE_BYTES_MAX = 256 * 1024 * 1024
/** All header fields of a response together. */
const HEADER_BYTES_MAX = 64 * 1024
/** Several times the certificates of all public CAs together. */
export const CERTIFICATE_BYTES_MAX = 4 * 1024 * 1024

const REDIRECTS = [301, 302, 303, 307, 308]

/** Headers that a redirect to another origin keeps; any other header could be a credential. */
const HARMLESS_HEADERS = ['accept', 'accept-language', 'user-agent']

const NO_URL = 'url is missing, so every run fails'

/**
 * Imported by the first http job: many nodes run none, and it takes several MiB. In the build, a CommonJS
 * package that is imported on demand has only its default export.
 */
const undici = async () => (await import('undici')).default

export function createHttpExecutor(options: HttpOptions): Executor {
  return {
    name: 'http',
    runsCommands: false,
    takesAccount: false,
    fileParameters: ['tlsCertificateFile', 'tlsCertificateKeyFile', 'tlsRootCAsFile'],
    parameters: HTTP_PARAMETERS,
    secretParameters: HTTP_SECRETS,
    check,
    start: (run, output) => start(run, output, options),
  }
}

function check(config: StringMap): {problems: string[]; warnings: string[]} {
  const {plan, problems} = readHttp(config)
  const isEmpty = plan.url === null && problems.length === 0
  return {problems, warnings: isEmpty ? [NO_URL] : []}
}

function start(run: Run, output: OutputSink, options: HttpOptions): RunHandle {
  const {plan, problems} = readHttp(run.config, run.secrets)
  const problem = problems[0] ?? (plan.url === null ? NO_URL : null)
  const aborter = new AbortController()
  let ended: Promise<RunEnd>
  if (problem !== null) ended = Promise.resolve(endOf('failed', problem))
  else {
    const exchange = new Exchange(plan, output, options, aborter.signal)
    const timer = options.clock.after(plan.timeoutMs, () => aborter.abort('timed_out'))
    ended = exchange.run().finally(() => timer.cancel())
  }
  const abort = (): void => aborter.abort('cancelled')
  return {cancel: abort, kill: abort, ended}
}

function endOf(outcome: RunEnd['outcome'], line: string): RunEnd {
  return {outcome, exitCode: null, head: '', foot: line === '' ? '' : `${line}\n`}
}

/** Request of an exchange. Each redirect adds another. */
interface Hop {
  readonly url: URL
  readonly method: Method
  readonly headers: readonly HeaderPair[]
  readonly body: string
  /** The client certificate is a credential too. */
  readonly withCertificate: boolean
}

/** Ends an exchange; the message is shown in the output. */
class ExchangeFailed extends Error {
  override readonly name = 'ExchangeFailed'
}

class Exchange {
  readonly #plan: HttpPlan
  readonly #output: OutputSink
  readonly #options: HttpOptions
  readonly #signal: AbortSignal

  constructor(plan: HttpPlan, output: OutputSink, options: HttpOptions, signal: AbortSignal) {
    this.#plan = plan
    this.#output = output
    this.#options = options
    this.#signal = signal
  }

  /** Never rejects. */
  async run(): Promise<RunEnd> {
    try {
      const problem = await this.#follow()
      return problem === null ? endOf('succeeded', '') : endOf('failed', problem)
    } catch (error) {
      const reason: unknown = this.#signal.reason
      if (reason === 'timed_out')
        return endOf('timed_out', `timed out after ${this.#plan.timeoutMs / 1000}s`)
      if (reason === 'cancelled') return endOf('cancelled', 'cancelled')
      return endOf('failed', explain(error))
    }
  }

  /** Sends the request and follows redirects. Returns why the response is not the expected one, or `null`. */
  async #follow(): Promise<string | null> {
    const {url, method, headers, body} = this.#plan
    let hop: Hop = {url: url!, method, headers, body, withCertificate: true}
    for (let redirects = 0; ; redirects++) {
      const agent = await this.#openAgent(hop)
      try {
        const response = await this.#send(hop, agent)
        const location = response.headers['location']
        const isRedirect = REDIRECTS.includes(response.statusCode) && typeof location === 'string'
        if (!isRedirect || this.#isExpected(response.statusCode))
          return await this.#receive(hop, response)
        if (redirects === REDIRECTS_MAX)
          return `more than ${REDIRECTS_MAX} redirects, the last to ${withoutSecrets(location)}`
        hop = nextHop(hop, response.statusCode, location)
      } finally {
        await agent.destroy()
      }
    }
  }

  /** Each hop has its own agent, so no connection or TLS session is shared between hops or jobs. */
  async #openAgent(hop: Hop): Promise<Agent> {
    const {timeoutMs, verifyPeer, certificateFile, keyFile, rootsFile} = this.#plan
    const withCertificate = hop.withCertificate && certificateFile !== ''
    const {Agent, buildConnector} = await undici()
    return new Agent({
      connect: this.#options.guard.connector(buildConnector, {
        timeout: Math.min(timeoutMs, CONNECT_MS_MAX),
        rejectUnauthorized: verifyPeer,
        allowH2: false,
        maxCachedSessions: 0,
        ...(rootsFile === '' ? {} : {ca: await readCertificateFile(rootsFile)}),
        ...(withCertificate
          ? {
              cert: await readCertificateFile(certificateFile),
              key: await readCertificateFile(keyFile),
            }
          : {}),
      }),
      // The timeout of the whole exchange applies as well.
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      maxHeaderSize: HEADER_BYTES_MAX,
      pipelining: 1,
      connections: 1,
    })
  }

  async #send(hop: Hop, agent: Agent): Promise<Dispatcher.ResponseData> {
    const {request} = await undici()
    return request(hop.url, {
      dispatcher: agent,
      method: hop.method,
      headers: hop.headers.flatMap(([name, value]) => [name, value]),
      body: hop.body === '' ? null : hop.body,
      signal: this.#signal,
    })
  }

  #isExpected(code: number): boolean {
    return this.#plan.expectedCodes.some(([from, to]) => code >= from && code <= to)
  }

  async #receive(hop: Hop, response: Dispatcher.ResponseData): Promise<string | null> {
    if (this.#plan.debug) await this.#write(Buffer.from(describe(hop, response)))
    const search = new Search(this.#plan.expectBody)
    let received = 0
    for await (const chunk of response.body as AsyncIterable<Buffer>) {
      received += chunk.length
      if (received > RESPONSE_BYTES_MAX) {
        throw new ExchangeFailed(
          `the response is larger than ${formatByteSize(RESPONSE_BYTES_MAX)}; the rest was not read`,
        )
      }
      search.push(chunk)
      await this.#write(chunk)
    }
    if (!this.#isExpected(response.statusCode)) {
      const expected = this.#plan.expectedCodes.map(([from, to]) =>
        from === to ? `${from}` : `${from}-${to}`,
      )
      return `the response has status ${response.statusCode}, expected ${expected.join(', ')}`
    }
    return search.found
      ? null
      : `the response does not contain ${JSON.stringify(this.#plan.expectBody)}`
  }

  /** Waits for the output's backpressure to end, or for the exchange to be aborted. */
  async #write(bytes: Buffer): Promise<void> {
    this.#signal.throwIfAborted()
    if (this.#output.write(bytes)) return
    await new Promise<void>((resolve) => {
      this.#output.drained(resolve)
      this.#signal.addEventListener('abort', () => resolve(), {once: true})
    })
    this.#signal.throwIfAborted()
  }
}

/** The request that a redirect leads to. Throws `ExchangeFailed` if it must not be followed. */
function nextHop(hop: Hop, code: number, location: string): Hop {
  const url = URL.parse(location, hop.url)
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    throw new ExchangeFailed(
      `redirected to ${JSON.stringify(withoutSecrets(location))}, which is not an http or https URL`,
    )
  }
  url.username = ''
  url.password = ''
  url.hash = ''
  // Browsers do the same: only 307 and 308 always keep the method and body.
  const becomesGet = code === 303 ? hop.method !== 'HEAD' : code < 303 && hop.method === 'POST'
  const sameOrigin = url.origin === hop.url.origin
  const body = becomesGet ? '' : hop.body
  if (!sameOrigin && body !== '') {
    throw new ExchangeFailed(
      `redirected with its body to another origin, ${url.origin}: set this url in the job`,
    )
  }
  const headers = hop.headers.filter(([name]) => {
    const lower = name.toLowerCase()
    if (body === '' && lower.startsWith('content-')) return false
    return sameOrigin || HARMLESS_HEADERS.includes(lower)
  })
  const method = becomesGet ? 'GET' : hop.method
  return {url, method, headers, body, withCertificate: hop.withCertificate && sameOrigin}
}

/** Removes user, password, query and fragment. */
function withoutSecrets(location: string): string {
  return location.replace(/\/\/[^/@]*@/, '//').split(/[?#]/)[0]!
}

function describe(hop: Hop, response: Dispatcher.ResponseData): string {
  const lines = [`> ${hop.method} ${withoutSecrets(hop.url.href)}`, `< ${response.statusCode}`]
  for (const [name, value] of Object.entries(response.headers)) {
    if (name === 'set-cookie') lines.push('< set-cookie: (not shown)')
    else lines.push(`< ${name}: ${String(value)}`)
  }
  return `${lines.join('\n')}\n\n`
}

/** Searches a stream for a text, also across chunk boundaries. */
class Search {
  readonly #needle: Buffer
  #tail: Buffer = Buffer.alloc(0)
  found: boolean

  constructor(text: string) {
    this.#needle = Buffer.from(text)
    this.found = text === ''
  }

  push(chunk: Buffer): void {
    if (this.found) return
    const window = this.#tail.length === 0 ? chunk : Buffer.concat([this.#tail, chunk])
    this.found = window.includes(this.#needle)
    const keep = Math.min(window.length, this.#needle.length - 1)
    this.#tail = Buffer.from(window.subarray(window.length - keep))
  }
}

/** Describes an error for the output of a job, by error codes and never by matching message texts. */
function explain(error: unknown): string {
  if (error instanceof AddressDenied || error instanceof ExchangeFailed) return error.message
  // All addresses of the host failed: report the first.
  if (error instanceof AggregateError && error.errors.length > 0) return explain(error.errors[0])
  if (!(error instanceof Error)) return String(error)
  if (error.cause instanceof AddressDenied) return error.cause.message
  const {code, path} = error as NodeJS.ErrnoException
  const message = CONNECTION_ERRORS[code ?? '']
  if (message !== undefined) return `the request failed: ${message} (${code})`
  const what = code === undefined ? error.message : `${error.message} (${code})`
  return path === undefined
    ? `the request failed: ${what}`
    : `the file ${path} could not be read: ${what}`
}

/**
 * Reads a certificate or key that a job names. A job may name any path, and a device or pipe has no end: only
 * a regular file of limited size is read, and opening never blocks. Throws `ExchangeFailed` or system errors.
 */
async function readCertificateFile(path: string): Promise<Buffer> {
  // NONBLOCK: opening a pipe would otherwise block until a writer opens it.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const facts = await file.stat()
    if (!facts.isFile()) throw new ExchangeFailed(`${path} is not a regular file`)
    if (facts.size > CERTIFICATE_BYTES_MAX)
      throw new ExchangeFailed(`${path} is larger than ${CERTIFICATE_BYTES_MAX} bytes`)
    const bytes = Buffer.alloc(facts.size)
    // A file that is truncated meanwhile ends early.
    const {bytesRead} = await file.read(bytes, 0, bytes.length, 0)
    return bytes.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}
