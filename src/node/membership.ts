/**
 * This node's place in the cluster: the heartbeat, coming back when it was forgotten, leaving. A life that
 * another life or another node has replaced is told so.
 */
import type {MemberStatus} from '../core/node.ts'
import {Loop, type Service} from '../lib/loop.ts'
import type {Events} from '../ports/events.ts'
import type {BeatReply, JoinRequest, MemberStore, NodeStore} from '../ports/node-store.ts'
import type {Clock} from '../ports/runtime.ts'

export interface MembershipOptions {
  readonly store: Pick<NodeStore, 'beat'>
  readonly clock: Clock
  readonly events: Events
  readonly member: Pick<JoinRequest['member'], 'id' | 'incarnation' | 'name'>
  readonly heartbeatMs: number
  /**
   * Joins again, when the store knows no such member any more: it was forgotten or removed while it was cut
   * off. Absent where the other side does it, as a server does for its agents.
   */
  readonly rejoin?: () => ReturnType<MemberStore['join']>
  /**
   * This life must end, because another life of the node has joined, or, when its name was `taken`, another
   * node under its name. Called once.
   */
  readonly replaced: (why: 'fenced' | 'taken') => void
}

/** Why this life must end, for people. */
export function replacedSentence(why: 'fenced' | 'taken', name: string): string {
  return why === 'fenced'
    ? `Another process has joined as ${name} with the same data directory; this one ends.`
    : `Another node has joined as ${name} while this one was not heard of; this one ends.`
}

export class Membership implements Service {
  readonly #options: MembershipOptions
  readonly #loop: Loop
  #status: MemberStatus = 'alive'
  #isReplaced = false
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
    this.#changed(status)
  }

  /** One beat at a time: one under way with an older status must not reach the store after a newer one. */
  #beat(): Promise<number> {
    const beat = this.#lastBeat.then(() => this.#send())
    // Its failure is told to whoever asked for it; the next beat only needs to know that it is over.
    this.#lastBeat = Promise.allSettled([beat])
    return beat
  }

  async #send(): Promise<number> {
    const {clock, heartbeatMs} = this.#options
    const sentAt = clock.monotonicMs()
    let answer = await this.#ask()
    // One that has left is not missed.
    if (answer === 'unknown' && this.#status !== 'left') answer = await this.#joinAgain()
    if (answer === 'ok') this.#acknowledgedAt = sentAt
    else if (answer !== 'unknown') this.#replaced(answer)
    return heartbeatMs
  }

  async #ask(): Promise<BeatReply> {
    const {id: nodeId, incarnation} = this.#options.member
    const heartbeat = {nodeId, incarnation, status: this.#status}
    const [reply] = await this.#options.store.beat([heartbeat])
    return reply!
  }

  async #joinAgain(): Promise<BeatReply> {
    const {rejoin} = this.#options
    if (rejoin === undefined) return 'unknown'
    const {kind} = await rejoin()
    if (kind === 'taken') return 'taken'
    this.#changed('alive')
    // It has joined as alive; whether it leaves, the store hears at once.
    return await this.#ask()
  }

  #replaced(why: 'fenced' | 'taken'): void {
    if (this.#isReplaced) return
    this.#isReplaced = true
    this.#options.replaced(why)
  }

  #changed(status: MemberStatus): void {
    this.#options.events.emit('member_changed', {node: this.#options.member.name, status})
  }
}
