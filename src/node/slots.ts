/**
 * The slots of a node, and the executions it has claimed: those that run, and those claimed ahead, which wait
 * for the next free slot. A claim is a commit, so without claims ahead each slot would be empty for as long
 * as a commit takes.
 *
 * A node claims ahead only what its slots will start while the next claim is under way: by the rate at which
 * slots became free lately, and the duration of the last claim. Where nothing ends, nothing is claimed ahead,
 * and other nodes get the work.
 */
import {claimId, type ExecutionClaim} from '../core/execution.ts'
import type {ExecutionRun} from './execution-run.ts'

/** A claim may take twice as long as the last one. */
const AHEAD_FACTOR = 2

/** The rate at which slots become free is measured over this interval and the one before. */
const RATE_INTERVAL_MS = 250

export class Slots {
  readonly #count: number
  /** Both by claim: a late answer about one claim must not touch the next claim of the execution. */
  readonly #running = new Map<string, ExecutionRun>()
  /** Oldest first. Not empty only while every slot is occupied, the node drains, or a release is in doubt. */
  readonly #ahead = new Map<string, ExecutionRun>()
  #aheadMax = 0
  /** Slots that became free in this interval, which began at `#intervalAt`, and in the one before. */
  #freedCount = 0
  #freedBefore = 0
  #intervalAt = -Infinity

  constructor(count: number) {
    this.#count = count
  }

  get runningCount(): number {
    return this.#running.size
  }

  get freeCount(): number {
    return Math.max(0, this.#count - this.#running.size)
  }

  /** How many executions to claim ahead, besides one for each free slot. */
  get aheadCount(): number {
    return Math.max(0, this.#aheadMax - this.#ahead.size)
  }

  /** True if claimed executions wait for a slot. */
  get hasAhead(): boolean {
    return this.#ahead.size > 0
  }

  get isEmpty(): boolean {
    return this.#running.size === 0 && this.#ahead.size === 0
  }

  /** All claimed executions. */
  get runs(): ExecutionRun[] {
    return [...this.#running.values(), ...this.#ahead.values()]
  }

  get(claim: ExecutionClaim): ExecutionRun | undefined {
    const id = claimId(claim)
    return this.#running.get(id) ?? this.#ahead.get(id)
  }

  /** A claim has its reply at `now`, after `tookMs`. */
  claimed(now: number, tookMs: number): void {
    this.#beginInterval(now)
    const intervalMs = RATE_INTERVAL_MS + now - this.#intervalAt
    const freedPerMs = (this.#freedBefore + this.#freedCount) / intervalMs
    this.#aheadMax = Math.min(this.#count, Math.round(AHEAD_FACTOR * freedPerMs * tookMs))
  }

  #beginInterval(now: number): void {
    const ageMs = now - this.#intervalAt
    if (ageMs < RATE_INTERVAL_MS) return
    this.#freedBefore = ageMs < 2 * RATE_INTERVAL_MS ? this.#freedCount : 0
    this.#freedCount = 0
    this.#intervalAt = now
  }

  /** Adds claimed executions behind those that wait for a slot. */
  add(runs: readonly ExecutionRun[]): void {
    for (const run of runs) this.#ahead.set(claimId(run.claim), run)
  }

  /** Moves executions into free slots and returns them, without those whose release is in doubt. */
  occupyFree(): ExecutionRun[] {
    const started: ExecutionRun[] = []
    if (this.freeCount === 0) return started
    for (const run of this.#ahead.values()) {
      if (run.isDoubtful) continue
      this.#occupy(run)
      started.push(run)
      if (this.freeCount === 0) break
    }
    return started
  }

  /** Moves and returns those stopped before their start: they only have to end, and need no free slot. */
  occupyStopped(): ExecutionRun[] {
    const stopped = [...this.#ahead.values()].filter((run) => run.isStopping)
    for (const run of stopped) this.#occupy(run)
    return stopped
  }

  #occupy(run: ExecutionRun): void {
    const id = claimId(run.claim)
    this.#ahead.delete(id)
    this.#running.set(id, run)
  }

  /** Frees the slot at `now`. Idempotent. */
  ended(run: ExecutionRun, now: number): void {
    if (!this.#running.delete(claimId(run.claim))) return
    this.#beginInterval(now)
    this.#freedCount += 1
  }

  /**
   * Removes and returns the executions claimed until `claimedAt` that wait for a slot, and those whose
   * release is in doubt. If there are any, slots turn over too slowly for claims ahead.
   */
  takeAhead(claimedAt: number): ExecutionRun[] {
    const taken: ExecutionRun[] = []
    for (const [id, run] of this.#ahead) {
      if (run.claimedAt > claimedAt && !run.isDoubtful) continue
      this.#ahead.delete(id)
      taken.push(run)
    }
    if (taken.length > 0) this.#aheadMax = 0
    return taken
  }
}
