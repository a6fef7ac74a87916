/**
 * Authentication of requests: host name, then token or loopback address, then origin (CSRF protection). It
 * runs before the body is read. There is no authorization: an authenticated client may do everything.
 */
import {createHash, timingSafeEqual} from 'node:crypto'
import type {IncomingHttpHeaders, IncomingMessage} from 'node:http'
import {isIP} from 'node:net'
import ipaddr from 'ipaddr.js'
import {DomainError} from '../core/errors.ts'
import type {Clock} from '../ports/runtime.ts'

/** `protected`: needs the token; without a configured token, a client on this machine. */
export type Access = 'public' | 'protected'

export interface AuthRequest {
  readonly method: string
  readonly headers: IncomingHttpHeaders
  readonly httpVersion: string
  /** Peer address of the connection, never from a header. */
  readonly address: string
  readonly access: Access
  /** The reply is an event stream. Pages of other sites must not read it, although it changes nothing. */
  readonly isStream: boolean
  /** Number of `Host` headers; `headers` has only the first. */
  readonly hostHeaders: number
}

export function authRequestOf(
  {method, headers, httpVersion, rawHeaders, socket}: IncomingMessage,
  access: Access,
  isStream: boolean,
): AuthRequest {
  return {
    method: method ?? '',
    headers,
    httpVersion,
    address: socket.remoteAddress ?? '',
    access,
    isStream,
    hostHeaders: countHosts(rawHeaders),
  }
}

export interface AuthenticatorOptions {
  readonly nodeName: string
  readonly token: string | null
  readonly allowHosts: readonly string[]
  /** Other web sites whose pages may use the API, as browsers send them in `Origin`. */
  readonly corsOrigins: readonly string[]
  readonly clock: Clock
}

const TOKEN_HEADERS = ['x-service-token', 'x-dkron-token'] as const
const BEARER = /^bearer +(\S+) *$/i
const BASIC = /^basic +([A-Za-z0-9+/_-]+={0,2}) *$/i
const PROXY_HEADERS = ['forwarded', 'x-real-ip', 'via']
const PROXY_PREFIX = 'x-forwarded-'
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const FOREIGN_SITES: ReadonlySet<string> = new Set(['cross-site', 'same-site'])

export function isSafeMethod(method: string | undefined): boolean {
  return SAFE_METHODS.has(method ?? '')
}

export class Authenticator {
  readonly #hosts: ReadonlySet<string>
  readonly #allowedHosts: ReadonlySet<string>
  readonly #corsOrigins: ReadonlySet<string>
  readonly #tokenDigest: Buffer | null
  readonly #rateLimit: AuthRateLimit

  constructor(options: AuthenticatorOptions) {
    const names = ['localhost', options.nodeName, ...options.allowHosts]
    this.#hosts = new Set(names.map((name) => name.toLowerCase()))
    this.#allowedHosts = new Set(options.allowHosts.map((name) => name.toLowerCase()))
    this.#corsOrigins = new Set(options.corsOrigins)
    this.#tokenDigest = options.token === null ? null : digest(options.token)
    this.#rateLimit = new AuthRateLimit(options.clock)
  }

  /**
   * `null` = accepted. Checks run in the order host, token, origin: an error reveals nothing about the checks
   * after it.
   */
  refusal(request: AuthRequest): DomainError | null {
    return this.#hostRefusal(request) ?? this.#tokenRefusal(request) ?? this.#originRefusal(request)
  }

