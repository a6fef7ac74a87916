/**
 * The agents connected to this server: admitting them, gathering their heartbeats into few transactions,
 * ringing those that have work, and letting go of those that fell silent. Which server an agent is connected
 * to means nothing: everything it must not lose stands in the store.
 */
import {AssertionFailed} from '../../lib/assert.ts'
import {Batcher} from '../../lib/batcher.ts'
import {Loop, type Service} from '../../lib/loop.ts'
import type {Events} from '../../ports/events.ts'
import type {
  BeatReply,
  PreviousIncarnation,
  FinishOutcome,
  Heartbeat,
} from '../../ports/node-store.ts'
import type {Clock, Random, Wakeup} from '../../ports/runtime.ts'
import type {Store} from '../../ports/store.ts'
import {decodeAgentMessage, type HelloMessage, PROTOCOL, type ServerMessage} from '../protocol.ts'
import {Admission, lifeOf, type Origin, type Refusal, replaced} from './admission.ts'
import {AgentSession, type SessionStore} from './session.ts'

/** The connection as the hub sees it. */
export interface AgentPeer extends Origin {
  send(message: ServerMessage): void
  /** `why` is for people, on the other side too. */
  close(why: string): void
}

export interface AgentHubOptions {
  readonly store: SessionStore & Pick<Store, 'beat' | 'join' | 'members' | 'candidates'>
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  /** Of this server. */
  readonly nodeName: string
  readonly clusterId: string
  /** A member heard of within this time holds its name. */
  readonly freshMs: number
  /** An agent not heard of for this long is not there any more. */
  readonly silentMs: number
  /** Answers how many executions were given back. */
  readonly endPreviousIncarnations: (
    node: {readonly nodeId: string; readonly incarnation: string},
    earlier: readonly PreviousIncarnation[],
  ) => Promise<number>
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
}

/**
 * Heartbeats wait this long for others, which bounds the commits to 5/s for any number of agents. The write
 * queue of the store does not wait: it would commit nearly every heartbeat alone. An agent waits far longer
 * for the reply.
 */
const BEATS_WAIT_MS = 200
const BEATS_MAX = 1_000
/** Rings are passed on together: launches come in bursts, and looking who has work is a query. */
const RINGS_WAIT_MS = 20
const SWEEP_MS = 1_000

/** One connection, admitted or not. */
class Connected {
  readonly peer: AgentPeer
  hasGreeted = false
  session: AgentSession | null = null
  heardAt: number
  isOver = false

  constructor(peer: AgentPeer, heardAt: number) {
    this.peer = peer
    this.heardAt = heardAt
  }
}

export interface AgentConnection {
  /** Takes in one text of the agent; resolves when it has been dealt with. Rejects for broken invariants. */
  hear(text: string): Promise<void>
  closed(): void
}

export class AgentHub implements Service {
  readonly #options: AgentHubOptions
  readonly #connected = new Set<Connected>()
  readonly #admission: Admission
  readonly #beats: Batcher<Heartbeat, PromiseSettledResult<BeatReply>>
  readonly #sweep: Loop
  readonly #rings: Loop
  readonly #rung = new Set<'run' | 'cancel'>()
  #deaf: (() => void)[] = []
  #stopped = false

