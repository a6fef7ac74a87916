/**
 * Runs a job by sending a request. The answer streams to the output as it comes; its status and text decide
 * the outcome. Follows a few redirects, judging each address anew, and never carries credentials to another
 * origin.
 */
import {constants} from 'node:fs'
import {open} from 'node:fs/promises'
import {Agent, type Dispatcher, request} from 'undici'
import type {StringMap} from '../core/job.ts'
import type {Executor, OutputSink, Run, RunEnd, RunHandle} from '../ports/executor.ts'
import type {Clock} from '../ports/runtime.ts'
import {
  type HeaderPair,
  HTTP_PARAMETERS,
  type HttpPlan,
  type Method,
  readHttp,
} from './http-parameters.ts'
import {AddressRefused, type NetworkGuard} from './network-guard.ts'
import {unknownParameters} from './parameters.ts'

export interface HttpOptions {
  readonly clock: Clock
  readonly guard: NetworkGuard
}

/** A host that does not even take the connection is not waited for longer, whatever the timeout of it all. */
const CONNECT_MS_MAX = 10_000
const REDIRECTS_MAX = 5
/** No answer larger is read to its end: it fails, with what came so far in the output. */
const RESPONSE_BYTES_MAX = 256 * 1024 * 1024
/** All header fields of an answer together. */
const HEADER_BYTES_MAX = 64 * 1024

const REDIRECTS = [301, 302, 303, 307, 308]

/** What may go along to another origin; anything else could be a credential. */
const HARMLESS_HEADERS = ['accept', 'accept-language', 'user-agent']

const NO_URL = 'executor_config has no url: set executor_config.url'

export function createHttpExecutor(options: HttpOptions): Executor {
  return {
    name: 'http',
    parameters: HTTP_PARAMETERS,
    check,
    start: (run, output) => start(run, output, options),
  }
}

function check(config: StringMap): {problems: string[]; warnings: string[]} {
  const {plan, problems} = readHttp(config)
  const warnings = unknownParameters(config, HTTP_PARAMETERS, 'http')
  if (plan.url === null && problems.length === 0) warnings.push(NO_URL)
  return {problems, warnings}
}

function start(run: Run, output: OutputSink, options: HttpOptions): RunHandle {
  const {plan, problems} = readHttp(run.config)
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

/** One request to be sent, of the one or several that redirects make of it. */
interface Leg {
  readonly url: URL
  readonly method: Method
  readonly headers: readonly HeaderPair[]
  readonly body: string
  /** The certificate is a credential too. */
  readonly withCertificate: boolean
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

  /**
   * Sends the request, and on where redirects lead. Answers why the last answer is not what was expected,
   * or `null`.
   */
  async #follow(): Promise<string | null> {
    const {url, method, headers, body} = this.#plan
    let leg: Leg = {url: url!, method, headers, body, withCertificate: true}
    for (let redirects = 0; ; redirects++) {
      const agent = await this.#openAgent(leg)
      try {
        const answer = await this.#send(leg, agent)
        const location = answer.headers['location']
        const isRedirect = REDIRECTS.includes(answer.statusCode) && typeof location === 'string'
        if (!isRedirect || this.#isExpected(answer.statusCode))
          return await this.#receive(leg, answer)
        if (redirects === REDIRECTS_MAX)
          return `more than ${REDIRECTS_MAX} redirects, the last to ${bare(location)}`
        leg = nextLeg(leg, answer.statusCode, location)
      } finally {
        await agent.destroy()
      }
    }
  }

  /** One for each leg: nothing of it, connections or TLS sessions, outlives the leg or serves another job. */
  async #openAgent(leg: Leg): Promise<Agent> {
    const {timeoutMs, verifyPeer, certificateFile, keyFile, rootsFile} = this.#plan
    const withCertificate = leg.withCertificate && certificateFile !== ''
    return new Agent({
      connect: this.#options.guard.connector({
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
      // The timeout of it all bounds these too.
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      maxHeaderSize: HEADER_BYTES_MAX,
      pipelining: 1,
      connections: 1,
    })
  }

  #send(leg: Leg, agent: Agent): Promise<Dispatcher.ResponseData> {
    return request(leg.url, {
      dispatcher: agent,
      method: leg.method,
      headers: leg.headers.flatMap(([name, value]) => [name, value]),
      body: leg.body === '' ? null : leg.body,
      signal: this.#signal,
    })
  }

  #isExpected(code: number): boolean {
    return this.#plan.expectedCodes.some(([from, to]) => code >= from && code <= to)
  }

  async #receive(leg: Leg, answer: Dispatcher.ResponseData): Promise<string | null> {
    if (this.#plan.debug) await this.#write(Buffer.from(describe(leg, answer)))
    const search = new Search(this.#plan.expectBody)
    let received = 0
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      received += chunk.length
      if (received > RESPONSE_BYTES_MAX) {
        throw new ExchangeFailed(
          `the answer is larger than ${RESPONSE_BYTES_MAX / 1024 / 1024} MiB; the rest was not read`,
        )
      }
      search.push(chunk)
      await this.#write(chunk)
    }
    if (!this.#isExpected(answer.statusCode)) {
      const expected = this.#plan.expectedCodes.map(([from, to]) =>
        from === to ? `${from}` : `${from}-${to}`,
      )
      return `answered with status ${answer.statusCode}, expected ${expected.join(', ')}`
    }
    return search.found
      ? null
      : `the answer does not contain ${JSON.stringify(this.#plan.expectBody)}`
  }

  /** Waits while the output asks to wait, unless the exchange is ended meanwhile. */
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

