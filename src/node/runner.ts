/**
 * Run step of a node: claims its pending executions as slots allow, starts their executors, and stores each
 * result. No process starts without a durable claim.
 *
 * Crash points: after the claim the execution is `running` in the store. If its start was not recorded, the
 * node's next incarnation releases the claim. If it was recorded, and until its finish, that incarnation ends
 * it as `lost`. So does the leader, which has no record of starts.
 */
import type {Limits} from '../config/limits.ts'
import {claimId, type ExecutionClaim, executionId} from '../core/execution.ts'
import {BatchQueue} from '../lib/batch-queue.ts'
import type {Loop, Service} from '../lib/loop.ts'
import type {Step} from '../core/steps.ts'
import {pause} from '../lib/pause.ts'
import type {Events} from '../ports/events.ts'
import type {NodeStore, OutputAppend} from '../ports/node-store.ts'
import type {Clock, Random, Timer, Wakeup} from '../ports/runtime.ts'
import {ClaimPace, type ClaimPaceOptions} from './claim-pace.ts'
import {commitBatch, type CommitLimits} from './finisher.ts'
import {ExecutionRun, type ExecutionRunOptions} from './execution-run.ts'
import {Slots} from './slots.ts'
import {stepLoop} from './step-loop.ts'
import type {ClaimUpkeep, HeldClaims} from './stored-claims.ts'

export interface RunnerOptions
  extends Omit<ExecutionRunOptions, 'appends'>, ClaimPaceOptions, ClaimUpkeep {
  readonly store: Pick<NodeStore, 'claim' | 'verifyClaims' | 'cancelled' | 'appendOutput'>
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  readonly nodeId: string
  readonly incarnation: string
  /** Executions running at once. */
  readonly slots: number
  /** Claims revoked since the last call, as found elsewhere. */
  readonly revoked?: () => readonly ExecutionClaim[]
  readonly limits: RunnerLimits
  /** Absent = no other node can run this node's executions while it is disconnected from the store. */
  readonly disconnection?: Disconnection
}

/**
 * `claimAheadMs`: an execution that waits for a slot longer than this is released. `drainTimeoutMs`: longest
 * wait of a drain for a store that does not take the results, or for a command that does not end. The next
 * incarnation then ends these executions. `forceStopTimeoutMs`: the same for a forced stop, and for a drain
 * that cannot reach the store. `disconnectedMs`: then executions end if their job is `on_disconnect: stop`.
 */
export type RunnerLimits = CommitLimits &
  ExecutionRunOptions['limits'] &
  ClaimPaceOptions['limits'] &
  Pick<
    Limits,
    | 'claimAheadMs'
    | 'claimFreshMs'
    | 'pollMs'
    | 'drainTimeoutMs'
    | 'forceStopTimeoutMs'
    | 'disconnectedMs'
  >

/** Connection of this node to the cluster. */
export interface Disconnection {
  /** Time since the newest acknowledged heartbeat. */
  readonly forMs: () => number
  /**
   * True if a node that stops need not wait for the store: it is unreachable now, and the results are on disk
   * for the next incarnation.
   */
  readonly mayLeave: () => boolean
}

/** Check interval while disconnected or draining. */
const DISCONNECTION_CHECK_MS = 500

/** A check of the disconnection that is later than this follows a pause of the process. */
const PAUSE_MIN_MS = 1_000
/**
 * Time for a heartbeat after a pause, on an agent for a new connection too. Work still ends before it is
 * lost.
 */
const AFTER_PAUSE_MS = 2_000

/** Results the store has not taken yet, above which nothing is claimed: bounds memory during an outage. */
export const FINISHING_PER_SLOT_MAX = 4

