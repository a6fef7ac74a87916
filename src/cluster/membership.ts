/**
 * This node's place in the cluster: joining, the heartbeat, leaving. A life that another life has
 * replaced is told so.
 */
import type {MemberStatus} from '../core/node.ts'
import type {Clock} from '../ports/clock.ts'
import type {Events} from '../ports/events.ts'
import type {JoinRequest, NodeStore} from '../ports/node-store.ts'
import {Loop} from '../std/loop.ts'
import type {Service} from '../std/service.ts'

export interface MembershipOptions {
  readonly store: Pick<NodeStore, 'beat'>
  readonly clock: Clock
  readonly events: Events
  readonly member: Pick<JoinRequest['member'], 'id' | 'incarnation' | 'name'>
  readonly heartbeatMs: number
  /** Another life of this node has joined: this one must end. */
  readonly fenced: () => void
}

export class Membership implements Service {
  readonly #options: MembershipOptions
  readonly #loop: Loop
  #status: MemberStatus = 'alive'
  /** Monotonic instant at which the newest beat that the store has acknowledged was sent. */
  #acknowledgedAt: number
  /** Settles when the newest beat is over; never rejects. */
  #lastBeat: Promise<unknown> = Promise.resolve()

  constructor(options: MembershipOptions) {
    this.#options = options
    // Made by a node that has just joined.
    this.#acknowledgedAt = options.clock.monotonicMs()
    const failed = (error: unknown) =>
      options.events.emit('step_failed', {step: 'heartbeat', message: String(error)})
    this.#loop = new Loop({
      clock: options.clock,
      step: () => this.#beat(),
      failed,
      // A store that is back hears of this node as soon as of any other.
      backoffMaxMs: options.heartbeatMs,
    })
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    await this.#loop.stop()
  }

  /** For how long the store has acknowledged no heartbeat of this node, counted from its sending. */
  get silentMs(): number {
    return this.#options.clock.monotonicMs() - this.#acknowledgedAt
  }

  /** Resolves when the store knows the new status. */
  async become(status: MemberStatus): Promise<void> {
    this.#status = status
    await this.#beat()
    this.#options.events.emit('member_changed', {node: this.#options.member.name, status})
  }

  /** One beat at a time: one under way with an older status must not reach the store after a newer one. */
  #beat(): Promise<number> {
    const beat = this.#lastBeat.then(() => this.#send())
    // Its failure is told to whoever asked for it; the next beat only needs to know that it is over.
    this.#lastBeat = Promise.allSettled([beat])
    return beat
  }

  async #send(): Promise<number> {
    const {store, clock, member, heartbeatMs} = this.#options
    const sentAt = clock.monotonicMs()
    const answer = await store.beat({
      nodeId: member.id,
      incarnation: member.incarnation,
      status: this.#status,
    })
    if (answer === 'ok') this.#acknowledgedAt = sentAt
    else this.#options.fenced()
    return heartbeatMs
  }
}
