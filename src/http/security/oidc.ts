/**
 * Sign-in through an OpenID Connect provider: authorization code flow with PKCE, state and nonce. A sign-in
 * in progress is in a cookie of its browser and nowhere else, so another server may end it. The cookie is
 * authenticated with a key of the cluster, and each server takes it once: strangers must not spend the
 * credentials that Belfry has at the provider. The library is loaded, and the provider is asked for its
 * addresses, at the first sign-in.
 */
import {createHmac, hash, timingSafeEqual} from 'node:crypto'
import type * as OpenIdClient from 'openid-client'
import type {OidcConfig} from '../../config/oidc.ts'
import {type Claims, groupsIn, personName, rightsOf} from '../../core/access/person.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import type {SessionOwner} from '../../ports/token-store.ts'
import {AuthRateLimit, networkOf} from './auth.ts'

export const OIDC_PATH = '/v1/session/oidc'
/** Registered at the provider. */
export const CALLBACK_PATH = `${OIDC_PATH}/callback`
/** The time to enter a password, and a second factor. */
const COOKIE_AGE_SECONDS = 600
/** Timeout of each request to the provider. */
const TIMEOUT_SECONDS = 10
/** How far the clocks of two servers may differ. */
const CLOCK_SKEW_SECONDS = 60
/** Steps that wait for the provider. Beyond it they are refused: they cost no token. */
const IN_PROGRESS_MAX = 100
/** The same for one network, so that no stranger takes all places. Behind a proxy, all people share them. */
const NETWORK_IN_PROGRESS_MAX = 20
/** Bounds the memory. Beyond it the oldest sign-in may be ended again. */
const ENDED_MAX = 10_000
const RETURN_LENGTH_MAX = 1_000

type Library = typeof OpenIdClient
type Provider = OpenIdClient.Configuration

/** Why a sign-in failed, for the person. The `cause` is for the log. */
export class SignInFailed extends Error {
  readonly status: number
  /** Name of the person who may not sign in; `null` = the provider named none. */
  readonly person: string | null

  constructor(status: number, message: string, cause?: unknown, person: string | null = null) {
    super(message, {cause})
    this.status = status
    this.person = person
  }

  /** Messages of its causes, for the log; they have no tokens. */
  get reasons(): string {
    const messages = [this.message.replace(/\.$/, '')]
    for (let at = this.cause; at instanceof Error && messages.length < 5; at = at.cause)
      messages.push(at.message)
    return messages.join(': ')
  }
}

export interface StartedSignIn {
  /** Page of the provider to which the browser is redirected. */
  readonly url: string
  readonly cookie: string
}

export type PersonOwner = Extract<SessionOwner, {readonly kind: 'other'}>

export interface Person {
  readonly owner: PersonOwner
  /** A path of this server. */
  readonly returnTo: string
}

/** The owner of the sessions of a person. It names the issuer: the people of another one are others. */
export function personOwner(issuer: string, subject: string): string {
  return `${issuerOwners(issuer)}${hash('sha256', subject, 'base64url')}`
}

/** Prefix of the owners of all people of an issuer. */
export function issuerOwners(issuer: string): string {
  return `person ${hash('sha256', issuer, 'base64url').slice(0, 16)} `
}

/** The path, if it is one of this server; `/ui/` otherwise. */
export function safeReturn(path: string | null): string {
  if (path === null || path.length > RETURN_LENGTH_MAX) return '/ui/'
  // Browsers read `//host`, `/\host` and `/<tab>/host` as other hosts.
  return /^\/(?![/\\])[\x21-\x5b\x5d-\x7e]*$/.test(path) ? path : '/ui/'
}

export interface SignInParts {
  readonly clock: Clock
  readonly random: Random
  /** The same on all servers of the cluster. Its readers can only make servers ask the provider. */
  readonly key: string
}

export class OidcSignIn {
  readonly #config: OidcConfig
  readonly #clock: Clock
  readonly #random: Random
  readonly #key: string
  /** Failures that the provider was asked about. Failures without a valid cookie do not close the sign-in. */
  readonly #failures: AuthRateLimit
  readonly #starts = new Places()
  readonly #ends = new Places()
  /** Payloads of cookies that were used, oldest first. */
  readonly #used = new Set<string>()
  readonly #isSecure: boolean
  #provider: Promise<{readonly library: Library; readonly provider: Provider}> | null = null

