/**
 * Authentication of requests: host name, then token or loopback address, then origin (CSRF protection). It
 * runs before the body is read. There is no authorization: an authenticated client may do everything.
 */
import {createHash, timingSafeEqual} from 'node:crypto'
import type {IncomingHttpHeaders} from 'node:http'
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
}

export interface AuthenticatorOptions {
  readonly nodeName: string
  readonly token: string | null
  readonly allowHosts: readonly string[]
  readonly clock: Clock
}

const TOKEN_HEADERS = ['x-service-token', 'x-dkron-token'] as const
const BEARER = /^bearer +(\S+) *$/i
const PROXY_HEADERS = ['forwarded', 'x-real-ip', 'via']
const PROXY_PREFIX = 'x-forwarded-'
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const FOREIGN_SITES: ReadonlySet<string> = new Set(['cross-site', 'same-site'])

export class Authenticator {
  readonly #hosts: ReadonlySet<string>
  readonly #tokenDigest: Buffer | null
  readonly #rateLimit: AuthRateLimit

  constructor(options: AuthenticatorOptions) {
    const names = ['localhost', options.nodeName, ...options.allowHosts]
    this.#hosts = new Set(names.map((name) => name.toLowerCase()))
    this.#tokenDigest = options.token === null ? null : digest(options.token)
    this.#rateLimit = new AuthRateLimit(options.clock)
  }

  /**
   * `null` = accepted. Checks run in the order host, token, origin: an error reveals nothing about the checks
   * after it.
   */
  refusal(request: AuthRequest): DomainError | null {
    return this.#hostRefusal(request) ?? this.#tokenRefusal(request) ?? originRefusal(request)
  }

  /** True with a valid token, or when none is configured. Only then a public route shows the node's name. */
  isAuthenticated(headers: IncomingHttpHeaders): boolean {
    return this.#tokenDigest === null || hasToken(headers, this.#tokenDigest)
  }

  /** Rejects unknown host names, which DNS rebinding attacks use. */
  #hostRefusal({headers, httpVersion}: AuthRequest): DomainError | null {
    const {host} = headers
    if (host === undefined)
      return httpVersion === '1.0'
        ? null
        : new DomainError('request_malformed', 'The request has no Host header.')
    const name = hostName(host)
    if (name !== null && (isIP(name) !== 0 || this.#hosts.has(name.toLowerCase()))) return null
    return new DomainError(
      'host_not_served',
      'The host name of the request is not allowed. Start the server with --allow-host to allow it.',
    )
  }

  #tokenRefusal(request: AuthRequest): DomainError | null {
    if (request.access === 'public') return null
    if (this.#tokenDigest === null) return remoteRefusal(request)
    if (hasToken(request.headers, this.#tokenDigest)) return null
    if (this.#rateLimit.recordFailure(request.address))
      return new DomainError(
        'too_many_failures',
        'Rate limit: too many requests without a valid token from this address. Retry later.',
        {retryAfterSeconds: FAILURE_WINDOW_MS / 1000},
      )
    return new DomainError(
      'token_required',
      'A valid token is required. Send it in the header X-Service-Token.',
    )
  }
}

/** Compares every token in the request, each in constant time, so that timing reveals nothing. */
function hasToken(headers: IncomingHttpHeaders, expected: Buffer): boolean {
  const tokens = TOKEN_HEADERS.map((name) => headers[name]).flat()
  tokens.push(BEARER.exec(headers.authorization ?? '')?.[1])
  let isFound = false
  for (const token of tokens) {
    if (token === undefined) continue
    if (timingSafeEqual(digest(token), expected)) isFound = true
  }
  return isFound
}

/** Without a token only this machine is served, and no remote client behind a proxy on this machine. */
function remoteRefusal({headers, address}: AuthRequest): DomainError | null {
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

/** CSRF protection: a page of another site must not change anything and must not read a stream. */
function originRefusal({method, headers, isStream}: AuthRequest): DomainError | null {
  if (SAFE_METHODS.has(method) && !isStream) return null
  const site = headers['sec-fetch-site']
  const isForeign = typeof site === 'string' && FOREIGN_SITES.has(site.toLowerCase())
  if (!isForeign && isOwnOrigin(headers.origin, headers.host)) return null
  return new DomainError('origin_refused', 'Requests from other web sites are not allowed.')
}

function isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
  if (origin === undefined) return true
  const url = URL.parse(origin)
  return url !== null && url.host !== '' && url.host === host?.toLowerCase()
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
