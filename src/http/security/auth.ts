/**
 * Authentication of requests: host name, then token or loopback address, then origin (CSRF protection). It
 * runs before the body is read. Permissions are checked in `access.ts`, after this.
 */
import type {IncomingHttpHeaders, IncomingMessage} from 'node:http'
import {isIP} from 'node:net'
import ipaddr from 'ipaddr.js'
import type {Principal} from '../../core/access/authorization.ts'
import {DomainError} from '../../core/errors.ts'
import {type AccessTable, digestOf, LOCAL} from '../../identity/token-cache.ts'
import type {Clock} from '../../ports/runtime.ts'
import {isProxyHeader} from './proxy-headers.ts'
import {isFromOwnPage, sessionSecrets} from './session-cookie.ts'

/** `protected`: needs a token; before there is the first one, a client on this machine. */
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
  /** The cookie of a session is as good as a token. */
  readonly mayUseSession: boolean
  /** Number of `Host` headers; `headers` has only the first. */
  readonly hostHeaders: number
}

export function authRequestOf(
  {method, headers, httpVersion, rawHeaders, socket}: IncomingMessage,
  access: Access,
  isStream: boolean,
  mayUseSession: boolean,
): AuthRequest {
  return {
    method: method ?? '',
    headers,
    httpVersion,
    address: socket.remoteAddress ?? '',
    access,
    isStream,
    mayUseSession,
    hostHeaders: countHosts(rawHeaders),
  }
}

export interface AuthenticatorOptions {
  readonly nodeName: string
  readonly access: Pick<AccessTable, 'find' | 'findSession' | 'isLocked' | 'refresh'>
  /** Set if the server itself speaks TLS. */
  readonly tls: object | null
  readonly allowHosts: readonly string[]
  /** Other web sites whose pages may use the API, as browsers send them in `Origin`. */
  readonly corsOrigins: readonly string[]
  readonly clock: Clock
}

const TOKEN_HEADERS = ['x-service-token', 'x-dkron-token'] as const
/** Sent by the console with requests that it repeats by itself: they do not keep a session open. */
const REFRESH_HEADER = 'x-belfry-refresh'
const BEARER = /^bearer +(\S+) *$/i
const BASIC = /^basic +([A-Za-z0-9+/_-]+={0,2}) *$/i
const UNVERIFIED_RETRY_SECONDS = 5
const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
/** `none`: a person typed the address or opened a bookmark. Any other value is another site. */
const OWN_SITES: ReadonlySet<unknown> = new Set([undefined, 'same-origin', 'none'])

export function isSafeMethod(method: string | undefined): boolean {
  return SAFE_METHODS.has(method ?? '')
}

/** A request after authentication. */
export interface Authenticated {
  /** `null` = unknown. */
  readonly principal: Principal | null
  /** `null` = accepted. */
  readonly refusal: DomainError | null
}

/** Result for the tokens of a request; `stale`: the store is away for too long to say. */
interface Found {
  readonly principal: Principal | 'stale' | null
  /** The request has a token or a session, and tokens are configured or stored. */
  readonly isPresented: boolean
}

/** Credentials of a request. A token is sent on purpose, so that a cookie beside it does not count. */
interface Presented {
  readonly digests: readonly string[]
  readonly look: (digest: string) => Principal | 'stale' | null
}

export class Authenticator {
  readonly #hosts: ReadonlySet<string>
  readonly #allowedHosts: ReadonlySet<string>
  readonly #corsOrigins: ReadonlySet<string>
  readonly #tls: boolean
  readonly #access: AuthenticatorOptions['access']
  readonly #rateLimit: AuthRateLimit

  constructor(options: AuthenticatorOptions) {
    const names = ['localhost', options.nodeName, ...options.allowHosts]
    this.#hosts = new Set(names.map((name) => name.toLowerCase()))
    this.#allowedHosts = new Set(options.allowHosts.map((name) => name.toLowerCase()))
    this.#corsOrigins = new Set(options.corsOrigins)
    this.#tls = options.tls !== null
    this.#access = options.access
    this.#rateLimit = new AuthRateLimit(options.clock)
  }

  /**
   * Checks run in the order host, token, origin: an error reveals nothing about the checks after it. A token
   * is found in memory. Only an unknown one is worth a look into the store: it may have just been created.
   */
  async authenticate(request: AuthRequest): Promise<Authenticated> {
    const malformed = hostProblem(request)
    if (malformed !== null) return {principal: null, refusal: malformed}
    const found = await this.#find(request)
    const principal = found.principal === 'stale' ? null : found.principal
    const refusal =
      this.#hostRefusal(request, found) ??
      this.#tokenRefusal(request, found) ??
      this.#originRefusal(request, isSession(found))
    return {principal, refusal}
  }

  /** Counts a failure that a route found. `null` = the address is within the limit. */
  failed(address: string): DomainError | null {
    return this.#rateLimit.recordFailure(address) ? tooManyFailures() : null
  }