  constructor(config: OidcConfig, {clock, random, key}: SignInParts) {
    this.#config = config
    this.#clock = clock
    this.#random = random
    this.#key = key
    this.#failures = new AuthRateLimit(clock)
    this.#isSecure = config.publicUrl.startsWith('https:')
  }

  /** Prefix as of `issuerOwners`. */
  get owners(): string {
    return issuerOwners(this.#config.issuer)
  }

  /** True if browsers reach the server by TLS. */
  get isSecure(): boolean {
    return this.#isSecure
  }

  /** Throws `SignInFailed`. */
  start(returnTo: string | null, address: string): Promise<StartedSignIn> {
    return this.#starts.within(address, async () => {
      const {library, provider} = await this.#open()
      const [state, nonce, verifier] = [this.#text(), this.#text(), this.#text()]
      const url = library.buildAuthorizationUrl(provider, {
        redirect_uri: this.#callbackUrl,
        scope: this.#config.scope,
        state,
        nonce,
        code_challenge: await library.calculatePKCECodeChallenge(verifier),
        code_challenge_method: 'S256',
      })
      const to = Buffer.from(safeReturn(returnTo)).toString('base64url')
      return {url: url.href, cookie: this.#cookie(this.#sealed([state, nonce, verifier, to]))}
    })
  }

  /**
   * The person that the provider names. `query` is that of the callback, `address` that of the client. The
   * provider is asked once for each sign-in that began here. Throws `SignInFailed`.
   */
  async finish(query: string, cookies: string | undefined, address: string): Promise<Person> {
    const signIn = this.#opened(this.#read(cookies))
    if (signIn === null || new URLSearchParams(query).get('state') !== signIn.state)
      throw new SignInFailed(400, 'The sign-in took too long, or it began in another browser.')
    if (this.#failures.isExceeded(address))
      throw new SignInFailed(429, 'Too many sign-ins have failed. Try again in ten seconds.')
    return this.#ends.within(address, async () => {
      try {
        return await this.#ask(query, signIn)
      } catch (error) {
        this.#failures.recordFailure(address)
        throw error
      }
    })
  }

