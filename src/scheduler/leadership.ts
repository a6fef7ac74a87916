/**
 * Leader election by lease. A term's services start when the lease is acquired and stop when its trust ends,
 * so no service asks whether this node leads. Trust ends before the lease expires: it is counted from the
 * monotonic instant before the request was sent, less a margin.
 *
 * A candidate also watches the lease, without a gap, by its monotonic clock, and may take it early:
 * - The store's clock decides whether a lease has expired, and that clock may be set back. If the lease stays
 *   unchanged for longer than its TTL, its holder no longer trusts it.
 * - The store notices at once that a process was killed: its connection is closed. If the candidate saw the
 *   connection of the holder open, and then closed for a while without a renewal, the holder is most likely
 *   dead. A live one renews as soon as it loses that connection. If it is not dead, it is fenced.
 */
import type {Limits} from '../config/limits.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {Events} from '../ports/events.ts'
import type {HeldLease, LeaderStore, ObservedLease} from '../ports/leader-store.ts'
import type {Clock, Timer, Wakeup} from '../ports/runtime.ts'
import {OutcomeUnknown, StoreUnavailable, TermOver} from '../ports/store-errors.ts'

/**
 * Options of every leader's service. A service is created for one term and writes under its number. A write
 * under an older term throws `TermOver`, which ends this leader's term and stops all its services.
 */
export interface TermOptions {
  /** Fencing number of the lease. */
  readonly term: number
  /** Ends the term. Idempotent; must not wait for the service that calls it. */
  readonly onTermOver: () => void
  readonly clock: Clock
  readonly events: Events
}

export interface LeadershipOptions {
  readonly store: Pick<LeaderStore, 'acquireLease' | 'heldLease' | 'renewLease' | 'resignLease'>
  readonly clock: Clock
  readonly events: Events
  readonly wakeup: Wakeup
  readonly nodeId: string
  readonly nodeName: string
  /** Incarnation: random for each process start, never the host name. */
  readonly holder: string
  /**
   * `leaseAcquireEveryMs`: bounds the time without a leader. `leaseClosedMs`: the holder's connection must be
   * closed for this long before a candidate takes the lease.
   */
  readonly limits: Pick<
    Limits,
    'leaseTtlMs' | 'leaseRenewMs' | 'leaseAcquireEveryMs' | 'leaseMarginMs' | 'leaseClosedMs'
  >
  /** Called with the approximate time of the store, when a lease held by another node was read. */
  readonly onStoreTime?: (now: number) => void
  /** Services that run exactly as long as a term. A service that gets `TermOver` calls `onTermOver`. */
  readonly services: (term: number, onTermOver: () => void) => readonly Service[]
}

interface Term {
  readonly number: number
  readonly services: readonly Service[]
  trust: Timer
}

/** Another node's lease, seen unchanged from `since` to `until` by this candidate's monotonic clock. */
interface WatchedLease {
  readonly lease: HeldLease
  readonly since: number
  readonly until: number
  /** The connection of the holder was seen open in this term. */
  readonly wasConnected: boolean
  /** First look at which it was closed; `null` = it is open, or was never seen open. */
  readonly closedSince: number | null
}

export class Leadership implements Service {
  readonly #options: LeadershipOptions
  readonly #loop: Loop
  #term: Term | null = null
  /** Number of the newest lease acquired, even if its term never began: `stop` resigns it. */
  #acquiredTerm: number | null = null
  #watched: WatchedLease | null = null
  /** The newest requests failed: if a lease was not renewed meanwhile, the store is the cause. */
  #storeFailed = false
  #ending: Promise<void> | null = null
  #stopped = false
  #unsubscribe: () => void = () => {}

