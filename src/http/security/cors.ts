/**
 * Cross-origin resource sharing: pages of the configured web sites may use the API. Without configured
 * origins nothing here has an effect. Such a page sends the token in a header, so browsers need not send
 * cookies or logins, and are not allowed to.
 */
import type {IncomingHttpHeaders} from 'node:http'

const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE'
const REQUEST_HEADERS = [
  'Accept',
  'Authorization',
  'Content-Type',
  'Idempotency-Key',
  'If-Match',
  'If-None-Match',
  'Last-Event-ID',
  'X-Dkron-Token',
  'X-Requested-With',
  'X-Service-Token',
].join(', ')
const REPLY_HEADERS = [
  'Content-Disposition',
  'ETag',
  'Location',
  'Retry-After',
  'X-Action',
  'X-Ignored-Fields',
  'X-Launch-Id',
  'X-Total-Count',
  'X-Warnings',
  'X-Whom',
].join(', ')
/** Browsers ask again after this long. */
const PREFLIGHT_SECONDS = 600

const NONE = {}

export class Cors {
  readonly #origins: ReadonlySet<string>

  constructor(origins: readonly string[]) {
    this.#origins = new Set(origins)
  }

  /** The browser asks whether a page may send a request. It sends no token with this question. */
  isPreflight(method: string, headers: IncomingHttpHeaders): boolean {
    return (
      method === 'OPTIONS' &&
      this.#allows(headers) &&
      headers['access-control-request-method'] !== undefined
    )
  }

  /** Headers of every reply, errors included: a page cannot read a reply without them. */
  headers(headers: IncomingHttpHeaders): Readonly<Record<string, string>> {
    if (this.#origins.size === 0) return NONE
    if (!this.#allows(headers)) return {vary: 'Origin'}
    return {
      vary: 'Origin',
      'access-control-allow-origin': headers.origin!,
      'access-control-expose-headers': REPLY_HEADERS,
    }
  }

  preflightHeaders(): Readonly<Record<string, string>> {
    return {
      'access-control-allow-methods': METHODS,
      'access-control-allow-headers': REQUEST_HEADERS,
      'access-control-max-age': String(PREFLIGHT_SECONDS),
    }
  }

  #allows({origin}: IncomingHttpHeaders): boolean {
    return origin !== undefined && this.#origins.has(origin)
  }
}
