/**
 * Life of a node's process, for servers and agents: its start, which may fail, and its one stop. Both close
 * what was opened, newest first. It knows the parts that every node has; `Server.start`
 * and `Agent.#start` list the order of all parts.
 */
import type {NodeConfig} from '../config/node.ts'
import type {BelfryEvent} from '../core/events.ts'
import type {MemberStatus} from '../core/node.ts'
import type {Step} from '../core/steps.ts'
import {ClockWatch} from '../node/clock-watch.ts'
import {Membership, type MembershipOptions, replacedSentence} from '../node/membership.ts'
import {Runner, type RunnerOptions} from '../node/runner.ts'
import {systemClock} from '../platform/clock.ts'
import {systemRandom} from '../platform/random.ts'
import type {Events} from '../ports/events.ts'
import {localEvents} from '../telemetry/event-bus.ts'
import type {Log} from '../telemetry/log.ts'
import {openNodeLog, warnIfRoot} from './node.ts'

export interface LifecycleOptions {
  readonly config: NodeConfig
  /** True if another line of the log says why this step fails now. */
  readonly isExplained: (step: Step) => boolean
  /** Called when a stop begins, before the node announces that it leaves. */
  readonly leaving: () => Promise<void> | void
  /** False = the node must not announce that it has left. */
  readonly mayLeave: () => boolean
}

/** The process of a node that runs, for `main.ts`. */
export interface RunningNode {
  /** Graceful shutdown: nothing new starts, running executions get the grace period. Idempotent. */
  stop(): Promise<void>
  /** Kills running executions at once, also during `stop`. */
  forceStop(): void
  /** The exit code, when everything has ended. */
  readonly done: Promise<number>
}

export class Lifecycle implements RunningNode {
  readonly clock = systemClock()
  readonly random = systemRandom()
  readonly events = localEvents(this.clock)
  readonly log: Log
  readonly #options: LifecycleOptions
  readonly #closers: (() => unknown)[] = []
  readonly #done = Promise.withResolvers<number>()
  #membership: Membership | null = null
  #runner: Runner | null = null
  #status: MemberStatus = 'alive'
  #stopping: Promise<void> | null = null
  #exitCode = 0
  /** Set when this process ends at once: another one has replaced it, or it cannot reach its store again. */
  #announcesNothing = false

  constructor(options: LifecycleOptions) {
    this.#options = options
    this.log = openNodeLog(options.config, this.#loggedEvents())
  }

  get done(): Promise<number> {
    return this.#done.promise
  }

  /** Status that the node has announced, or tried to. */
  get status(): MemberStatus {
    return this.#status
  }

  get isStopping(): boolean {
    return this.#stopping !== null
  }

  /** `null` = the node has not joined. */
  get membership(): Membership | null {
    return this.#membership
  }

  get runningCount(): number {
    return this.#runner?.runningCount ?? 0
  }

  /** Closes a part that was opened, at the end. */
  onClose(close: () => unknown): void {
    this.#closers.push(close)
  }

  /** The node must have just joined. */
  startMembership(
    options: Pick<MembershipOptions, 'store' | 'member' | 'rejoin' | 'onReachability'>,
  ): void {
    const membership = new Membership({
      ...this.#parts,
      ...options,
      onReplaced: (why) => this.endNow(replacedSentence(why, options.member.name)),
    })
    this.#membership = membership
    this.onClose(() => membership.stop())
    membership.start()
  }

  startRunner(options: Omit<RunnerOptions, 'clock' | 'events' | 'random' | 'slots'>): void {
    warnIfRoot(this.log)
    const {slots} = this.#options.config
    const runner = new Runner({...this.#parts, ...options, random: this.random, slots})
    this.#runner = runner
    this.onClose(() => runner.stop())
    runner.start()
  }

  /** `storeOffsetMs`: see `ClockWatch`. */
  startClockWatch(storeOffsetMs: () => number | null): void {
    const watch = new ClockWatch({...this.#parts, storeOffsetMs})
    this.onClose(() => watch.stop())
    watch.start()
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stop()
    return this.#stopping
  }

  async #stop(): Promise<void> {
    // The drain claims nothing from its first moment on, so a force stop finds everything that runs.
    await Promise.all([this.#runner?.drain(this.#options.config.graceMs), this.#leave()])
    if (this.#membership !== null && this.#options.mayLeave()) await this.#announce('left')
    await this.#closeAll()
    this.log.logger.info('stopped')
    this.log.flush()
    this.#done.resolve(this.#exitCode)
  }

  async #leave(): Promise<void> {
    await this.#options.leaving()
    await this.#announce('leaving')
  }

  forceStop(): void {
    this.#runner?.killAll()
  }

  /** Ends everything at once: the executions may run elsewhere already, or their ends cannot be stored. */
  endNow(why: string): void {
    this.log.logger.error(why)
    this.#exitCode = 1
    this.#announcesNothing = true
    void this.stop()
    this.forceStop()
  }

  /** Undoes a start that failed. */
  async abandon(): Promise<void> {
    await this.#closeAll()
    this.log.flush()
  }

  /** Undoes a start that failed, and rejects `done` with its error, unless a stop has interrupted it. */
  async fail(error: unknown): Promise<void> {
    if (this.isStopping) return
    this.#stopping = this.abandon()
    await this.#stopping
    this.#done.reject(error)
  }

  /** Idempotent: each is called once. */
  async #closeAll(): Promise<void> {
    for (const close of this.#closers.splice(0).toReversed()) await close()
  }

  /** Best effort: without it the failure detector finds out. */
  async #announce(status: 'leaving' | 'left'): Promise<void> {
    this.#status = status
    if (this.#announcesNothing) return
    try {
      await this.#membership?.become(status)
    } catch (error) {
      this.log.logger.warn({err: error}, `cannot announce that this node is ${status}`)
    }
  }

  get #parts() {
    return {clock: this.clock, events: this.events, limits: this.#options.config.limits}
  }

  /** Hides failed steps while the store or all servers are away: every step fails, and one line says why. */
  #loggedEvents(): Events {
    const isHidden = (event: BelfryEvent) =>
      event.name === 'step_failed' && this.#options.isExplained(event.data.step)
    return {
      emit: (name, data) => this.events.emit(name, data),
      listen: (onEvent) => this.events.listen((event) => isHidden(event) || onEvent(event)),
    }
  }
}

/** Waits for both even if one fails: what the other has opened must be closed. Throws the first error. */
export async function settleBoth(...steps: readonly [Promise<void>, Promise<void>]): Promise<void> {
  const failed = (await Promise.allSettled(steps)).find(({status}) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}