  async #ask(query: string, {state, nonce, verifier, to, payload}: OpenedCookie): Promise<Person> {
    this.#markUsed(payload)
    const {library, provider} = await this.#open()
    const url = new URL(this.#callbackUrl)
    url.search = query
    const claims = await asked(library, async () => {
      const checks = {pkceCodeVerifier: verifier, expectedState: state, expectedNonce: nonce}
      const tokens = await library.authorizationCodeGrant(provider, url, {
        ...checks,
        idTokenExpected: true,
      })
      const named = tokens.claims()!
      if (groupsIn(named, this.#config.groupsClaim) !== null) return named
      // Some providers name groups only there.
      if (provider.serverMetadata().userinfo_endpoint === undefined) return named
      return {
        ...named,
        ...(await library.fetchUserInfo(provider, tokens.access_token, named.sub)),
      }
    })
    const returnTo = safeReturn(Buffer.from(to, 'base64url').toString('utf8'))
    return {owner: this.#ownerOf(claims), returnTo}
  }

  /** Removes the cookie of a sign-in. */
  endedCookie(): string {
    return `${this.#cookie('')}; Max-Age=0`
  }

  #ownerOf(claims: Claims & {readonly sub: string}): PersonOwner {
    const {grants, groupsClaim, issuer} = this.#config
    const rights = rightsOf(groupsIn(claims, groupsClaim) ?? [], grants)
    const name = personName(claims)
    if (rights === null)
      throw new SignInFailed(
        403,
        `${name} may not use Belfry: none of the groups of this account is allowed to. Ask an ` +
          'administrator of Belfry to map one of them.',
        undefined,
        name,
      )
    return {kind: 'other', name: personOwner(issuer, claims.sub), token: {name, ...rights}}
  }

  get #callbackUrl(): string {
    return `${this.#config.publicUrl}${CALLBACK_PATH}`
  }

  /** The value of a cookie: the parts, the time in seconds, and the code over both. */
  #sealed(parts: readonly string[]): string {
    const payload = [...parts, this.#seconds.toString(36)].join('.')
    return `${payload}.${this.#codeOf(payload)}`
  }

  /** `null` = not made by a server of this cluster, too old, or used here before. */
  #opened(value: string): OpenedCookie | null {
    const end = value.lastIndexOf('.')
    const [payload, code] = [value.slice(0, Math.max(0, end)), value.slice(end + 1)]
    if (!isEqual(code, this.#codeOf(payload)) || this.#used.has(payload)) return null
    const [state = '', nonce = '', verifier = '', to = '', startedAt = ''] = payload.split('.')
    const age = this.#seconds - Number.parseInt(startedAt, 36)
    if (age < -CLOCK_SKEW_SECONDS || age > COOKIE_AGE_SECONDS) return null
    return {state, nonce, verifier, to, payload}
  }

  #codeOf(payload: string): string {
    return createHmac('sha256', this.#key).update(payload).digest('base64url')
  }

  get #seconds(): number {
    return Math.floor(this.#clock.now() / 1000)
  }

  #markUsed(payload: string): void {
    if (this.#used.size >= ENDED_MAX) {
      const [oldest] = this.#used
      if (oldest !== undefined) this.#used.delete(oldest)
    }
    this.#used.add(payload)
  }

  /** A failure is not kept: the provider may be back at the next sign-in. */
  #open() {
    this.#provider ??= this.#discover().catch((error: unknown) => {
      this.#provider = null
      throw new SignInFailed(503, 'The sign-in provider does not answer. Try again later.', error)
    })
    return this.#provider
  }

  async #discover() {
    const library = await import('openid-client')
    const {issuer, clientId, clientSecret} = this.#config
    const isPlain = issuer.startsWith('http:')
    const provider = await library.discovery(
      new URL(issuer),
      clientId,
      undefined,
      clientSecret === null ? library.None() : library.ClientSecretBasic(clientSecret),
      {
        timeout: TIMEOUT_SECONDS,
        execute: [
          // Only for an issuer on this machine.
          ...(isPlain ? [library.allowInsecureRequests] : []),
          // Signatures are checked although the token comes from the provider itself.
          library.enableNonRepudiationChecks,
        ],
      },
    )
    return {library, provider}
  }

  /** Random text of the length that PKCE requires. */
  #text(): string {
    return `${this.#random.id()}${this.#random.id()}`
  }

  get #cookieName(): string {
    return this.#isSecure ? '__Host-belfry-sign-in' : 'belfry-sign-in'
  }

  /** `Lax`: the browser comes back from another site. */
  #cookie(value: string): string {
    const secure = this.#isSecure ? '; Secure' : ''
    const age = value === '' ? '' : `; Max-Age=${COOKIE_AGE_SECONDS}`
    return `${this.#cookieName}=${value}; Path=/; HttpOnly; SameSite=Lax${secure}${age}`
  }

  #read(cookies = ''): string {
    const prefix = `${this.#cookieName}=`
    const found = cookies.split(';').find((text) => text.trim().startsWith(prefix))
    return found?.trim().slice(prefix.length) ?? ''
  }
}

/** Content of the cookie of a sign-in. */
interface OpenedCookie {
  readonly state: string
  readonly nonce: string
  readonly verifier: string
  /** Path to return to, in base64url. */
  readonly to: string
  readonly payload: string
}

function isEqual(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** Bounds the steps that wait for the provider, in all and for each client network. */
class Places {
  readonly #taken = new Map<string, number>()
  #inProgress = 0

  /** Throws `SignInFailed` when no place is free. */
  async within<Result>(address: string, step: () => Promise<Result>): Promise<Result> {
    const network = networkOf(address)
    const taken = this.#taken.get(network) ?? 0
    if (this.#inProgress >= IN_PROGRESS_MAX || taken >= NETWORK_IN_PROGRESS_MAX)
      throw new SignInFailed(503, 'Too many people sign in at this moment. Try again.')
    this.#inProgress += 1
    this.#taken.set(network, taken + 1)
    try {
      return await step()
    } finally {
      this.#inProgress -= 1
      const left = this.#taken.get(network)! - 1
      if (left === 0) this.#taken.delete(network)
      else this.#taken.set(network, left)
    }
  }
}

/** Translates errors of the library into `SignInFailed`. */
async function asked<Result>(library: Library, ask: () => Promise<Result>): Promise<Result> {
  try {
    return await ask()
  } catch (error) {
    if (error instanceof library.AuthorizationResponseError)
      throw new SignInFailed(403, 'The sign-in provider did not let this person in.', error)
    const code = error instanceof Error && 'code' in error ? error.code : ''
    // Failed fetches have no code; errors of the library have one.
    if (code === 'OAUTH_TIMEOUT' || (error instanceof TypeError && code === ''))
      throw new SignInFailed(503, 'The sign-in provider does not answer. Try again later.', error)
    throw new SignInFailed(
      400,
      'The sign-in cannot be completed: the reply of the provider is invalid. Start it again.',
      error,
    )
  }
}
