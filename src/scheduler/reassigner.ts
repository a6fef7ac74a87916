/**
 * The stray step, the leader's: pending work that its node does not take goes to another node, and what no
 * node may take any more ends as `lost`. Lives as long as a term.
 *
 * Crash points: moves and ends are a transaction each; the next look decides anew about what is left.
 */
import {decideReassignment, type StuckExecution} from '../core/reassign.ts'
import type {DefaultTarget} from '../core/target.ts'
import {Loop, type Service} from '../lib/loop.ts'
import {announceFinished} from '../node/finisher.ts'
import type {Events} from '../ports/events.ts'
import type {LeaderStore, StuckPosition} from '../ports/leader-store.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import {TermOver} from '../ports/store-errors.ts'

export interface ReassignerOptions {
  readonly store: Pick<LeaderStore, 'candidates' | 'loadStuck' | 'applyReassignments' | 'endStuck'>
  readonly term: number
  readonly over: () => void
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  readonly defaultTarget: DefaultTarget
  /** A pending execution not claimed for this long is chosen again. */
  readonly unclaimedMs: number
  /** A node that is gone is waited for this long, where no other may have its work. */
  readonly targetWaitMs: number
  readonly lookEveryMs: number
}

/** Executions looked at, moved or ended in one transaction. */
const BATCH_MAX = 256

export class Reassigner implements Service {
  readonly #options: ReassignerOptions
  readonly #loop: Loop
  /** Where the round over the strays goes on. */
  #after: StuckPosition | null = null
  /**
   * The store's clock at the first look. While nobody looked nobody could come back either: a cluster that
   * was off as a whole waits for each of its nodes anew.
   */
  #lookedSince: number | null = null

  constructor(options: ReassignerOptions) {
    this.#options = options
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#look(),
      failed: (error) => {
        if (error instanceof TermOver) options.over()
        options.events.emit('step_failed', {step: 'reassign', message: String(error)})
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
    const {store, unclaimedMs, lookEveryMs} = this.#options
    const request = {unclaimedMs, after: this.#after, limit: BATCH_MAX}
    const {now, strays, next} = await store.loadStuck(request)
    this.#lookedSince ??= now
    this.#after = next
    if (strays.length > 0) await this.#decide(strays, now, this.#lookedSince)
    return lookEveryMs
  }

  async #decide(
    strays: readonly StuckExecution[],
    now: number,
    lookedSince: number,
  ): Promise<void> {
    const {store, term, random, wakeup, events, defaultTarget, targetWaitMs} = this.#options
    const context = {
      now,
      lookedSince,
      defaultTarget,
      targetWaitMs,
      candidates: await store.candidates(),
      loads: new Map<string, number>(),
      random: () => random.fraction(),
    }
    const decided = strays.map((stray) => ({
      ...stray,
      decision: decideReassignment(stray, context),
    }))
    const moves = decided.flatMap(({execution: key, decision}) => {
      return decision.kind === 'move' ? [{key, to: decision.to}] : []
    })
    if (moves.length > 0) {
      await store.applyReassignments({term, moves})
      wakeup.notify('run')
    }
    const ends = decided.flatMap(({execution: key, nodeId, decision}) => {
      return decision.kind === 'end' ? [{key, nodeId}] : []
    })
    if (ends.length > 0)
      announceFinished(await store.endStuck({term, strays: ends}), {events, wakeup})
  }
}
