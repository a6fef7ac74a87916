/** A lease in memory, by the port's words, whose answers can be delayed, refused or lost. */
import type {Lease, LeaderStore} from '../../src/ports/leader-store.ts'
import {OutcomeUnknown, StoreUnavailable} from '../../src/ports/store-failure.ts'
import type {VirtualClock} from './virtual-clock.ts'

export type LeaseFault = 'none' | 'unavailable' | 'answer_lost'

export class FakeLease implements Pick<LeaderStore, 'acquireLease' | 'renewLease' | 'resignLease'> {
  readonly calls: string[] = []
  /** How long the call waits before it is carried out, and again before it answers. */
  delayMs: () => number = () => 0
  fault: (call: string) => LeaseFault = () => 'none'
  #term = 0
  #holder: string | null = null
  #expiresAt = 0
  readonly #clock: VirtualClock

  constructor(clock: VirtualClock) {
    this.#clock = clock
  }

  /** Who holds the lease now; `null` when nobody does. */
  get holder(): string | null {
    return this.#expiresAt > this.#clock.monotonicMs() ? this.#holder : null
  }

  get term(): number {
    return this.#term
  }

  /** Another takes over, as after an expiry this holder has not noticed. */
  takeOver(holder: string, ttlMs: number): void {
    this.#term += 1
    this.#holder = holder
    this.#expiresAt = this.#clock.monotonicMs() + ttlMs
  }

  acquireLease(request: {holder: string; ttlMs: number}): Promise<Lease | null> {
    return this.#call('acquire', () => {
      if (this.holder !== null && this.holder !== request.holder) return null
      this.takeOver(request.holder, request.ttlMs)
      return {term: this.#term, expiresAt: this.#expiresAt}
    })
  }

  renewLease(request: {term: number; holder: string; ttlMs: number}): Promise<boolean> {
    return this.#call('renew', () => {
      if (request.term !== this.#term || this.holder !== request.holder) return false
      this.#expiresAt = this.#clock.monotonicMs() + request.ttlMs
      return true
    })
  }

  resignLease(request: {term: number; holder: string}): Promise<void> {
    return this.#call('resign', () => {
      if (request.term === this.#term && this.#holder === request.holder) this.#holder = null
    })
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
