/**
 * The cookie of a session, and the protection that it needs: a browser sends it by itself, so a request that
 * changes something must prove that a page of this server sent it. `SameSite=Strict` alone does not: other
 * ports and sibling names of the same site are not other sites.
 */
import type {IncomingHttpHeaders} from 'node:http'

const PLAIN = 'belfry-session'
/** Browsers accept a cookie of this name only over TLS, and only for this host name and all its paths. */
const SECURE = '__Host-belfry-session'

/** Secrets of sessions in a request. With TLS, only those that were set with TLS. */
export function sessionSecrets({cookie}: IncomingHttpHeaders, tls: boolean): readonly string[] {
  if (cookie === undefined) return []
  const names = tls ? [SECURE] : [SECURE, PLAIN]
  const pairs = cookie.split(';').map((text) => {
    const at = text.indexOf('=')
    return {name: text.slice(0, Math.max(at, 0)).trim(), value: text.slice(at + 1).trim()}
  })
  return names.flatMap((name) =>
    pairs.filter((pair) => pair.name === name && pair.value !== '').map(({value}) => value),
  )
}

/** Cookie without an age: it ends with the browser, if not before. `secure`: the browser uses TLS. */
export function sessionCookie(secret: string, secure: boolean): string {
  const shared = 'Path=/; HttpOnly; SameSite=Strict'
  return secure ? `${SECURE}=${secret}; ${shared}; Secure` : `${PLAIN}=${secret}; ${shared}`
}

/** Removes the cookie from the browser. */
export function endedCookies(): readonly string[] {
  return [sessionCookie('', false), sessionCookie('', true)].map((text) => `${text}; Max-Age=0`)
}

interface SentBy {
  readonly headers: IncomingHttpHeaders
  readonly tls: boolean
  /** Names of this server that a proxy may replace in `Host`. */
  readonly allowedHosts: ReadonlySet<string>
}

/**
 * True if a page of this server sent the request. A browser says so in `Origin` or, if it leaves that out,
 * in `Sec-Fetch-Site`. A request with neither is not from a page.
 */
export function isFromOwnPage({headers, tls, allowedHosts}: SentBy): boolean {
  const {origin, host} = headers
  const site = headers['sec-fetch-site']
  if (site !== undefined && site !== 'same-origin') return false
  if (origin === undefined) return site === 'same-origin'
  const url = URL.parse(origin)
  if (url === null || url.host === '') return false
  if (tls && url.protocol !== 'https:') return false
  return url.host === host?.toLowerCase() || (url.port === '' && allowedHosts.has(url.hostname))
}
