/**
 * Budget of the work that agents ask of a server, in claims and other items of requests. Requests beyond it
 * wait, and so keep the connection from being read. Heartbeats have a pace of their own and never wait here:
 * an agent that asks for much delays itself, and no heartbeat or result of another agent.
 */
import type {Limits} from '../../config/limits.ts'
import {pause} from '../../lib/pause.ts'
import type {Clock} from '../../ports/runtime.ts'

/**
 * Items per second: `agentItemsPerSecond` that one agent may ask to verify, and as many of all others;
 * `verifiedPerSecond` that all agents of this server may ask to verify.
 */
export type BudgetLimits = Pick<Limits, 'agentItemsPerSecond' | 'verifiedPerSecond'>

/** An agent that did not use its budget for this long may use that at once, as at its start. */
const BURST_MS = 2_000
/** Burst of all agents together: the server is busy with it for some tens of milliseconds. */
const SHARED_BURST_MS = 200
/** Bounds the memory. The holder that was seen first is dropped first. */
const HOLDERS_MAX = 10_000

/** Monotonic; earlier requests have used the budget up to here. */
interface Pace {
  until: number
  readonly burstMs: number
  /** Ends when the last request before has its turn. */
  turn: Promise<void>
}

export class AgentBudget {
  readonly #clock: Clock
  readonly #limits: BudgetLimits
  readonly #paces = new Map<string, Pace>()
  readonly #shared: Pace = {until: -Infinity, burstMs: SHARED_BURST_MS, turn: Promise.resolve()}

  constructor(clock: Clock, limits: BudgetLimits) {
    this.#clock = clock
    this.#limits = limits
  }

  /** Resolves when the holder may have so many results or claims handled. */
  async take(holder: string, items: number): Promise<void> {
    await this.#wait(this.#paceOf(`work ${holder}`), items, this.#limits.agentItemsPerSecond)
  }

  /**
   * Resolves when the holder may have so many claims verified, or its connection is closed. Only one request
   * of a holder at a time waits for the budget of all, so that the holders take turns.
   */
  async takeVerify(holder: string, items: number, isClosed: () => boolean): Promise<void> {
    const {agentItemsPerSecond, verifiedPerSecond} = this.#limits
    const own = this.#paceOf(`verify ${holder}`)
    own.turn = own.turn.then(async () => {
      if (!isClosed()) await this.#wait(own, items, agentItemsPerSecond)
      if (!isClosed()) await this.#wait(this.#shared, items, verifiedPerSecond)
    })
    await own.turn
  }

  async #wait(pace: Pace, items: number, perSecond: number): Promise<void> {
    const now = this.#clock.monotonicMs()
    const waitMs = Math.max(pace.until, now - pace.burstMs) + (items * 1000) / perSecond - now
    pace.until = now + waitMs
    if (waitMs > 0) await pause(this.#clock, waitMs)
  }

  #paceOf(holder: string): Pace {
    const known = this.#paces.get(holder)
    if (known !== undefined) return known
    const [oldest] = this.#paces.keys()
    if (this.#paces.size >= HOLDERS_MAX && oldest !== undefined) this.#paces.delete(oldest)
    const pace = {until: -Infinity, burstMs: BURST_MS, turn: Promise.resolve()}
    this.#paces.set(holder, pace)
    return pace
  }
}
