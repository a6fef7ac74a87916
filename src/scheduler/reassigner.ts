/**
 * Reassignment, leader only. A pending execution that its node does not claim moves to another node. An
 * execution that no node may run any more ends as `lost`.
 *
 * Crash points: the moves are one transaction and the ends another; the next pass decides again about the
 * executions that are left.
 */
import type {Limits} from '../config/limits.ts'
import type {ClockGuard} from '../core/clock-guard.ts'
import {decideReassignment, type StuckExecution} from '../core/reassign.ts'
import {splitCordoned} from '../core/node.ts'
import type {DefaultTarget} from '../core/target.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {Bursts} from '../node/bursts.ts'
import {announceFinished} from '../node/finisher.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {LeaderStore} from '../ports/leader-store.ts'
import type {Position} from '../ports/page.ts'
import type {Random, Wakeup} from '../ports/runtime.ts'
import {type FaultSubject, JobFaults} from './job-faults.ts'
import type {TermOptions} from './leadership.ts'

export interface ReassignerOptions extends TermOptions {
  /** Shared by all terms of this process. */
  readonly clockGuard: ClockGuard
  readonly store: Pick<LeaderStore, 'candidates' | 'loadStuck' | 'applyReassignments' | 'endStuck'>
  readonly random: Random
  readonly wakeup: Wakeup
  readonly defaultTarget: DefaultTarget
  /** Wait for a node that is gone, if no other node may run its executions. */
  readonly targetWaitMs: number
  /** `claimRepickMs`: a pending execution unclaimed for this long gets a new node. */
  readonly limits: Pick<Limits, 'claimRepickMs' | 'failureDetectorIntervalMs'>
}

/** Executions moved or ended in one transaction. */
const BATCH_MAX = 256

/**
 * A page of all executions is followed by a pause of this many times its length. During a burst nearly all
 * that is pending has waited for long: reading it takes at most a fifth of the time.
 */
const PAUSE_FACTOR = 4
/** The pause while the leader is behind with planned times: all nodes are busy then. */
const BURST_PAUSE_MS = 1_000

/** A scan of the stuck executions, page by page. */
interface Round {
  readonly of: 'gone_nodes' | 'all'
  /** Position of the next page; `null` = its first. */
  after: Position | null
  /** Monotonic instant of the next page. */
  dueAt: number
}

export class Reassigner implements Service {
  readonly #options: ReassignerOptions
  readonly #loop: Loop
  readonly #faults: JobFaults
  readonly #bursts: Bursts
  /** Executions of gone and cordoned nodes first: they run nowhere. */
  readonly #gone: Round = {of: 'gone_nodes', after: null, dueAt: -Infinity}
  /** Second round: executions that their node does not claim. */
  readonly #all: Round = {of: 'all', after: null, dueAt: -Infinity}
  /**
   * Store time of the first pass of this term. Waits for a node that is gone begin no earlier: after an
   * outage of the whole cluster, each node gets the full wait to come back.
   */
  #lookedSince: number | null = null

  constructor(options: ReassignerOptions) {
    this.#options = options
    this.#faults = new JobFaults(options)
    this.#bursts = new Bursts(options)
    this.#loop = stepLoop('reassign', {...options, step: () => this.#reassign()})
  }

  start(): void {
    this.#bursts.start()
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#bursts.stop()
    await this.#loop.stop()
  }

  /** Reassigns a page of the round that is due. */
  async #reassign(): Promise<number> {
    const {clock, limits} = this.#options
    const beganAt = clock.monotonicMs()
    const round = [this.#gone, this.#all].find(({dueAt}) => beganAt >= dueAt)
    if (round !== undefined) {
      await this.#decidePage(round)
      const endedAt = clock.monotonicMs()
      const tookMs = endedAt - beganAt
      const intervalMs = limits.failureDetectorIntervalMs
      const burstMs = this.#bursts.leftMs > 0 ? BURST_PAUSE_MS : 0
      const pauseMs = round.of === 'all' ? Math.max(PAUSE_FACTOR * tookMs, burstMs) : 0
      round.dueAt = endedAt + (round.after === null ? Math.max(intervalMs, pauseMs) : pauseMs)
    }
    return Math.max(0, Math.min(this.#gone.dueAt, this.#all.dueAt) - clock.monotonicMs())
  }

  async #decidePage(round: Round): Promise<void> {
    const {store, clock, clockGuard, limits} = this.#options
    const {candidates} = splitCordoned(await store.candidates())
    // If no node has a free slot, skip the scan: under load many launches wait.
    const canMove = candidates.some(({load, slots}) => load < slots)
    const page = {canMove, after: round.after, limit: BATCH_MAX, of: round.of}
    const loaded = await store.loadStuck({...page, unclaimedMs: limits.claimRepickMs})
    const now = clockGuard.trustedNow(loaded.now, clock.monotonicMs())
    this.#lookedSince ??= now
    if (loaded.executions.length > 0) await this.#decide(loaded.executions, now, this.#lookedSince)
    round.after = loaded.next
  }

  async #decide(stuck: readonly StuckExecution[], now: number, lookedSince: number): Promise<void> {
    const {store, term, random, wakeup, events, defaultTarget, targetWaitMs} = this.#options
    const context = {
      now,
      lookedSince,
      defaultTarget,
      targetWaitMs,
      candidates: splitCordoned(await store.candidates()).candidates,
      loads: new Map<string, number>(),
      random: () => random.fraction(),
    }
    const decided = this.#faults.decideEach(stuck, isolated, (execution) => ({
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

function isolated({job, execution: {group}}: StuckExecution): FaultSubject {
  return {jobId: job.id, job: job.spec.name, revision: job.revision, group}
}
