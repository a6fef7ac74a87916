/**
 * The run step, every node's: claims its pending executions as far as there is room, starts their
 * executors, and hands each end to finish. No process starts without a durable claim.
 *
 * Crash points: after the claim the execution is `running` in the store and nobody's. Before it was recorded
 * as begun the node's next life gives it back; after that, while it runs, and after its end until the finish,
 * that life (or the leader, who knows of no record) ends it as `lost`.
 */
import {executionId, type ExecutionKey} from '../core/execution.ts'
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {ClaimedExecution, NodeStore} from '../ports/node-store.ts'
import type {Clock, Random, Timer, Wakeup} from '../ports/runtime.ts'
import {ExecutionRun, type ExecutionRunOptions} from './execution-run.ts'

export interface RunnerOptions extends Omit<ExecutionRunOptions, 'append'> {
  readonly store: Pick<NodeStore, 'claim' | 'verifyClaims' | 'cancelled'>
  readonly append: ExecutionRunOptions['append']
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  readonly nodeId: string
  readonly incarnation: string
  /** Executions running at once. */
  readonly slots: number
  /** Executions claimed in one transaction. */
  readonly claimMax: number
  /** A claim older than this when its start comes is verified again. */
  readonly claimFreshMs: number
  /**
   * How often the store is asked whether what runs is still this node's; `Infinity` = something else compares
   * that.
   */
  readonly verifyEveryMs: number
  /** What something else found not to be this node's any more, since it was last asked. */
  readonly takenAway?: () => readonly ExecutionKey[]
  readonly pollMs: number
  /**
   * What a drain waits for a store that does not take the ends, or a command that cannot be ended,
   * before it gives up: the executions are then ended by this node's next life.
   */
  readonly drainTimeoutMs: number
  /** The same for a drain that is hurried, or has no hope of the store. */
  readonly forceStopTimeoutMs: number
  /** Absent = nobody else could run anything while this node does not reach the store. */
  readonly cutOff?: Disconnection
}

export interface Disconnection {
  /** For how long the store has acknowledged no heartbeat of this node. */
  readonly forMs: () => number
  /** After this long, executions whose job says so are ended. */
  readonly limitMs: number
  /**
   * Whether a node that stops need not wait for the store: it cannot be reached at the moment, and ends are
   * kept for this node's next life to deliver.
   */
  readonly mayLeave: () => boolean
}

/** While cut off or stopping: how soon a change is found. */
const CUT_OFF_LOOK_MS = 500

/**
 * Ends the store has not taken yet, beyond which nothing new is claimed: bounds memory while the store
 * is away.
 */
export const SETTLING_PER_SLOT_MAX = 4

export class Runner implements Service {
  readonly #options: RunnerOptions
  readonly #claims: Loop
  readonly #cancels: Loop
  readonly #cutOffs: Loop | null
  readonly #running = new Map<string, ExecutionRun>()
  /** Ended, but the store has not taken the end yet. */
  #settling = 0
  #deaf: (() => void)[] = []
  #draining = false
  /** The grace is over: what a claim still under way brings is not started any more. */
  #ending: 'term' | 'kill' | null = null
  #idle: (() => void)[] = []
  /** While draining: when it gives up. */
  #patience: {readonly timer: Timer; readonly dueAt: number} | null = null
  readonly #impatient = Promise.withResolvers<void>()
  /** Kept over a failed claim, so that repeating it answers what it may have claimed. */
  #token: string | null = null
  #verifiedAt: number