  constructor(options: LeadershipOptions) {
    this.#options = options
    const {clock, events, limits} = options
    this.#loop = stepLoop('leadership', {
      clock,
      events,
      step: () => this.#acquireOrRenew(),
      // The cluster gets a leader without delay after an outage of the store.
      backoffMaxMs: limits.leaseAcquireEveryMs,
    })
  }

  /** Term of this leader; `null` = follower. For status and readiness, not for decisions. */
  get term(): number | null {
    return this.#term?.number ?? null
  }

  start(): void {
    // A leader that is woken renews: its connection may be lost, and candidates notice that.
    this.#unsubscribe = this.#options.wakeup.subscribe('lead', () => this.#loop.wake())
    this.#loop.start()
  }

  /** Ends the term and resigns the lease, so that another server takes over at once. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#unsubscribe()
    await this.#loop.stop()
    await this.#end('stopped')
    const term = this.#acquiredTerm
    if (term === null) return
    this.#acquiredTerm = null
    try {
      await this.#options.store.resignLease({term, holder: this.#options.holder})
      this.#options.wakeup.notify('lead')
    } catch (error) {
      // The lease expires by itself; another server takes over then.
      this.#options.events.emit('step_failed', {step: 'resign', message: String(error)})
    }
  }

  async #acquireOrRenew(): Promise<number> {
    await this.#ending
    try {
      await (this.#term === null ? this.#acquire() : this.#renew(this.#term))
      this.#storeFailed = false
    } catch (error) {
      this.#storeFailed ||= error instanceof StoreUnavailable || error instanceof OutcomeUnknown
      throw error
    }
    return this.#term === null ? this.#acquireInMs() : this.#options.limits.leaseRenewMs
  }

  /** Sooner than usual if the lease of a closed connection may be taken earlier. */
  #acquireInMs(): number {
    const {clock, limits} = this.#options
    const closedSince = this.#watched?.closedSince ?? null
    if (closedSince === null) return limits.leaseAcquireEveryMs
    const closedInMs = closedSince + limits.leaseClosedMs - clock.monotonicMs()
    return Math.min(limits.leaseAcquireEveryMs, Math.max(0, closedInMs))
  }

  async #acquire(): Promise<void> {
    const {store, clock, holder, nodeId, limits, events, nodeName} = this.#options
    const sentAt = clock.monotonicMs()
    const unchanged = this.#unchanged(sentAt)
    const lease = await store.acquireLease({
      holder,
      nodeId,
      ttlMs: limits.leaseTtlMs,
      unchanged,
      storeFailed: this.#storeFailed,
    })
    if (lease === null) return this.#watch()
    this.#watched = null
    this.#acquiredTerm = lease.term
    const trustMs = this.#trustLeftMs(sentAt)
    // A lease that arrived too late is not trusted: the next round acquires again. If this node was stopped
    // meanwhile, `stop` resigns it.
    if (trustMs <= 0 || this.#stopped) return
    const onTermOver = () => {
      if (this.#term?.number === lease.term) void this.#end('term over')
    }
    const services = this.#options.services(lease.term, onTermOver)
    this.#term = {number: lease.term, services, trust: this.#trustFor(trustMs)}
    events.emit('term_began', {term: lease.term, node: nodeName})
    for (const service of services) service.start()
    // Candidates see the holder's connection open from now on, so they can tell when it is closed.
    this.#options.wakeup.notify('lead')
  }

  /** The watched lease, if it may be acquired before its expiry; else `null`. */
  #unchanged(now: number): HeldLease | null {
    const {leaseTtlMs, leaseMarginMs, leaseClosedMs} = this.#options.limits
    const watched = this.#watchedAt(now)
    if (watched === null) return null
    const {lease, since, closedSince} = watched
    const isUntrusted = now - since >= leaseTtlMs + leaseMarginMs
    const isClosed = closedSince !== null && now - closedSince >= leaseClosedMs
    return isUntrusted || isClosed ? lease : null
  }

  /** Observes another node's lease. */
  async #watch(): Promise<void> {
    const {store, clock} = this.#options
    const observed = await store.heldLease()
    const seenAt = clock.monotonicMs()
    this.#watched = observed === null ? null : observe(this.#watchedAt(seenAt), observed, seenAt)
    // The lease is in force, so it was renewed less than its TTL ago.
    if (observed !== null)
      this.#options.onStoreTime?.(observed.expiresAt - this.#options.limits.leaseTtlMs)
  }

  /**
   * `null` = replies of the store were too far apart. This process was paused or the store was unavailable,
   * perhaps for the holder too, so the watch begins again.
   */
  #watchedAt(now: number): WatchedLease | null {
    if (this.#watched === null) return null
    return now - this.#watched.until <= 2 * this.#options.limits.leaseRenewMs ? this.#watched : null
  }

  async #renew(term: Term): Promise<void> {
    const {store, clock, holder, limits} = this.#options
    const sentAt = clock.monotonicMs()
    let renewed: boolean
    try {
      renewed = await store.renewLease({
        term: term.number,
        holder,
        ttlMs: limits.leaseTtlMs,
      })
    } catch (error) {
      if (error instanceof TermOver) return this.#end('term over')
      throw error
    }
    if (!renewed) return this.#end('lease lost')
    const trustMs = this.#trustLeftMs(sentAt)
    if (trustMs <= 0 || this.#term !== term) return
    term.trust.cancel()
    term.trust = this.#trustFor(trustMs)
  }

  #trustLeftMs(sentAt: number): number {
    const {clock, limits} = this.#options
    return sentAt + limits.leaseTtlMs - limits.leaseMarginMs - clock.monotonicMs()
  }

  #trustFor(trustMs: number): Timer {
    return this.#options.clock.after(trustMs, () => void this.#end('not renewed in time'))
  }

  #end(reason: string): Promise<void> {
    const term = this.#term
    if (term === null) return this.#ending ?? Promise.resolve()
    this.#term = null
    term.trust.cancel()
    this.#options.events.emit('term_ended', {
      term: term.number,
      node: this.#options.nodeName,
      reason,
    })
    this.#ending = Promise.all(term.services.map((service) => service.stop())).then(() => {
      this.#ending = null
    })
    return this.#ending
  }
}

function observe(
  before: WatchedLease | null,
  {isConnected, ...lease}: ObservedLease,
  seenAt: number,
): WatchedLease {
  const isSameTerm = before !== null && before.lease.term === lease.term
  const isUnchanged = isSameTerm && before.lease.expiresAt === lease.expiresAt
  const wasConnected = isConnected === true || (isSameTerm && before.wasConnected)
  const closedBefore = isUnchanged ? before.closedSince : null
  const isClosed = wasConnected && isConnected === false
  return {
    lease,
    since: isUnchanged ? before.since : seenAt,
    until: seenAt,
    wasConnected,
    closedSince: isClosed ? (closedBefore ?? seenAt) : null,
  }
}