  constructor(options: AgentHubOptions) {
    this.#options = options
    const {clock, events, store} = options
    const failed = (step: string) => (error: unknown) =>
      events.emit('step_failed', {step, message: String(error)})
    this.#beats = new Batcher({
      clock,
      waitMs: BEATS_WAIT_MS,
      itemsMax: BEATS_MAX,
      // Calls of one turn are one commit. Separate calls: one that fails does not fail the others.
      flush: (beats) => {
        const replies = beats.map((beat) => store.beat([beat]).then(([reply]) => reply!))
        return Promise.allSettled(replies)
      },
    })
    this.#admission = new Admission({...options, beat: (beat) => this.#beat(beat)})
    this.#sweep = new Loop({clock, step: () => this.#sweepSilent(), failed: failed('agent_sweep')})
    this.#rings = new Loop({clock, step: () => this.#passRings(), failed: failed('agent_ring')})
  }

  start(): void {
    const {wakeup, clock} = this.#options
    const pass = (bell: 'run' | 'cancel') => () => {
      if (this.#connected.size === 0) return
      if (this.#rung.size === 0) clock.after(RINGS_WAIT_MS, () => this.#rings.wake())
      this.#rung.add(bell)
    }
    this.#deaf = [wakeup.subscribe('run', pass('run')), wakeup.subscribe('cancel', pass('cancel'))]
    this.#sweep.start()
    this.#rings.start()
  }

  /** Sends every agent to another server. Idempotent. */
  async stop(): Promise<void> {
    this.#stopped = true
    for (const stop of this.#deaf.splice(0)) stop()
    await Promise.all([this.#sweep.stop(), this.#rings.stop()])
    for (const connected of this.#connected) {
      connected.peer.send({kind: 'goodbye'})
      this.#close(connected, `${this.#options.nodeName} ends`)
    }
  }

  /** Agents admitted and connected here. */
  get agentCount(): number {
    let count = 0
    for (const {session} of this.#connected) if (session !== null) count += 1
    return count
  }

  /** A connection that the door has let in. */
  connect(peer: AgentPeer): AgentConnection {
    const connected = new Connected(peer, this.#options.clock.monotonicMs())
    this.#connected.add(connected)
    return {
      hear: (text) => this.#hear(connected, text),
      closed: () => {
        connected.isOver = true
        this.#connected.delete(connected)
      },
    }
  }

  async #hear(connected: Connected, text: string): Promise<void> {
    if (connected.isOver) return
    connected.heardAt = this.#options.clock.monotonicMs()
    const decoded = decodeAgentMessage(text)
    const {session} = connected
    if (!decoded.ok) {
      if (decoded.why === 'malformed' || decoded.id === null || session === null)
        return this.#refuse(connected, malformed('The agent sent what this server cannot read.'))
      const message = `this server, of protocol ${PROTOCOL}, does not know that question`
      return session.send({kind: 'failed', id: decoded.id, failure: 'unsupported', message})
    }
    const {message} = decoded
    if (message.kind === 'hello') {
      if (connected.hasGreeted)
        return this.#refuse(connected, malformed('The agent introduced itself twice.'))
      connected.hasGreeted = true
      return await this.#greet(connected, message)
    }
    if (session === null)
      return this.#refuse(connected, malformed('The agent did not introduce itself.'))
    await session.answer(message)
  }

  async #greet(connected: Connected, hello: HelloMessage): Promise<void> {
    const {clusterId, nodeName, events} = this.#options
    if (this.#stopped) return this.#refuse(connected, unavailable(`${nodeName} is about to end`))
    const {node, status} = hello
    const session = this.#sessionOf(connected, hello)
    try {
      const refusal = await this.#admission.admit(hello, connected.peer)
      if (refusal !== null) return this.#refuse(connected, refusal)
      await session.open()
      if (connected.isOver) return
      this.#closeEarlier(node)
      connected.session = session
      connected.peer.send({kind: 'welcome', protocol: PROTOCOL, clusterId, server: nodeName})
      events.emit('member_changed', {node: node.name, status})
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      events.emit('step_failed', {step: 'agent_hello', message: String(error)})
      const message = `${nodeName} cannot reach its store at the moment`
      if (connected.session === null) this.#refuse(connected, unavailable(message))
    }
  }

  #sessionOf(connected: Connected, hello: HelloMessage): AgentSession {
    const {store, clock, random, events, announce, endPreviousIncarnations} = this.#options
    const {id, incarnation, name} = hello.node
    return new AgentSession(
      {
        store,
        clock,
        random,
        events,
        announce,
        node: {id, incarnation, name},
        send: (message) => {
          if (!connected.isOver) connected.peer.send(message)
        },
        beat: (status) => this.#beat({...lifeOf(hello), status}),
        rejoin: async (status) => {
          const refusal = await this.#admission.join(hello, connected.peer)
          if (refusal?.code === 'name_taken') return 'taken'
          const answer = await this.#beat({...lifeOf(hello), status})
          return answer === 'unknown' ? 'fenced' : answer
        },
        endEarlierLives: (earlier) => endPreviousIncarnations({nodeId: id, incarnation}, earlier),
      },
      hello.held,
    )
  }

  async #beat(beat: Heartbeat): Promise<BeatReply> {
    const result = await this.#beats.add(beat)
    if (result.status === 'rejected') throw result.reason
    return result.value
  }

  /** A connection that the same node had before is over; an earlier life of it learns why. */
  #closeEarlier(node: {readonly id: string; readonly incarnation: string}): void {
    for (const other of this.#connected) {
      if (other.session?.node.id !== node.id) continue
      if (other.session.node.incarnation === node.incarnation)
        this.#close(other, 'this agent has connected again')
      else this.#refuse(other, replaced('fenced', other.session.node.name))
    }
  }

  #refuse(connected: Connected, {code, message}: Refusal): void {
    connected.peer.send({kind: 'refused', code, message})
    this.#close(connected, message)
  }

  #close(connected: Connected, why: string): void {
    connected.isOver = true
    this.#connected.delete(connected)
    connected.peer.close(why)
  }

  async #sweepSilent(): Promise<number> {
    const {clock, silentMs} = this.#options
    const now = clock.monotonicMs()
    for (const connected of this.#connected)
      if (now - connected.heardAt > silentMs)
        this.#close(connected, `nothing was heard of this agent for ${silentMs / 1_000} s`)
    return SWEEP_MS
  }

  /** A ring that meets nobody is no loss: every agent also looks by itself. */
  async #passRings(): Promise<number> {
    const rung = new Set(this.#rung)
    this.#rung.clear()
    const sessions = [...this.#connected].flatMap(({session}) => session ?? [])
    if (sessions.length === 0) return Infinity
    if (rung.has('cancel'))
      for (const session of sessions)
        if (session.runningCount > 0) session.send({kind: 'ring', bell: 'cancel'})
    if (rung.has('run')) {
      const candidates = await this.#options.store.candidates()
      const loads = new Map(candidates.map(({id, load}) => [id, load]))
      for (const session of sessions)
        if ((loads.get(session.node.id) ?? 0) > session.runningCount)
          session.send({kind: 'ring', bell: 'run'})
    }
    return Infinity
  }
}

function malformed(message: string): Refusal {
  return {code: 'malformed', message}
}

function unavailable(message: string): Refusal {
  return {code: 'unavailable', message}
}
