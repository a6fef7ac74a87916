/**
 * Membership of this node in the cluster: heartbeats, joining again after a removal, leaving. Reports when
 * another incarnation or another node has replaced this one.
 */
import type {Limits} from '../config/limits.ts'
import type {MemberStatus} from '../core/node.ts'
import {asError} from '../lib/error.ts'
import type {Loop, Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {BeatReply, JoinRequest, MemberStore, NodeStore} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'
import {stepLoop} from './step-loop.ts'

export interface MembershipOptions {
  readonly store: Pick<NodeStore, 'beat'>
  readonly clock: Clock
  readonly events: Events
  readonly member: Pick<JoinRequest['member'], 'id' | 'incarnation' | 'name'>
  readonly limits: Pick<Limits, 'heartbeatMs'>
  /**
   * Joins again after the store removed this member while it was disconnected. Absent on an agent: its server
   * does it.
   */
  readonly rejoin?: () => ReturnType<MemberStore['join']>
  /**
   * Called once, when this process must end. `fenced`: another incarnation of this node has joined. `taken`:
   * another node has joined under its name.
   */
  readonly onReplaced: (why: 'fenced' | 'taken') => void
  /**
   * Called with the error when heartbeats begin to fail, and with `null` when they are acknowledged again.
   * Absent on an agent: its link reports this.
   */
  readonly onReachability?: (problem: Error | null) => void
}

/** Explains to a person why this process must end. */
export function replacedSentence(why: 'fenced' | 'taken', name: string): string {
  return why === 'fenced'
    ? `Another process has joined as ${name} with the same data directory; this process ends.`
    : `Another node has joined as ${name} while this node sent no heartbeats; this process ends.`
}

export class Membership implements Service {
  readonly #options: MembershipOptions
  readonly #loop: Loop
  #status: MemberStatus = 'alive'
  #isReplaced = false
  #isUnreachable = false
  /** Monotonic instant at which the newest acknowledged heartbeat was sent. */
  #acknowledgedAt: number
  /** Resolves when the newest heartbeat has ended; never rejects. */
  #lastBeat: Promise<unknown> = Promise.resolve()

  /** The node must have just joined: its join counts as the first heartbeat. */
  constructor(options: MembershipOptions) {
    const {clock, events, limits} = options
    this.#options = options
    this.#acknowledgedAt = clock.monotonicMs()
    this.#loop = stepLoop('heartbeat', {
      clock,
      events,
      step: () => this.#beat(),
      // Every node sends its heartbeat within one interval after an outage of the store.
      backoffMaxMs: limits.heartbeatMs,
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  /** The newest heartbeat failed. */
  get isUnreachable(): boolean {
    return this.#isUnreachable
  }

  /** Time since the newest acknowledged heartbeat was sent. */
  get silentMs(): number {
    return this.#options.clock.monotonicMs() - this.#acknowledgedAt
  }

  /** Resolves when the store has the new status. */
  async become(status: MemberStatus): Promise<void> {
    this.#status = status
    await this.#beat()
    this.#emitStatus(status)
  }

  /** Sends one heartbeat at a time: an older status must not reach the store after a newer one. */
  #beat(): Promise<number> {
    const beat = this.#lastBeat.then(() => this.#sendAndReport())
    // The caller of `#beat` handles a failure; the next heartbeat only waits for the end.
    this.#lastBeat = Promise.allSettled([beat])
    return beat
  }

  async #sendAndReport(): Promise<number> {
    try {
      const nextMs = await this.#send()
      this.#report(null)
      return nextMs
    } catch (error) {
      this.#report(asError(error))
      throw error
    }
  }

  #report(problem: Error | null): void {
    const isUnreachable = problem !== null
    if (isUnreachable === this.#isUnreachable) return
    this.#isUnreachable = isUnreachable
    this.#options.onReachability?.(problem)
  }

  async #send(): Promise<number> {
    const {clock, limits} = this.#options
    const sentAt = clock.monotonicMs()
    let reply = await this.#sendStatus()
    // A node that has left does not join again.
    if (reply === 'unknown' && this.#status !== 'left') reply = await this.#rejoin()
    if (reply === 'ok') this.#acknowledgedAt = sentAt
    else if (reply !== 'unknown') this.#reportReplaced(reply)
    return limits.heartbeatMs
  }

  async #sendStatus(): Promise<BeatReply> {
    const {id: nodeId, incarnation} = this.#options.member
    const heartbeat = {nodeId, incarnation, status: this.#status}
    const [reply] = await this.#options.store.beat([heartbeat])
    return reply!
  }

  async #rejoin(): Promise<BeatReply> {
    const {rejoin} = this.#options
    if (rejoin === undefined) return 'unknown'
    const {kind} = await rejoin()
    if (kind === 'taken') return 'taken'
    if (kind === 'alive') return 'fenced'
    this.#emitStatus('alive')
    // The join stored `alive`; the actual status, perhaps `leaving`, follows at once.
    return await this.#sendStatus()
  }

  #reportReplaced(why: 'fenced' | 'taken'): void {
    if (this.#isReplaced) return
    this.#isReplaced = true
    this.#options.onReplaced(why)
  }

  #emitStatus(status: MemberStatus): void {
    this.#options.events.emit('member_changed', {node: this.#options.member.name, status})
  }
}
