/** Readiness of this server: the store answers and, on the leader, launch passes are recent. */
import {messageOf} from '../lib/error.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import type {ReadyState} from './options.ts'

/** Age of the newest launch pass above which the leader is not ready: twice the poll interval. */
const PASS_AGE_MAX_MS = 2_000
/** How long readiness shows that jobs are behind. */
const BEHIND_SHOWN_MS = 60_000
/** Lifetime of a cached result: probes cost at most one write a second. */
const FRESH_MS = 1_000

export class Readiness {
  readonly #clock: Clock
  /** Monotonic instant of the newest launch pass. */
  #passedAt: number
  /** Monotonic instant of the newest decision that skipped a time because its job is behind. */
  #behindAt = -Infinity
  #cached: {result: Promise<ReadyState>; at: number} | null = null
  #wasOk = true
  readonly #onChange: (state: ReadyState) => void

  /** `onChange` is called when a check finds the server no longer ready, or ready again. */
  constructor(clock: Clock, events: Events, onChange: (state: ReadyState) => void) {
    this.#clock = clock
    this.#onChange = onChange
    this.#passedAt = clock.monotonicMs()
    events.listen(({name, data}) => {
      if ('reason' in data && data.reason === 'behind') this.#behindAt = clock.monotonicMs()
      // A new leader has made no pass yet: its term counts from the beginning.
      if (name === 'launch_pass_done' || name === 'term_began') this.#passedAt = clock.monotonicMs()
    })
  }

  /** Never rejects. */
  check(store: Pick<Store, 'probe'>, isLeader: boolean): Promise<ReadyState> {
    const now = this.#clock.monotonicMs()
    if (this.#cached === null || now - this.#cached.at >= FRESH_MS)
      this.#cached = {result: this.#probe(store, isLeader), at: now}
    return this.#cached.result
  }

  async #probe(store: Pick<Store, 'probe'>, isLeader: boolean): Promise<ReadyState> {
    const checks: Record<string, string> = {store: 'ok'}
    // Messages of the store name databases, addresses and files.
    let cause = ''
    try {
      await store.probe()
    } catch (error) {
      checks['store'] = 'not readable and writable'
      cause = `: ${messageOf(error)}`
    }
    if (isLeader) {
      const ageMs = this.#clock.monotonicMs() - this.#passedAt
      checks['launch'] = ageMs <= PASS_AGE_MAX_MS ? 'ok' : `no pass for ${Math.round(ageMs)} ms`
    }
    const ok = Object.values(checks).every((check) => check === 'ok')
    // A server that is behind stays ready: sending requests to another one would start nothing more.
    const isBehind = this.#clock.monotonicMs() - this.#behindAt < BEHIND_SHOWN_MS
    if (isBehind) checks['queue'] = 'jobs are behind: planned times are skipped'
    const state = {ok, checks, details: {...checks, store: `${checks['store']}${cause}`}}
    if (ok !== this.#wasOk) this.#onChange(state)
    this.#wasOk = ok
    return state
  }
}
