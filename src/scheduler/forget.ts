/**
 * The forget step, the leader's: members that left or failed long ago are no longer listed. One that still
 * has something to run stays until the rescue step has dealt with that; one that is back after all joins
 * again.
 */
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {MemberStore} from '../ports/node-store.ts'
import {TermOver} from '../ports/store-errors.ts'
import {Loop} from '../lib/loop.ts'
import type {Service} from '../lib/service.ts'

export interface ForgetOptions {
  readonly store: Pick<MemberStore, 'forgetMembers'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly events: Events
  readonly leftAfterMs: number
  readonly failedAfterMs: number
  readonly lookEveryMs: number
}

/** Members forgotten in one transaction: short, also where thousands of agents come and go. */
const BATCH_MAX = 100

export class ForgetService implements Service {
  readonly #options: ForgetOptions
  readonly #loop: Loop

  constructor(options: ForgetOptions) {
    this.#options = options
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#look(),
      failed: (error) => {
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'forget', message: String(error)})
      },
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #look(): Promise<number> {
    const {store, term, events, leftAfterMs, failedAfterMs, lookEveryMs} = this.#options
    const request = {term, leftAfterMs, failedAfterMs, limit: BATCH_MAX}
    const forgotten = await store.forgetMembers(request)
    for (const {name} of forgotten) events.emit('member_changed', {node: name, status: 'forgotten'})
    return forgotten.length === BATCH_MAX ? 0 : lookEveryMs
  }
}