export class Runner implements Service {
  readonly #options: RunnerOptions & ExecutionRunOptions
  readonly #claims: Loop
  readonly #cancels: Loop
  readonly #releases: Loop
  readonly #disconnections: Loop | null
  readonly #slots: Slots
  readonly #pace: ClaimPace
  readonly #releasing = new Set<ExecutionRun>()
  /** Executions that have ended and whose result the store does not have yet. */
  readonly #finishing = new Set<ExecutionRun>()
  #subscriptions: (() => void)[] = []
  #isDraining = false
  /** Set when the grace period is over: executions of a claim in flight are not started either. */
  #stopSignal: 'term' | 'kill' | null = null
  #idleCallbacks: (() => void)[] = []
  /** While draining: when the drain times out. */
  #drainDeadline: {readonly timer: Timer; readonly dueAt: number} | null = null
  readonly #drainTimedOut = Promise.withResolvers<void>()
  /** Kept after a failed claim: a repeated claim with it returns what the first one claimed. */
  #token: string | null = null
  /** The last reply to a claim said so: nothing is started. */
  #isCordoned = false
  /** The disconnection has lasted for longer than its limit. */
  #isCutOff = false

  constructor(options: RunnerOptions) {
    const {clock, events, store, limits, disconnection, slots} = options
    const appends = new BatchQueue<OutputAppend, boolean>({
      clock,
      ...commitBatch(limits),
      flush: (items) => store.appendOutput(items),
    })
    this.#options = {...options, appends}
    this.#slots = new Slots(slots)
    this.#pace = new ClaimPace(options)
    const loop = (name: Step, step: () => Promise<number>) => stepLoop(name, {clock, events, step})
    this.#claims = loop('claim', () => this.#claim())
    this.#cancels = loop('cancel', () => this.#cancel())
    this.#releases = loop('release', () => this.#release())
    this.#disconnections =
      disconnection === undefined
        ? null
        : loop('disconnected', () => this.#checkDisconnection(disconnection))
  }

  start(): void {
    const {wakeup} = this.#options
    this.#subscriptions = [
      wakeup.subscribe('run', () => this.#claims.wake()),
      wakeup.subscribe('cancel', () => this.#cancels.wake()),
      () => this.#pace.stop(),
    ]
    this.#pace.start()
    this.#claims.start()
    this.#cancels.start()
    this.#releases.start()
    this.#disconnections?.start()
  }

  /** Executions running now. */
  get runningCount(): number {
    return this.#slots.runningCount
  }

  /**
   * Graceful shutdown: claims nothing more, releases what was claimed ahead, and lets executions finish for
   * `graceMs` (may be `Infinity`). The rest is stopped and becomes `lost` with reason `node_stopped`.
   * Resolves when nothing runs and the store has every result, or at the timeout.
   */
  async drain(graceMs: number): Promise<void> {
    this.#isDraining = true
    for (const unsubscribe of this.#subscriptions) unsubscribe()
    this.#disconnections?.wake()
    // The grace period begins now, even while a claim is in flight at a slow store.
    const {clock} = this.#options
    const graceTimer =
      Number.isFinite(graceMs) && graceMs > 0
        ? clock.after(graceMs, () => this.#stopAll('term'))
        : null
    if (graceMs <= 0) this.#stopAll('kill')
    this.#updateDrainDeadline()
    await Promise.race([this.#drained(), this.#drainTimedOut.promise])
    graceTimer?.cancel()
    this.#drainDeadline?.timer.cancel()
    // These stop without a wait: a call may be in flight at an unavailable store.
    void this.#cancels.stop()
    void this.#releases.stop()
    await this.#disconnections?.stop()
  }

  /** Force stop: kills all executions. A drain in progress then ends after a shorter timeout. */
  killAll(): void {
    this.#stopAll('kill')
    if (this.#isDraining) this.#drainWithin(this.#options.limits.forceStopTimeoutMs)
  }

  async stop(): Promise<void> {
    await this.drain(0)
  }

  async #claim(): Promise<number> {
    const {store, clock, random, nodeId, incarnation} = this.#options
    const {pollMs} = this.#options.limits
    const room = this.#pace.countOf(this.#room())
    const pauseMs = this.#pace.pauseMs(this.#room())
    if (pauseMs > 0) return pauseMs
    // A claim without a reply is repeated even without room: nothing else knows what it took. While claims
    // wait for a slot, a reply without executions says whether the node is cordoned and must release them.
    if (room <= 0 && this.#token === null && !this.#slots.hasAhead) return pollMs
    const sentAt = clock.monotonicMs()
    this.#pace.sent()
    this.#token ??= random.id()
    const token = this.#token
    const [result] = await store.claim([{nodeId, incarnation, token, room: Math.max(0, room)}])
    const repliedAt = clock.monotonicMs()
    this.#slots.claimed(repliedAt, repliedAt - sentAt)
    this.#token = null
    const {claimed, secrets} = result!
    const runs = claimed.map((each) => new ExecutionRun(each, sentAt, this.#options, secrets))
    if (this.#stopSignal !== null) for (const run of runs) run.stop(this.#stopSignal)
    this.#isCordoned = result!.isCordoned
    this.#slots.add(runs)
    this.#fillSlots()
    if (this.#isCordoned) this.#releases.wake()
    const isMoreDue = result!.waiting > 0
    this.#pace.replied(isMoreDue)
    // Claims at once, or after a pause.
    if (isMoreDue) return 0
    return Math.min(pollMs, result!.nextDueInMs ?? Infinity)
  }

  /** Executions to claim now; 0 while too many results wait for the store. */
  #room(): number {
    const {slots} = this.#options
    if (this.#finishing.size > slots * FINISHING_PER_SLOT_MAX) return 0
    return this.#slots.freeCount + (this.#canRelease ? this.#slots.aheadCount : 0)
  }

  get #canRelease(): boolean {
    return this.#options.release !== undefined
  }

  /** Call when executions were claimed or stopped. */
  #fillSlots(): void {
    for (const run of this.#slots.occupyStopped()) void this.#runToFinish(run)
    this.#fillFreeSlots()
  }

  /** A node that stops or is cordoned releases what it has not started, if it can. */
  get #releasesAll(): boolean {
    return this.#isDraining || this.#isCordoned
  }

  #fillFreeSlots(): void {
    if (this.#releasesAll && this.#canRelease) return
    for (const run of this.#slots.occupyFree()) void this.#runToFinish(run)
  }

  async #runToFinish(run: ExecutionRun): Promise<void> {
    if (this.#isFresh(run) || (await this.#verify(run))) {
      await run.run()
      this.#finishing.add(run)
      this.#slotFreed(run)
      await run.finish()
      this.#finishing.delete(run)
    }
    this.#slotFreed(run)
    this.#resolveIfIdle()
  }

  #isFresh(run: ExecutionRun): boolean {
    const {clock, limits} = this.#options
    return !run.isDoubtful && clock.monotonicMs() - run.claimedAt <= limits.claimFreshMs
  }

  #slotFreed(run: ExecutionRun): void {
    const now = this.#options.clock.monotonicMs()
    this.#slots.ended(run, now)
    this.#fillFreeSlots()
    this.#updateDrainDeadline()
    // During a pause the loop wakes at its end.
    if (!this.#isDraining && this.#pace.pauseMs(this.#room()) === 0) this.#claims.wake()
  }

  #resolveIfIdle(): void {
    if (this.#isIdle) for (const resolve of this.#idleCallbacks.splice(0)) resolve()
  }

  /**
   * Releases what has waited too long for a slot, so that another node can run it; while the node stops or is
   * cordoned, everything that waits.
   */
  async #release(): Promise<number> {
    const {clock, release, limits} = this.#options
    if (release === undefined) return Infinity
    const now = clock.monotonicMs()
    const runs = this.#slots.takeAhead(this.#releasesAll ? now : now - limits.claimAheadMs)
    if (runs.length === 0) return limits.claimAheadMs
    for (const run of runs) this.#releasing.add(run)
    try {
      const released = await release(runs.map(({claim}) => claim))
      const ids = new Set(released.map(claimId))
      const kept = runs.filter(({claim}) => !ids.has(claimId(claim)))
      for (const run of kept) run.cancel()
      this.#putBack(kept)
    } catch (error) {
      this.#putBack(runs)
      throw error
    } finally {
      for (const run of runs) this.#releasing.delete(run)
      this.#fillSlots()
      this.#resolveIfIdle()
    }
    return 0
  }

  /** A release failed, or did not release these: their claims may or may not exist. */
  #putBack(runs: readonly ExecutionRun[]): void {
    for (const run of runs) run.isDoubtful = true
    this.#slots.add(runs)
  }

  /** Returns whether the claim is active. Waits while the store cannot give a fresh answer. */
  async #verify(run: ExecutionRun): Promise<boolean> {
    const {store, clock, events, limits} = this.#options
    for (;;) {
      try {
        const sentAt = clock.monotonicMs()
        const [status] = await store.verifyClaims([run.claim])
        if (status !== 'active') return false
        if (clock.monotonicMs() - sentAt <= limits.claimFreshMs) return true
      } catch (error) {
        events.emit('step_failed', {step: 'verify', message: String(error)})
        await pause(clock, limits.pollMs)
      }
    }
  }

  async #cancel(): Promise<number> {
    const {store, nodeId, limits, revoked} = this.#options
    for (const claim of revoked?.() ?? []) this.#slots.get(claim)?.revoke()
    if (!this.#slots.isEmpty) {
      const ids = new Set((await store.cancelled(nodeId)).map(executionId))
      for (const run of this.#slots.runs) if (ids.has(run.id)) run.cancel()
      this.#fillSlots()
    }
    const foreign = (await this.#options.compareClaims?.(() => this.#held())) ?? []
    for (const claim of foreign) this.#slots.get(claim)?.revoke()
    this.#fillSlots()
    return limits.pollMs
  }

  #held(): HeldClaims {
    const runs = [...this.#slots.runs, ...this.#releasing, ...this.#finishing]
    return {claims: runs.map(({claim}) => claim), pendingToken: this.#token}
  }

  /**
   * Ends the executions that must not run twice, before the cluster can start them elsewhere: a disconnected
   * node cannot learn that its claims were revoked. After a pause of this process the next heartbeat shows
   * whether it is disconnected at all.
   */
  async #checkDisconnection({forMs}: Disconnection): Promise<number> {
    this.#updateDrainDeadline()
    const leftMs = this.#options.limits.disconnectedMs - forMs()
    const wasCutOff = this.#isCutOff
    this.#isCutOff = leftMs <= 0
    if (leftMs > 0) return this.#isDraining ? Math.min(leftMs, DISCONNECTION_CHECK_MS) : leftMs
    if (!wasCutOff && -leftMs > PAUSE_MIN_MS) return AFTER_PAUSE_MS
    for (const run of this.#slots.runs) if (run.endsWhenDisconnected) run.disconnect()
    this.#fillSlots()
    return DISCONNECTION_CHECK_MS
  }

  #stopAll(how: 'term' | 'kill'): void {
    if (this.#isDraining) this.#stopSignal = how
    this.#updateDrainDeadline()
    for (const run of this.#slots.runs) run.stop(how)
    this.#fillSlots()
  }

  /** Resolves when no claim is in flight, nothing runs, and the store has every result. */
  async #drained(): Promise<void> {
    await this.#claims.stop()
    this.#updateDrainDeadline()
    this.#releases.wake()
    if (!this.#isIdle) await new Promise<void>((resolve) => this.#idleCallbacks.push(resolve))
    await this.#cancels.stop()
    await this.#releases.stop()
  }

  get #isIdle(): boolean {
    return this.#slots.isEmpty && this.#finishing.size === 0 && this.#releasing.size === 0
  }

  /** Sets the timeout of a drain, once nothing runs any more or every execution was signalled. */
  #updateDrainDeadline(): void {
    if (!this.#isDraining) return
    const hasEnded = this.#slots.runningCount === 0
    if (!hasEnded && this.#stopSignal === null) return
    const {limits, disconnection} = this.#options
    const isUnreachable = hasEnded && disconnection?.mayLeave() === true
    this.#drainWithin(isUnreachable ? limits.forceStopTimeoutMs : limits.drainTimeoutMs)
  }

  /** Sets the drain deadline, or makes it earlier; never later. */
  #drainWithin(waitMs: number): void {
    const {clock} = this.#options
    const dueAt = clock.monotonicMs() + waitMs
    if (this.#drainDeadline !== null && this.#drainDeadline.dueAt <= dueAt) return
    this.#drainDeadline?.timer.cancel()
    const timer = clock.after(waitMs, () => this.#drainTimedOut.resolve())
    this.#drainDeadline = {timer, dueAt}
  }
}
