/**
 * Reassignment, leader only. A pending execution that its node does not claim moves to another node. An
 * execution that no node may run any more ends as `lost`.
 *
 * Crash points: the moves are one transaction and the ends another; the next pass decides again about the
 * executions that are left.
 */
import {decideReassignment, type StuckExecution} from '../core/reassign.ts'
import type {DefaultTarget} from '../core/target.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {announceFinished} from '../node/finisher.ts'
import type {LeaderStore, StuckPosition} from '../ports/leader-store.ts'
import type {Random, Wakeup} from '../ports/runtime.ts'
import {leaderLoop, type TermOptions} from './leader-loop.ts'

export interface ReassignerOptions extends TermOptions {
  readonly store: Pick<LeaderStore, 'candidates' | 'loadStuck' | 'applyReassignments' | 'endStuck'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly defaultTarget: DefaultTarget
  /** A pending execution unclaimed for this long gets a new node. */
  readonly unclaimedMs: number
  /** Wait for a node that is gone, if no other node may run its executions. */
  readonly targetWaitMs: number
  readonly intervalMs: number
}

/** Executions loaded, moved or ended in one transaction. */
const BATCH_MAX = 256

export class Reassigner implements Service {
  readonly #options: ReassignerOptions
  readonly #loop: Loop
  /** Position of the next batch; `null` = a new round. */
  #after: StuckPosition | null = null
  /**
   * Store time of the first pass of this term. Waits for a node that is gone begin no earlier: after an
   * outage of the whole cluster, each node gets the full wait to come back.
   */
  #lookedSince: number | null = null

  constructor(options: ReassignerOptions) {
    this.#options = options
    this.#loop = leaderLoop('reassign', options, {step: () => this.#reassign()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  async #reassign(): Promise<number> {
    const {store, unclaimedMs, intervalMs} = this.#options
    const request = {unclaimedMs, after: this.#after, limit: BATCH_MAX}
    const {now, executions: stuck, next} = await store.loadStuck(request)
    this.#lookedSince ??= now
    this.#after = next
    if (stuck.length > 0) await this.#decide(stuck, now, this.#lookedSince)
    return intervalMs
  }

  async #decide(stuck: readonly StuckExecution[], now: number, lookedSince: number): Promise<void> {
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
    const decided = stuck.map((execution) => ({
      ...execution,
      decision: decideReassignment(execution, context),
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
      announceFinished(await store.endStuck({term, executions: ends}), {events, wakeup})
  }
}
