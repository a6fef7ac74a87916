/** A lease in memory, by the port's words, whose answers can be delayed, refused or lost. */
import {isDeepStrictEqual} from 'node:util'
import type {HeldLease, Lease, LeaderStore} from '../../src/ports/leader-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import type {VirtualClock} from './virtual-clock.ts'

export type LeaseFault = 'none' | 'unavailable' | 'answer_lost'

type LeaseStore = Pick<LeaderStore, 'acquireLease' | 'heldLease' | 'renewLease' | 'resignLease'>

export class FakeLease implements LeaseStore {
  readonly calls: string[] = []
  /** How long the call waits before it is carried out, and again before it answers. */
  delayMs: () => number = () => 0
  fault: (call: string) => LeaseFault = () => 'none'
  #term = 0
  #holder: string | null = null
  #expiresAt = 0
  /** What the store's clock was set back by. */
  #setBackMs = 0
  readonly #clock: VirtualClock

  constructor(clock: VirtualClock) {
    this.#clock = clock
  }

  /** Who holds the lease now; `null` when nobody does. */
  get holder(): string | null {
    return this.#expiresAt > this.#now ? this.#holder : null
  }

  get term(): number {
    return this.#term
  }

  /** Another takes over, as after an expiry this holder has not noticed. */
  takeOver(holder: string, ttlMs: number): void {
    this.#term += 1
    this.#holder = holder
    this.#expiresAt = this.#now + ttlMs
  }

  /** The store's clock is set back; nobody else's is. */
  setBack(ms: number): void {
    this.#setBackMs += ms
  }

  acquireLease(request: {
    holder: string
    ttlMs: number
    unchanged?: HeldLease | null
  }): Promise<Lease | null> {
    return this.#call('acquire', () => {
      const isSeen = isDeepStrictEqual(request.unchanged, this.#held())
      if (this.holder !== null && this.holder !== request.holder && !isSeen) return null
      this.takeOver(request.holder, request.ttlMs)
      return {term: this.#term, expiresAt: this.#expiresAt}
    })
  }

  heldLease(): Promise<HeldLease | null> {
    return this.#call('held', () => this.#held())
  }

  renewLease(request: {term: number; holder: string; ttlMs: number}): Promise<boolean> {
    return this.#call('renew', () => {
      if (request.term !== this.#term || this.holder !== request.holder) return false
      this.#expiresAt = this.#now + request.ttlMs
      return true
    })
  }

  resignLease(request: {term: number; holder: string}): Promise<void> {
    return this.#call('resign', () => {
      if (request.term === this.#term && this.#holder === request.holder) this.#holder = null
    })
  }

  get #now(): number {
    return this.#clock.monotonicMs() - this.#setBackMs
  }

  #held(): HeldLease | null {
    if (this.#holder === null) return null
    return {term: this.#term, holder: this.#holder, expiresAt: this.#expiresAt}
  }

  async #call<Answer>(name: string, carryOut: () => Answer): Promise<Answer> {
    this.calls.push(name)
    const fault = this.fault(name)
    await this.#wait()
    if (fault === 'unavailable') throw new StoreUnavailable('the store is away')
    const answer = carryOut()
    await this.#wait()
    if (fault === 'answer_lost') throw new OutcomeUnknown('the answer was lost')
    return answer
  }

  #wait(): Promise<void> {
    const delayMs = this.delayMs()
    if (delayMs <= 0) return Promise.resolve()
    return new Promise((resolve) => void this.#clock.after(delayMs, resolve))
  }
}
