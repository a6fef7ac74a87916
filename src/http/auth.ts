/**
 * Who is let in: host name, token or loopback, and no foreign web page. Judged before anything of the
 * request's body is read. What a caller who was let in may do is not decided here.
 */
import {createHash, timingSafeEqual} from 'node:crypto'
import type {IncomingHttpHeaders} from 'node:http'
import {isIP} from 'node:net'
import ipaddr from 'ipaddr.js'
import {DomainError} from '../core/errors.ts'
import type {Clock} from '../ports/runtime.ts'

/** `open`: anyone. `guarded`: a token once one is configured, else this machine only. */
export type Access = 'open' | 'guarded'

export interface AuthRequest {
  readonly method: string
  readonly headers: IncomingHttpHeaders
  readonly httpVersion: string
  /** Of the connection, never of a header. */
  readonly address: string
  readonly access: Access
  /** A stream that a foreign page must not listen to, although reading changes nothing. */
  readonly streams: boolean
}

export interface AccessOptions {
  readonly nodeName: string
  readonly token: string | null
  readonly allowHosts: readonly string[]
  readonly clock: Clock
}

const TOKEN_HEADERS = ['x-service-token', 'x-dkron-token'] as const
const BEARER = /^bearer +(\S+) *$/i
const PROXY_HEADERS = ['forwarded', 'x-real-ip', 'via']
const PROXY_PREFIX = 'x-forwarded-'
const READING_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])
const FOREIGN_SITES: ReadonlySet<string> = new Set(['cross-site', 'same-site'])

export class Authenticator {
  readonly #hosts: ReadonlySet<string>
  readonly #tokenDigest: Buffer | null
  readonly #failures: AuthRateLimit

  constructor(options: AccessOptions) {
    const names = ['localhost', options.nodeName, ...options.allowHosts]
    this.#hosts = new Set(names.map((name) => name.toLowerCase()))
    this.#tokenDigest = options.token === null ? null : digest(options.token)
    this.#failures = new AuthRateLimit(options.clock)
  }

  /**
   * `null` = let in. The order is host, token, origin: a refusal tells no more than its own step has seen.
   */
  refusal(asking: AuthRequest): DomainError | null {
    return this.#hostRefusal(asking) ?? this.#callerRefusal(asking) ?? originRefusal(asking)
  }

  /** Whether the caller may learn names: it has shown the token, or none is configured. */
  isKnown(asking: Pick<AuthRequest, 'headers'>): boolean {
    return this.#tokenDigest === null || this.#hasToken(asking.headers, this.#tokenDigest)
  }

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
      'This server does not answer under that host name; start it with --allow-host to allow it.',
    )
  }

  #callerRefusal(asking: AuthRequest): DomainError | null {
    if (asking.access === 'open') return null
    if (this.#tokenDigest === null) return strangerRefusal(asking)
    if (this.#hasToken(asking.headers, this.#tokenDigest)) return null
    if (this.#failures.count(asking.address))
      return new DomainError(
        'too_many_failures',
        'Too many requests without a valid token came from this address; wait a little.',
        {retryAfterSeconds: WINDOW_MS / 1000},
      )
    return new DomainError(
      'token_required',
      'A valid token is required; send it in the header X-Service-Token.',
    )
  }

  /**
   * Every token sent is compared, and always in the same time, so that neither order nor text can be felt
   * for.
   */
  #hasToken(headers: IncomingHttpHeaders, expected: Buffer): boolean {
    const presented = TOKEN_HEADERS.map((name) => headers[name]).flat()
    presented.push(BEARER.exec(headers.authorization ?? '')?.[1])
    let found = false
    for (const token of presented) {
      if (token === undefined) continue
      if (timingSafeEqual(digest(token), expected)) found = true
    }
    return found
  }
}

/** Without a token: this machine only, and nobody whom a proxy on this machine only relays. */
function strangerRefusal({headers, address}: AuthRequest): DomainError | null {
  if (!isLoopback(address))
    return new DomainError(
      'token_not_configured',
      'Without a token only this machine is served; set a token with --token.',
    )
  const relayed = Object.keys(headers).find(
    (name) => PROXY_HEADERS.includes(name) || name.startsWith(PROXY_PREFIX),
  )
  if (relayed === undefined) return null
  return new DomainError(
    'token_not_configured',
    `The request came through a proxy (it has the header ${relayed}); set a token with --token.`,
  )
}

/**
 * What a page of another site makes a browser send is refused when it would change, or listen to, something.
 */
function originRefusal({method, headers, streams}: AuthRequest): DomainError | null {
  if (READING_METHODS.has(method) && !streams) return null
  const site = headers['sec-fetch-site']
  const foreignSite = typeof site === 'string' && FOREIGN_SITES.has(site.toLowerCase())
  if (!foreignSite && isOwnOrigin(headers.origin, headers.host)) return null
  return new DomainError('origin_refused', 'Requests from other web sites are refused.')
}

function isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
  if (origin === undefined) return true
  const url = URL.parse(origin)
  return url !== null && url.host !== '' && url.host === host?.toLowerCase()
}

/** The name or address of a Host header, without port and brackets; `null` when it has no such form. */
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

/*
 * How often an address failed to show a valid token lately. Only failures are counted and only failures are
 * held back: whoever has a valid token is never slowed down by somebody else behind the same address.
 * Bounded, forgetful.
 */

export const FAILURES_MAX = 200
export const WINDOW_MS = 10_000
/** Addresses remembered at once; the one seen first goes first. */
const ADDRESSES_MAX = 10_000

interface Window {
  readonly since: number
  count: number
}

export class AuthRateLimit {
  readonly #clock: Clock
  readonly #windows = new Map<string, Window>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Counts one failure; true when the address has had more than it may have within the window. */
  count(address: string): boolean {
    const place = placeOf(address)
    const now = this.#clock.monotonicMs()
    const known = this.#windows.get(place)
    if (known !== undefined && now - known.since < WINDOW_MS) {
      known.count += 1
      return known.count > FAILURES_MAX
    }
    this.#windows.delete(place)
    if (this.#windows.size >= ADDRESSES_MAX) {
      const [oldest] = this.#windows.keys()
      if (oldest !== undefined) this.#windows.delete(oldest)
    }
    this.#windows.set(place, {since: now, count: 1})
    return false
  }
}

/** An IPv6 host has a whole /64 to choose its addresses from, so that counts as one place. */
function placeOf(address: string): string {
  if (!ipaddr.isValid(address)) return address
  const parsed = ipaddr.process(address)
  return parsed instanceof ipaddr.IPv6 ? parsed.parts.slice(0, 4).join(':') : parsed.toString()
}