  async #find(request: AuthRequest): Promise<Found> {
    const {address, headers} = request
    // The first token of the cluster may just have been created on another server.
    if (!this.#access.isLocked && tokensOf(headers).length > 0) await this.#refresh()
    if (!this.#access.isLocked)
      return {principal: remoteRefusal(request) === null ? LOCAL : null, isPresented: false}
    const presented = this.#presented(request)
    const isPresented = presented.digests.length > 0
    let principal = lookUp(presented)
    if (principal === null && isPresented && !this.#rateLimit.isExceeded(address)) {
      await this.#refresh()
      principal = lookUp(presented)
    }
    return {principal, isPresented}
  }

  #presented({headers, access, mayUseSession}: AuthRequest): Presented {
    const tokens = tokensOf(headers)
    const isForSession = mayUseSession && access !== 'public' && tokens.length === 0
    const isUse = headers[REFRESH_HEADER] === undefined
    return isForSession
      ? {
          digests: sessionSecrets(headers, this.#tls).map(digestOf),
          look: (digest) => this.#access.findSession(digest, isUse),
        }
      : {digests: tokens.map(digestOf), look: (digest) => this.#access.find(digest)}
  }

  async #refresh(): Promise<void> {
    try {
      await this.#access.refresh()
    } catch (error) {
      // The store is away: what is known decides.
      if (!(error instanceof DomainError)) throw error
    }
  }

  /**
   * Rejects unknown host names, which DNS rebinding attacks use. The page of such an attack has no token, so
   * a request with a valid one may use any name. A session is never used under another name.
   */
  #hostRefusal({headers: {host}, address}: AuthRequest, found: Found): DomainError | null {
    const {principal, isPresented} = found
    if (host === undefined) return null
    const name = hostName(host)
    if (name !== null && (isIP(name) !== 0 || this.#hosts.has(name.toLowerCase()))) return null
    if (isPresented && !isSession(found)) {
      if (principal !== null) return null
      if (this.#rateLimit.recordFailure(address)) return tooManyFailures()
    }
    return new DomainError(
      'host_not_served',
      'The host name of the request is not allowed. Start the server with --allow-host to allow it.',
    )
  }

  #tokenRefusal(request: AuthRequest, {principal, isPresented}: Found): DomainError | null {
    const {access, address} = request
    if (principal === 'stale') return access === 'public' ? null : unverified()
    if (principal !== null) return null
    if (!this.#access.isLocked) return access === 'public' ? null : remoteRefusal(request)
    // A request without a token guesses nothing: clients that wait for the challenge send it first. Public
    // routes show more to a valid token, so a wrong one is a guess there too.
    if (isPresented && this.#rateLimit.recordFailure(address)) return tooManyFailures()
    if (access === 'public') return null
    return new DomainError(
      'token_required',
      'A valid token is required. Send it in the header X-Service-Token.',
    )
  }

  /** CSRF protection: a page of another site must not change anything and must not read a stream. */
  #originRefusal(request: AuthRequest, hasSession: boolean): DomainError | null {
    const {method, headers, isStream} = request
    if (isSafeMethod(method) && !isStream) return null
    if (hasSession) return this.#sessionRefusal(headers)
    const {origin, host} = headers
    if (origin !== undefined && this.#corsOrigins.has(origin)) return null
    if (OWN_SITES.has(headers['sec-fetch-site']) && this.#isOwnOrigin(origin, host)) return null
    return new DomainError('origin_refused', 'Requests from other web sites are not allowed.')
  }

  /** The browser sends the cookie by itself, so the request must say that it comes from an own page. */
  #sessionRefusal(headers: IncomingHttpHeaders): DomainError | null {
    if (isFromOwnPage({headers, tls: this.#tls, allowedHosts: this.#allowedHosts})) return null
    return new DomainError(
      'origin_refused',
      'With a session, only pages of this server may do this. Use a token instead.',
    )
  }

  /** A proxy may replace the host name of a request, but not its origin. */
  #isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
    if (origin === undefined) return true
    const url = URL.parse(origin)
    if (url === null || url.host === '') return false
    return url.host === host?.toLowerCase() || this.#allowedHosts.has(url.hostname)
  }
}

function isSession({principal}: Found): boolean {
  return principal !== null && principal !== 'stale' && principal.isSession
}

function lookUp({digests, look}: Presented): Principal | 'stale' | null {
  let isStale = false
  for (const digest of digests) {
    const found = look(digest)
    if (found === 'stale') isStale = true
    else if (found !== null) return found
  }
  return isStale ? 'stale' : null
}

function tooManyFailures(): DomainError {
  return new DomainError(
    'too_many_failures',
    'Rate limit: too many requests with a wrong token from this address. Retry later.',
    {retryAfterSeconds: FAILURE_WINDOW_MS / 1000},
  )
}

function unverified(): DomainError {
  return new DomainError(
    'store_unavailable',
    'The token cannot be checked: the store does not answer for a long time. Try again later.',
    {retryAfterSeconds: UNVERIFIED_RETRY_SECONDS},
  )
}

function hostProblem({headers, httpVersion, hostHeaders}: AuthRequest): DomainError | null {
  if (hostHeaders > 1)
    return new DomainError('request_malformed', 'The request has more than one Host header.')
  if (headers.host !== undefined || httpVersion === '1.0') return null
  return new DomainError('request_malformed', 'The request has no Host header.')
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

/** Refusal of remote clients, also behind a proxy on this machine, while no token exists. */
function remoteRefusal({
  headers,
  address,
}: Pick<AuthRequest, 'headers' | 'address'>): DomainError | null {
  if (!isLoopback(address))
    return new DomainError(
      'token_not_configured',
      'Only clients on this machine are served: no token is configured. Set one with --token.',
    )
  const proxyHeader = Object.keys(headers).find(isProxyHeader)
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

export function isLoopback(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.process(address).range() === 'loopback'
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

  /** A further failure would exceed the limit. */
  isExceeded(address: string): boolean {
    const window = this.#windows.get(networkOf(address))
    if (window === undefined || this.#clock.monotonicMs() - window.startedAt >= FAILURE_WINDOW_MS)
      return false
    return window.failures >= FAILURES_MAX
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

/** IPv4 address, or the /64 of an IPv6 address: an IPv6 host may use any address of its /64. */
export function networkOf(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}
