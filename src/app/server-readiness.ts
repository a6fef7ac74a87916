/** Whether this server can do its work now: the store answers, and on the leader the launch loop turns. */
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {Store} from '../ports/store.ts'

/** The launch loop polls every second; twice that and it does not turn. */
const PASS_AGE_MAX_MS = 2_000
/** An answer younger than this is given again, so that probes cost one write a second at the most. */
const FRESH_MS = 1_000

interface Answer {
  readonly ok: boolean
  readonly checks: Readonly<Record<string, string>>
}

export class Readiness {
  readonly #clock: Clock
  #passedAt: number
  #known: {answer: Promise<Answer>; at: number} | null = null

  constructor(clock: Clock, events: Events) {
    this.#clock = clock
    this.#passedAt = clock.monotonicMs()
    events.listen(({name}) => {
      // A term begins with its first pass; until then its own age counts.
      if (name === 'launch_pass_done' || name === 'term_began') this.#passedAt = clock.monotonicMs()
    })
  }

  /** Never rejects. */
  check(store: Pick<Store, 'probe'>, leads: boolean): Promise<Answer> {
    const now = this.#clock.monotonicMs()
    if (this.#known === null || now - this.#known.at >= FRESH_MS) {
      this.#known = {answer: this.#probe(store, leads), at: now}
    }
    return this.#known.answer
  }

  async #probe(store: Pick<Store, 'probe'>, leads: boolean): Promise<Answer> {
    const checks: Record<string, string> = {store: 'ok'}
    try {
      await store.probe()
    } catch (error) {
      checks['store'] =
        `not readable and writable: ${error instanceof Error ? error.message : String(error)}`
    }
    if (leads) {
      const ageMs = this.#clock.monotonicMs() - this.#passedAt
      checks['launch'] = ageMs <= PASS_AGE_MAX_MS ? 'ok' : `no pass for ${Math.round(ageMs)} ms`
    }
    return {ok: Object.values(checks).every((check) => check === 'ok'), checks}
  }
}
