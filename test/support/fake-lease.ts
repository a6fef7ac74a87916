/** Lease in memory that implements the port. Its replies can be delayed, refused or lost. */
import {isDeepStrictEqual} from 'node:util'
import type {HeldLease, Lease, LeaderStore, ObservedLease} from '../../src/ports/leader-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-errors.ts'
import type {VirtualClock} from './virtual-clock.ts'

export type LeaseFault = 'none' | 'unavailable' | 'answer_lost'

type LeaseStore = Pick<LeaderStore, 'acquireLease' | 'heldLease' | 'renewLease' | 'resignLease'>

export class FakeLease implements LeaseStore {
  readonly calls: string[] = []
  /** Delay before the call is applied, and again before its reply. */
  delayMs: () => number = () => 0
  /** True if the connection of the holder is open; `null` = unknown. */
  isConnected: boolean | null = null
  fault: (call: string) => LeaseFault = () => 'none'
  #term = 0
  #holder: string | null = null
  #expiresAt = 0
  /** Total step back of the store's clock. */
  #setBackMs = 0
  readonly #clock: VirtualClock

  constructor(clock: VirtualClock) {
    this.#clock = clock
  }

  /** Current holder of the lease; `null` = free or expired. */
  get holder(): string | null {
    return this.#expiresAt > this.#now ? this.#holder : null
  }

  get term(): number {
    return this.#term
  }

  /** Gives the lease to another holder, as after an expiry that the current one has not noticed. */
  takeOver(holder: string, ttlMs: number): void {
    this.#term += 1
    this.#holder = holder
    this.#expiresAt = this.#now + ttlMs
  }

  /** Sets back the store's clock only. */
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

  heldLease(): Promise<ObservedLease | null> {
    return this.#call('held', () => {
      const held = this.#held()
      return held === null ? null : {...held, isConnected: this.isConnected}
    })
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

  async #call<Reply>(name: string, apply: () => Reply): Promise<Reply> {
    this.calls.push(name)
    const fault = this.fault(name)
    await this.#wait()
    if (fault === 'unavailable') throw new StoreUnavailable('the store is unavailable')
    const reply = apply()
    await this.#wait()
    if (fault === 'answer_lost') throw new OutcomeUnknown('the reply was lost')
    return reply
  }

  #wait(): Promise<void> {
    const delayMs = this.delayMs()
    if (delayMs <= 0) return Promise.resolve()
    return new Promise((resolve) => void this.#clock.after(delayMs, resolve))
  }
}