  constructor(options: RunnerOptions) {
    this.#options = options
    const {clock, events} = options
    this.#verifiedAt = clock.monotonicMs()
    const failed = (step: string) => (error: unknown) =>
      events.emit('step_failed', {step, message: String(error)})
    this.#claims = new Loop({clock, step: () => this.#claim(), failed: failed('claim')})
    this.#cancels = new Loop({clock, step: () => this.#cancel(), failed: failed('cancel')})
    const {cutOff} = options
    this.#cutOffs =
      cutOff === undefined
        ? null
        : new Loop({clock, step: () => this.#look(cutOff), failed: failed('cut_off')})
  }

  start(): void {
    const {wakeup} = this.#options
    this.#deaf = [
      wakeup.subscribe('run', () => this.#claims.wake()),
      wakeup.subscribe('cancel', () => this.#cancels.wake()),
    ]
    this.#claims.start()
    this.#cancels.start()
    this.#cutOffs?.start()
  }

  /** Executions that run now. */
  get runningCount(): number {
    return this.#running.size
  }

  /**
   * Takes nothing new and lets running work finish for `graceMs` (may be `Infinity`); the rest is ended
   * and becomes `lost` with reason `node_stopped`. Resolves when nothing runs and the store has every
   * end, or when there is nothing more to hope for.
   */
  async drain(graceMs: number): Promise<void> {
    this.#draining = true
    for (const stop of this.#deaf) stop()
    this.#cutOffs?.wake()
    // The grace runs from now on, also while a claim is still under way at a slow store.
    const {clock} = this.#options
    const timer =
      Number.isFinite(graceMs) && graceMs > 0 ? clock.after(graceMs, () => this.#end('term')) : null
    if (graceMs <= 0) this.#end('kill')
    this.#watchSettling()
    await Promise.race([this.#quiet(), this.#impatient.promise])
    timer?.cancel()
    this.#patience?.timer.cancel()
    // One that is still asking a store that is away is not waited for.
    void this.#cancels.stop()
    await this.#cutOffs?.stop()
  }

  /** Ends whatever runs at once. A drain under way then gives up soon. */
  killAll(): void {
    this.#end('kill')
    if (this.#draining) this.#waitAtMost(this.#options.forceStopTimeoutMs)
  }

  async stop(): Promise<void> {
    await this.drain(0)
  }

  async #claim(): Promise<number> {
    const {store, clock, random, nodeId, incarnation, claimMax, pollMs} = this.#options
    const room = Math.min(this.#room(), claimMax)
    if (room <= 0) return pollMs
    this.#token ??= random.id()
    const askedAt = clock.monotonicMs()
    const token = this.#token
    const [result] = await store.claim([{nodeId, incarnation, token, room}])
    this.#token = null
    for (const claimed of result!.claimed) this.#begin(claimed, askedAt)
    if (result!.waiting > 0 && this.#room() > 0) return 0
    return Math.min(pollMs, result!.nextDueInMs ?? Infinity)
  }

  #room(): number {
    const {slots} = this.#options
    if (this.#settling > slots * SETTLING_PER_SLOT_MAX) return 0
    return slots - this.#running.size
  }

  #begin(claimed: ClaimedExecution, claimedAt: number): void {
    const running = new ExecutionRun(claimed, claimedAt, this.#options)
    const id = executionId(claimed.execution)
    this.#running.set(id, running)
    if (this.#ending !== null) running.stop(this.#ending)
    void this.#follow(id, running)
  }

  async #follow(id: string, running: ExecutionRun): Promise<void> {
    const {clock, claimFreshMs} = this.#options
    if (clock.monotonicMs() - running.claimedAt <= claimFreshMs || (await this.#verify(running))) {
      await running.run()
      this.#settling += 1
      this.#running.delete(id)
      this.#watchSettling()
      this.#claims.wake()
      await running.settle()
      this.#settling -= 1
    }
    this.#running.delete(id)
    if (!this.#draining) this.#claims.wake()
    if (this.#running.size === 0 && this.#settling === 0) this.#rest()
  }

  #rest(): void {
    for (const resolve of this.#idle.splice(0)) resolve()
  }

  /** Nothing is claimed any more, nothing runs, and the store has every end. */
  async #quiet(): Promise<void> {
    await this.#claims.stop()
    this.#watchSettling()
    await this.#whenIdle()
    await this.#cancels.stop()
  }

  /** While draining: with nothing left to run, or all of it told to end, the rest may take only so long. */
  #watchSettling(): void {
    if (!this.#draining) return
    const isOver = this.#running.size === 0
    if (!isOver && this.#ending === null) return
    const {drainTimeoutMs, forceStopTimeoutMs, cutOff} = this.#options
    const isHopeless = isOver && cutOff?.mayLeave() === true
    this.#waitAtMost(isHopeless ? forceStopTimeoutMs : drainTimeoutMs)
  }

  #waitAtMost(waitMs: number): void {
    const {clock} = this.#options
    const dueAt = clock.monotonicMs() + waitMs
    if (this.#patience !== null && this.#patience.dueAt <= dueAt) return
    this.#patience?.timer.cancel()
    const timer = clock.after(waitMs, () => this.#impatient.resolve())
    this.#patience = {timer, dueAt}
  }

  /** Whether the claim still stands. While the store cannot say so freshly, nothing is started. */
  async #verify(running: ExecutionRun): Promise<boolean> {
    const {store, clock, events, claimFreshMs, pollMs} = this.#options
    for (;;) {
      try {
        const askedAt = clock.monotonicMs()
        const [standing] = await store.verifyClaims([running.claim])
        if (standing !== 'active') return false
        if (clock.monotonicMs() - askedAt <= claimFreshMs) return true
      } catch (error) {
        events.emit('step_failed', {step: 'verify', message: String(error)})
        await new Promise<void>((resolve) => clock.after(pollMs, resolve))
      }
    }
  }

  async #cancel(): Promise<number> {
    const {store, nodeId, pollMs, takenAway} = this.#options
    for (const key of takenAway?.() ?? []) this.#running.get(executionId(key))?.revoke()
    if (this.#running.size === 0) return pollMs
    const keys: readonly ExecutionKey[] = await store.cancelled(nodeId)
    for (const key of keys) this.#running.get(executionId(key))?.cancel()
    await this.#endGivenUp()
    return pollMs
  }

  /** A node that was taken for dead and lives hears of that nowhere else. */
  async #endGivenUp(): Promise<void> {
    const {store, clock, verifyEveryMs} = this.#options
    if (clock.monotonicMs() - this.#verifiedAt < verifyEveryMs) return
    const asked = [...this.#running]
    const standings = await store.verifyClaims(asked.map(([, running]) => running.claim))
    this.#verifiedAt = clock.monotonicMs()
    asked.forEach(([id, running], index) => {
      if (standings[index] === 'revoked' && this.#running.get(id) === running) running.revoke()
    })
  }

  /**
   * Nobody can tell this node any more that its executions were given up and started elsewhere: those
   * that must not run twice end here, before they can be.
   */
  async #look({forMs, limitMs}: Disconnection): Promise<number> {
    this.#watchSettling()
    const leftMs = limitMs - forMs()
    if (leftMs > 0) return this.#draining ? Math.min(leftMs, CUT_OFF_LOOK_MS) : leftMs
    for (const running of this.#running.values()) if (running.endsWhenCutOff) running.cutOff()
    return CUT_OFF_LOOK_MS
  }

  #end(how: 'term' | 'kill'): void {
    if (this.#draining) this.#ending = how
    this.#watchSettling()
    for (const running of this.#running.values()) running.stop(how)
  }

  #whenIdle(): Promise<void> {
    if (this.#running.size === 0 && this.#settling === 0) return Promise.resolve()
    return new Promise((resolve) => this.#idle.push(resolve))
  }
}
