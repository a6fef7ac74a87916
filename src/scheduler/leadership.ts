/**
 * Standing for leadership and living through a term. A term's services are started when the lease is
 * taken and stopped when its trust ends; nobody asks "am I the leader?". Trust ends before the lease
 * does: it is counted from the monotonic instant before the request was sent, less a margin.
 *
 * Whether a lease is over is told by the store's clock, which may be set back. So a candidate also watches:
 * what it saw unchanged for longer than a lease lasts, by its own monotonic clock, nobody trusts any more.
 */
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {HeldLease, LeaderStore} from '../ports/leader-store.ts'
import type {Clock, Timer, Wakeup} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

export interface LeadershipOptions {
  readonly store: Pick<LeaderStore, 'acquireLease' | 'heldLease' | 'renewLease' | 'resignLease'>
  readonly clock: Clock
  readonly events: Events
  readonly wakeup: Wakeup
  readonly nodeId: string
  readonly nodeName: string
  /** Random id of this process start; never the host name. */
  readonly holder: string
  readonly leaseTtlMs: number
  readonly renewEveryMs: number
  /**
   * How often a node that does not lead asks for the lease: bounds how long a lease that ran out stays
   * free.
   */
  readonly standEveryMs: number
  /** The lease is trusted for this much less than it lasts. */
  readonly trustMarginMs: number
  /** What lives exactly as long as a term. `over` is for a service that meets `TermOver`. */
  readonly services: (term: number, over: () => void) => readonly Service[]
}

interface Term {
  readonly number: number
  readonly services: readonly Service[]
  trust: Timer
}

/** What a candidate saw another hold, and between which of its monotonic instants it went on looking. */
interface Watched {
  readonly lease: HeldLease
  readonly since: number
  readonly until: number
}

export class Leadership implements Service {
  readonly #options: LeadershipOptions
  readonly #loop: Loop
  #term: Term | null = null
  /** Number of the newest term taken, also when it was never lived in: what a stop lets go. */
  #taken: number | null = null
  #watched: Watched | null = null
  #ending: Promise<void> | null = null
  #stopped = false
  #deaf: () => void = () => {}

  constructor(options: LeadershipOptions) {
    this.#options = options
    const failed = (error: unknown) =>
      options.events.emit('step_failed', {step: 'leadership', message: String(error)})
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#step(),
      failed,
      // A store that is back must not wait for somebody to lead.
      backoffMaxMs: options.standEveryMs,
    })
  }

  /**
   * The term this node leads under; `null` while it does not. For status and readiness, not for
   * decisions.
   */
  get term(): number | null {
    return this.#term?.number ?? null
  }

  start(): void {
    this.#deaf = this.#options.wakeup.subscribe('lead', () => {
      if (this.#term === null) this.#loop.wake()
    })
    this.#loop.start()
  }

  /** Ends the term, lets go the lease so that another takes over at once. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#deaf()
    await this.#loop.stop()
    await this.#end('stopped')
    const term = this.#taken
    if (term === null) return
    this.#taken = null
    try {
      await this.#options.store.resignLease({term, holder: this.#options.holder})
      this.#options.wakeup.notify('lead')
    } catch (error) {
      // Not resigned: the lease runs out by itself and another takes over then.
      this.#options.events.emit('step_failed', {step: 'resign', message: String(error)})
    }
  }

  async #step(): Promise<number> {
    await this.#ending
    await (this.#term === null ? this.#stand() : this.#renew(this.#term))
    return this.#term === null ? this.#options.standEveryMs : this.#options.renewEveryMs
  }

  async #stand(): Promise<void> {
    const {store, clock, holder, nodeId, leaseTtlMs, events, nodeName} = this.#options
    const sentAt = clock.monotonicMs()
    const unchanged = this.#unchanged(sentAt)
    const lease = await store.acquireLease({holder, nodeId, ttlMs: leaseTtlMs, unchanged})
    if (lease === null) return this.#watch(unchanged)
    this.#watched = null
    this.#taken = lease.term
    const trustMs = this.#trustLeftMs(sentAt)
    if (trustMs <= 0 || this.#stopped) {
      // Too slow to be trusted: the next round stands again. Stopped meanwhile: `stop` lets the lease go.
      return
    }
    const over = () => {
      if (this.#term?.number === lease.term) void this.#end('term over')
    }
    const services = this.#options.services(lease.term, over)
    this.#term = {number: lease.term, services, trust: clock.after(trustMs, () => this.#distrust())}
    events.emit('term_began', {term: lease.term, node: nodeName})
    for (const service of services) service.start()
  }

  /** What was watched for long enough to be taken although its expiry lies ahead. */
  #unchanged(now: number): HeldLease | null {
    const {leaseTtlMs, trustMarginMs} = this.#options
    const watched = this.#watchedAt(now)
    return watched !== null && now - watched.since >= leaseTtlMs + trustMarginMs
      ? watched.lease
      : null
  }

  /** Another holds the lease: looked at once, and whether it is still that the write compares. */
  async #watch(changed: HeldLease | null): Promise<void> {
    const {store, clock} = this.#options
    const now = clock.monotonicMs()
    const watched = changed === null ? this.#watchedAt(now) : null
    this.#watched = watched === null ? null : {...watched, until: now}
    if (watched !== null) return
    const lease = await store.heldLease()
    const seenAt = clock.monotonicMs()
    if (lease !== null) this.#watched = {lease, since: seenAt, until: seenAt}
  }

  /**
   * Answers of the store further apart than renewals are no watching: this process was paused, or the store
   * away, and then perhaps for the holder too.
   */
  #watchedAt(now: number): Watched | null {
    if (this.#watched === null) return null
    return now - this.#watched.until <= this.#options.renewEveryMs ? this.#watched : null
  }

  async #renew(term: Term): Promise<void> {
    const {store, clock, holder, leaseTtlMs} = this.#options
    const sentAt = clock.monotonicMs()
    let renewed: boolean
    try {
      renewed = await store.renewLease({term: term.number, holder, ttlMs: leaseTtlMs})
    } catch (error) {
      if (error instanceof TermOver) return this.#end('term over')
      throw error
    }
    if (!renewed) return this.#end('lease lost')
    const trustMs = this.#trustLeftMs(sentAt)
    if (trustMs <= 0 || this.#term !== term) return
    term.trust.cancel()
    term.trust = clock.after(trustMs, () => this.#distrust())
  }

  #trustLeftMs(sentAt: number): number {
    const {clock, leaseTtlMs, trustMarginMs} = this.#options
    return sentAt + leaseTtlMs - trustMarginMs - clock.monotonicMs()
  }

  #distrust(): void {
    void this.#end('not renewed in time')
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
