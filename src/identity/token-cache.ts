/**
 * The tokens and policies of the cluster, in memory: a request costs no query. A change reaches every server
 * by a notification, and by a look at the revision every two seconds. While the store is away, what was known
 * stays valid for a while. Also ends what is open (streams, agent links) when its token no longer allows it.
 */
import {sessionExpiry} from '../core/access/session.ts'
import {hash} from 'node:crypto'
import {NO_RULES, type Principal, TOKEN_KINDS} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {Clock, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import type {AccessSnapshot, Expiry, SessionOwner, SessionTerms} from '../ports/token-store.ts'
import type {DefinitionTraits} from '../core/access/policy.ts'
import {PolicyCompiler} from './policy-compiler.ts'

export interface AccessOptions {
  /** The facade for clients: its calls have deadlines. */
  readonly store: Pick<Store, 'access' | 'accessRevision' | 'recordTokenUse'>
  /** Policies limit the executors and processors of a job. */
  readonly traits: DefinitionTraits
  readonly clock: Clock
  readonly wakeup: Wakeup
  readonly events: Events
  /** The management token of the configuration; `null` = none. */
  readonly token: string | null
  /**
   * Prefix of the owner of a session that a person signed in for; absent = people sign in with tokens only.
   */
  readonly personOwnerPrefix?: string | undefined
}

/** Poll interval: even if a notification is lost, a change takes effect within five seconds. */
const POLL_MS = 2_000
/** A server of the previous release changes policies without a new revision. */
const RELOAD_MS = 60_000
/**
 * How long what is known stays valid without the store. Longer than a failover or restart of a database, so
 * that monitoring sees the outage; a token revoked meanwhile can read nothing that is in the store.
 */
export const STALE_MAX_MS = 15 * 60_000
const USE_CHECK_MS = 60_000
/** A token in use costs one write in this time. A session in use costs one a minute: it expires by it. */
const USE_RECORD_MS = 5 * 60_000

/** A caller on this machine before there is the first token. */
export const LOCAL: Principal = {
  kind: 'management',
  name: '',
  accessor: '',
  isSession: false,
  rules: NO_RULES,
}

/** The digest of a secret, as it is stored. Secrets are random, so it needs no salt and no slow hash. */
export function digestOf(secret: string): string {
  return hash('sha256', secret, 'base64url')
}

/** Times are monotonic; `Infinity` = it does not expire. */
interface CachedToken {
  readonly principal: Principal
  /** A use of a session moves it. */
  expiresAt: number
  readonly session: SessionTerms | null
}

/**
 * The owner of sessions of a configured token. Servers with the same token accept each other's, those with
 * another one do not: so much of the digest tells them apart, and confirms no guess of a token.
 */
function configuredOwner(digest: string): string {
  return `configured ${digest.slice(0, 3)}`
}

/** The token of the configuration, with a caller of its own: after a reload the old one is another. */
interface Configured {
  readonly digest: string
  readonly principal: Principal
}

function configuredBy(token: string | null): Configured | null {
  return token === null ? null : {digest: digestOf(token), principal: {...LOCAL}}
}

interface RevocationWatch {
  readonly principal: Principal
  readonly isAllowed: (principal: Principal) => boolean
  readonly onLost: () => void
}

export class AccessTable implements Service {
  readonly #options: AccessOptions
  #configured: Configured | null
  readonly #loop: Loop
  #byDigest: ReadonlyMap<string, CachedToken> = new Map()
  #byAccessor: ReadonlyMap<string, CachedToken> = new Map()
  readonly #compiler: PolicyCompiler
  #hasHadTokens = false
  #revision = -1
  #reloadedAt = -Infinity
  /** Start of the newest read that succeeded. */
  #confirmedAt = -Infinity
  #running: Promise<void> = Promise.resolve()
  #queued: Promise<void> | null = null
  readonly #watches = new Set<RevocationWatch>()
  /** Tokens used since their use was recorded, with the monotonic instant of the newest use. */
  readonly #lastUses = new Map<string, number>()
  readonly #recordedAt = new Map<string, number>()
  #usesCheckedAt = -Infinity
  #unsubscribe: (() => void) | null = null

  constructor(options: AccessOptions) {
    this.#options = options
    const {clock, events, token, traits} = options
    this.#compiler = new PolicyCompiler(traits)
    this.#configured = configuredBy(token)
    this.#loop = new Loop({
      clock,
      step: () => this.#step(),
      failed: (error) => {
        events.emit('step_failed', {step: 'access', message: String(error)})
        this.#endLost()
      },
      backoffMaxMs: POLL_MS,
    })
  }

  /** Call `refresh` first: before it, no token is known. */
  start(): void {
    this.#unsubscribe = this.#options.wakeup.subscribe('access', () => this.#loop.wake())
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#unsubscribe?.()
    await this.#loop.stop()
  }

  /**
   * True if there is or was a token, or people sign in: every caller needs a token or a session. The lock
   * stays when the last token expires or is revoked: jobs run on this machine, and must not become callers
   * without limits.
   */
  get isLocked(): boolean {
    const {personOwnerPrefix} = this.#options
    return this.#configured !== null || this.#hasHadTokens || personOwnerPrefix !== undefined
  }

  isConfigured(digest: string): boolean {
    return digest === this.#configured?.digest
  }

  get hasConfiguredToken(): boolean {
    return this.#configured !== null
  }

  /** True if the configured token is also stored, possibly with fewer permissions. */
  get isConfiguredTokenStored(): boolean {
    return this.#configured !== null && this.#byDigest.has(this.#configured.digest)
  }

  /** Replaces the token of the configuration. Streams and agent links of the old token end. */
  configure(token: string | null): void {
    const configured = configuredBy(token)
    if (configured?.digest === this.#configured?.digest) return
    this.#configured = configured
    this.#endLost()
  }

  /**
   * The owner of a secret with this digest. `null` = unknown or expired; `stale` = the store is away for too
   * long. Digests are found by equality: how long that takes reveals nothing about a secret.
   */
  find(digest: string): Principal | 'stale' | null {
    if (this.isConfigured(digest)) return this.#configured!.principal
    const known = this.#byDigest.get(digest)
    return known === undefined || known.session !== null ? null : this.#recordUse(known, true)
  }

  /**
   * Finds the session of a cookie. Cookie secrets and tokens are separate: neither works as the other.
   * `isUse: false` does not extend the session.
   */
  findSession(digest: string, isUse: boolean): Principal | 'stale' | null {
    const known = this.#byDigest.get(digest)
    return known === undefined || known.session === null ? null : this.#recordUse(known, isUse)
  }

  #recordUse(known: CachedToken, isUse: boolean): Principal | 'stale' | null {
    if (!this.#isValid(known)) return null
    const now = this.#options.clock.monotonicMs()
    if (now - this.#confirmedAt > STALE_MAX_MS) return 'stale'
    if (!isUse) return known.principal
    this.#lastUses.set(known.principal.accessor, now)
    if (known.session !== null) known.expiresAt = sessionExpiry(now, known.session)
    return known.principal
  }

  /** Owner of a session that this token opens; `null` = a caller without a token cannot open one. */
  sessionOwner(caller: Principal): SessionOwner | null {
    if (caller.isSession || caller === LOCAL) return null
    const configured = this.#configured
    if (configured === null || caller !== configured.principal)
      return {kind: 'token', accessor: caller.accessor}
    const name = configuredOwner(configured.digest)
    return {kind: 'other', name, token: {name: '', kind: 'management', policies: []}}
  }

  /** Policies of this list that are not stored. */
  missingPolicies(policies: readonly string[]): readonly string[] {
    return this.#compiler.missing(policies)
  }

  /** Holder whose requests count together: all sessions of a token or of a person are one. */
  holderOf({accessor}: Principal): string {
    return this.#byAccessor.get(accessor)?.session?.owner ?? accessor
  }

  /** Expiry by this server's clock, in ms since the epoch; `null` = it does not expire. */
  expiryOf({accessor}: Principal): Expiry {
    const known = this.#byAccessor.get(accessor)
    const {clock} = this.#options
    const timeOf = (at = Infinity) =>
      at === Infinity ? null : clock.now() + (at - clock.monotonicMs())
    return {expiresAt: timeOf(known?.expiresAt), endsAt: timeOf(known?.session?.endsAt)}
  }

  /** The token as it is now; `null` = unknown or expired. */
  principal(accessor: string): Principal | null {
    const known = this.#byAccessor.get(accessor)
    return known !== undefined && this.#isValid(known) ? known.principal : null
  }

  /** A caller of before, with the policies of now; `null` = it is no longer accepted. */
  current(caller: Principal): Principal | null {
    if (caller === this.#configured?.principal) return caller
    if (caller === LOCAL) return this.isLocked ? null : caller
    const isStale = this.#options.clock.monotonicMs() - this.#confirmedAt > STALE_MAX_MS
    return isStale ? null : this.principal(caller.accessor)
  }

  /**
   * Reads changes made before the call. A read that has started may have missed them, so calls share the
   * next one. Rejects if the store does not answer.
   */
  refresh(): Promise<void> {
    this.#queued ??= this.#running
      .then(undefined, () => undefined)
      .then(() => {
        this.#queued = null
        this.#running = this.#read()
        return this.#running
      })
    return this.#queued
  }

  /**
   * Called after a change by this server, which is known here when the call resolves, and soon on the other
   * servers.
   */
  async changed(): Promise<void> {
    this.#options.wakeup.notify('access')
    try {
      await this.refresh()
    } catch (error) {
      // The change is stored, and the loop tries again.
      if (!(error instanceof DomainError)) throw error
    }
  }

  /** Calls `onLost` once when the caller is no longer accepted or allowed. Returns the end of the watch. */
  watch(
    principal: Principal,
    isAllowed: (principal: Principal) => boolean,
    onLost: () => void,
  ): () => void {
    const watch = {principal, isAllowed, onLost}
    this.#watches.add(watch)
    return () => void this.#watches.delete(watch)
  }

  async #step(): Promise<number> {
    await this.refresh()
    await this.#recordUses()
    return POLL_MS
  }

  async #read(): Promise<void> {
    const {store, clock} = this.#options
    const startedAt = clock.monotonicMs()
    const revision = await store.accessRevision()
    if (revision !== this.#revision || startedAt - this.#reloadedAt >= RELOAD_MS) {
      this.#load(await store.access(), startedAt)
      this.#reloadedAt = startedAt
    }
    this.#confirmedAt = startedAt
    this.#endLost()
  }

  #load({revision, now, hasHadTokens, tokens, policies}: AccessSnapshot, readAt: number): void {
    this.#compiler.load(policies)
    const byDigest = new Map<string, CachedToken>()
    const byAccessor = new Map<string, CachedToken>()
    // The store's clock decides; this one only measures.
    const local = (at: number | null) => (at === null ? Infinity : readAt + at - now)
    for (const token of tokens) {
      const {accessor, name, kind, digest, session, agent} = token
      // Kinds of a newer release lock this server, and may do nothing on it.
      if (!TOKEN_KINDS.includes(kind)) continue
      const isSession = session !== null
      const principal = {
        kind,
        name,
        accessor,
        isSession,
        rules: this.#compiler.rulesOf(token),
        ...(agent === null ? {} : {agent}),
      }
      // This server may have seen a use that is not stored yet.
      const seen = isSession ? (this.#byAccessor.get(accessor)?.expiresAt ?? 0) : 0
      const known = {
        principal,
        expiresAt: Math.max(local(token.expiresAt), seen),
        session: isSession ? {...session, endsAt: local(session.endsAt)} : null,
      }
      // No row takes the place of another.
      if (!byDigest.has(digest)) byDigest.set(digest, known)
      byAccessor.set(accessor, known)
    }
    this.#byDigest = byDigest
    this.#byAccessor = byAccessor
    this.#hasHadTokens = hasHadTokens
    this.#revision = revision
    for (const accessor of this.#recordedAt.keys())
      if (!byAccessor.has(accessor)) this.#recordedAt.delete(accessor)
  }

  /** The store deletes the sessions of a token with it; those of other owners end by this. */
  #isValid({expiresAt, session}: CachedToken): boolean {
    if (this.#options.clock.monotonicMs() >= expiresAt) return false
    if (session === null || !session.owner.includes(' ')) return true
    const {personOwnerPrefix} = this.#options
    if (personOwnerPrefix !== undefined && session.owner.startsWith(personOwnerPrefix)) return true
    return this.#configured !== null && session.owner === configuredOwner(this.#configured.digest)
  }

  #endLost(): void {
    for (const watch of this.#watches) {
      const now = this.current(watch.principal)
      if (now !== null && watch.isAllowed(now)) continue
      this.#watches.delete(watch)
      watch.onLost()
    }
  }

  async #recordUses(): Promise<void> {
    const {store, clock} = this.#options
    const now = clock.monotonicMs()
    if (now - this.#usesCheckedAt < USE_CHECK_MS) return
    this.#usesCheckedAt = now
    // A connection of an agent is one request, however long it lasts.
    for (const {principal} of this.#watches)
      if (principal.agent !== undefined) this.#lastUses.set(principal.accessor, now)
    const due = [...this.#lastUses].filter(([accessor]) => {
      const isSession = this.#byAccessor.get(accessor)?.session !== null
      const everyMs = isSession ? USE_CHECK_MS : USE_RECORD_MS
      return now - (this.#recordedAt.get(accessor) ?? -Infinity) >= everyMs
    })
    if (due.length === 0) return
    await store.recordTokenUse(due.map(([accessor, at]) => ({accessor, agoMs: now - at})))
    for (const [accessor, at] of due) {
      if (this.#lastUses.get(accessor) === at) this.#lastUses.delete(accessor)
      this.#recordedAt.set(accessor, now)
    }
  }
}