  /**
   * True for a client that a protected route accepts: with a valid token or, when none is configured, on this
   * machine. Only to such a client do public routes show names and causes.
   */
  isAuthenticated({headers, address}: Pick<AuthRequest, 'headers' | 'address'>): boolean {
    if (this.#tokenDigest === null) return remoteRefusal({headers, address}) === null
    return hasToken(headers, this.#tokenDigest)
  }

  /**
   * Rejects unknown host names, which DNS rebinding attacks use. The page of such an attack has no token, so
   * a request with a valid one may use any name.
   */
  #hostRefusal({headers, httpVersion, address, hostHeaders}: AuthRequest): DomainError | null {
    if (hostHeaders > 1)
      return new DomainError('request_malformed', 'The request has more than one Host header.')
    const {host} = headers
    if (host === undefined)
      return httpVersion === '1.0'
        ? null
        : new DomainError('request_malformed', 'The request has no Host header.')
    const name = hostName(host)
    if (name !== null && (isIP(name) !== 0 || this.#hosts.has(name.toLowerCase()))) return null
    if (this.#tokenDigest !== null && tokensOf(headers).length > 0) {
      if (hasToken(headers, this.#tokenDigest)) return null
      if (this.#rateLimit.recordFailure(address)) return tooManyFailures()
    }
    return new DomainError(
      'host_not_served',
      'The host name of the request is not allowed. Start the server with --allow-host to allow it.',
    )
  }

  #tokenRefusal(request: AuthRequest): DomainError | null {
    if (request.access === 'public') return null
    if (this.#tokenDigest === null) return remoteRefusal(request)
    if (hasToken(request.headers, this.#tokenDigest)) return null
    if (this.#rateLimit.recordFailure(request.address)) return tooManyFailures()
    return new DomainError(
      'token_required',
      'A valid token is required. Send it in the header X-Service-Token.',
    )
  }

  /** CSRF protection: a page of another site must not change anything and must not read a stream. */
  #originRefusal({method, headers, isStream}: AuthRequest): DomainError | null {
    if (isSafeMethod(method) && !isStream) return null
    const {origin, host} = headers
    if (origin !== undefined && this.#corsOrigins.has(origin)) return null
    const site = headers['sec-fetch-site']
    const isForeign = typeof site === 'string' && FOREIGN_SITES.has(site.toLowerCase())
    if (!isForeign && this.#isOwnOrigin(origin, host)) return null
    return new DomainError('origin_refused', 'Requests from other web sites are not allowed.')
  }

  /** A proxy may replace the host name of a request, but not its origin. */
  #isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
    if (origin === undefined) return true
    const url = URL.parse(origin)
    if (url === null || url.host === '') return false
    return url.host === host?.toLowerCase() || this.#allowedHosts.has(url.hostname)
  }
}

function tooManyFailures(): DomainError {
  return new DomainError(
    'too_many_failures',
    'Rate limit: too many requests without a valid token from this address. Retry later.',
    {retryAfterSeconds: FAILURE_WINDOW_MS / 1000},
  )
}

/** Compares every token in the request, each in constant time, so that timing reveals nothing. */
function hasToken(headers: IncomingHttpHeaders, expected: Buffer): boolean {
  let isFound = false
  for (const token of tokensOf(headers))
    if (timingSafeEqual(digest(token), expected)) isFound = true
  return isFound
}

/** Every token that the request presents, in any of the headers for it. */
function tokensOf(headers: IncomingHttpHeaders): readonly string[] {
  const {authorization = ''} = headers
  const tokens = [
    ...TOKEN_HEADERS.map((name) => headers[name]).flat(),
    BEARER.exec(authorization)?.[1],
    basicToken(authorization),
  ]
  return tokens.filter((token) => token !== undefined)
}

/**
 * The token in `Authorization: Basic`: the password or, if it is empty, the user name. Many clients can send
 * nothing else, because they have only a URL to configure.
 */
function basicToken(authorization: string): string | undefined {
  const encoded = BASIC.exec(authorization)?.[1]
  if (encoded === undefined) return undefined
  const text = Buffer.from(encoded, 'base64').toString('utf8')
  const colon = text.indexOf(':')
  if (colon === -1) return text
  return text.slice(colon + 1) || text.slice(0, colon)
}

function countHosts(rawHeaders: readonly string[]): number {
  let count = 0
  for (let index = 0; index < rawHeaders.length; index += 2)
    if (rawHeaders[index]?.length === 4 && rawHeaders[index]?.toLowerCase() === 'host') count += 1
  return count
}

/** Without a token only this machine is served, and no remote client behind a proxy on this machine. */
function remoteRefusal({
  headers,
  address,
}: Pick<AuthRequest, 'headers' | 'address'>): DomainError | null {
  if (!isLoopback(address))
    return new DomainError(
      'token_not_configured',
      'Only clients on this machine are served: no token is configured. Set one with --token.',
    )
  const proxyHeader = Object.keys(headers).find(
    (name) => PROXY_HEADERS.includes(name) || name.startsWith(PROXY_PREFIX),
  )
  if (proxyHeader === undefined) return null
  return new DomainError(
    'token_not_configured',
    `Requests through a proxy are not served: no token is configured, and the request has the header ` +
      `${proxyHeader}. Set a token with --token.`,
  )
}

/** The name or address of a Host header, without port and brackets; `null` when it is malformed. */
function hostName(host: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]/@\s]+))(?::\d{1,5})?$/i.exec(host)
  return match === null ? null : (match[1] ?? match[2] ?? null)
}

function isLoopback(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.process(address).range() === 'loopback'
}

function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

export const FAILURES_MAX = 200
export const FAILURE_WINDOW_MS = 10_000
/** Bounds the memory. The oldest window is dropped first. */
const NETWORKS_MAX = 10_000

interface Window {
  readonly startedAt: number
  failures: number
}

/**
 * Rate limit for failed authentication, by client network, in fixed windows. Only failures count and only
 * failures are limited: a client with a valid token is never slowed down by others behind its address.
 */
export class AuthRateLimit {
  readonly #clock: Clock
  readonly #windows = new Map<string, Window>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Counts one failure. True when the network exceeds the limit. */
  recordFailure(address: string): boolean {
    const network = networkOf(address)
    const now = this.#clock.monotonicMs()
    const window = this.#windows.get(network)
    if (window !== undefined && now - window.startedAt < FAILURE_WINDOW_MS) {
      window.failures += 1
      return window.failures > FAILURES_MAX
    }
    this.#windows.delete(network)
    if (this.#windows.size >= NETWORKS_MAX) {
      const [oldest] = this.#windows.keys()
      if (oldest !== undefined) this.#windows.delete(oldest)
    }
    this.#windows.set(network, {startedAt: now, failures: 1})
    return false
  }
}

/** One IPv4 address, or an IPv6 /64: an IPv6 host may use any address of its /64. */
function networkOf(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}