/** Where a redirect leads, and with what. Throws `ExchangeFailed` where it must not be followed. */
function nextLeg(leg: Leg, code: number, location: string): Leg {
  const url = URL.parse(location, leg.url)
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    throw new ExchangeFailed(
      `redirected to ${JSON.stringify(bare(location))}, which is no http or https address`,
    )
  }
  url.username = ''
  url.password = ''
  url.hash = ''
  // As browsers do: only 307 and 308 keep the method and body of everything.
  const becomesGet = code === 303 ? leg.method !== 'HEAD' : code < 303 && leg.method === 'POST'
  const sameOrigin = url.origin === leg.url.origin
  const body = becomesGet ? '' : leg.body
  if (!sameOrigin && body !== '') {
    throw new ExchangeFailed(
      `redirected with its body to another origin, ${url.origin}: name that url in the job`,
    )
  }
  const headers = leg.headers.filter(([name]) => {
    const lower = name.toLowerCase()
    if (body === '' && lower.startsWith('content-')) return false
    return sameOrigin || HARMLESS_HEADERS.includes(lower)
  })
  const method = becomesGet ? 'GET' : leg.method
  return {url, method, headers, body, withCertificate: leg.withCertificate && sameOrigin}
}

/** An address without what may be secret in it. */
function bare(location: string): string {
  return location.replace(/\/\/[^/@]*@/, '//').split(/[?#]/)[0]!
}

function describe(leg: Leg, answer: Dispatcher.ResponseData): string {
  const lines = [`> ${leg.method} ${bare(leg.url.href)}`, `< ${answer.statusCode}`]
  for (const [name, value] of Object.entries(answer.headers)) {
    if (name === 'set-cookie') lines.push('< set-cookie: (not shown)')
    else lines.push(`< ${name}: ${String(value)}`)
  }
  return `${lines.join('\n')}\n\n`
}

/** Looks for a text in a stream, also across the borders of its chunks. */
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

/*
 * Turns what went wrong with a request into a sentence for the output of a job. By codes, never by a
 * message's text.
 */

/** Ends an exchange with its message as the sentence. */
export class ExchangeFailed extends Error {
  override readonly name = 'ExchangeFailed'
}

const SENTENCES: Readonly<Record<string, string>> = {
  ENOTFOUND: 'the name of the host is not known',
  EAI_AGAIN: 'the name of the host could not be looked up just now',
  ECONNREFUSED: 'the host refused the connection',
  ECONNRESET: 'the host closed the connection before the answer was whole',
  EHOSTUNREACH: 'there is no way to the host',
  ENETUNREACH: 'there is no way to the network of the host',
  UND_ERR_CONNECT_TIMEOUT: 'the host did not take the connection in time',
  UND_ERR_SOCKET: 'the host closed the connection before the answer was whole',
  UND_ERR_HEADERS_OVERFLOW: 'the header of the answer is too large',
}

/** Any error as one sentence. */
export function explain(error: unknown): string {
  if (error instanceof AddressRefused || error instanceof ExchangeFailed) return error.message
  // Several addresses were tried: the first tells as much as all.
  if (error instanceof AggregateError && error.errors.length > 0) return explain(error.errors[0])
  if (!(error instanceof Error)) return String(error)
  if (error.cause instanceof AddressRefused) return error.cause.message
  const {code, path} = error as NodeJS.ErrnoException
  const sentence = SENTENCES[code ?? '']
  if (sentence !== undefined) return `the request failed: ${sentence} (${code})`
  const what = code === undefined ? error.message : `${error.message} (${code})`
  return path === undefined
    ? `the request failed: ${what}`
    : `the file ${path} could not be read: ${what}`
}

/*
 * Reads the certificates and keys that a job names. A job may name any path, and a device or a pipe has no
 * end: only an ordinary file of a sensible size is read, and opening one never waits.
 */

/** Several times the certificates of all public authorities together. */
export const CERTIFICATE_BYTES_MAX = 4 * 1024 * 1024

/** The bytes of the file. Throws `ExchangeFailed`, or what the system said. */
export async function readCertificateFile(path: string): Promise<Buffer> {
  // Without NONBLOCK opening a pipe waits for somebody to write to it.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const facts = await file.stat()
    if (!facts.isFile()) throw new ExchangeFailed(`${path} is not an ordinary file`)
    if (facts.size > CERTIFICATE_BYTES_MAX)
      throw new ExchangeFailed(`${path} is larger than ${CERTIFICATE_BYTES_MAX} bytes`)
    const bytes = Buffer.alloc(facts.size)
    // One that is being shortened meanwhile ends early.
    const {bytesRead} = await file.read(bytes, 0, bytes.length, 0)
    return bytes.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}
