/**
 * The agents connected to this server: admitting them, gathering their heartbeats into few transactions,
 * ringing those that have work, and letting go of those that fell silent. Which server an agent is connected
 * to means nothing: everything it must not lose stands in the store.
 */
import type {MemberStatus} from '../core/node.ts'
import type {Clock} from '../ports/clock.ts'
import type {Events} from '../ports/events.ts'
import type {FinishOutcome, JoinRequest} from '../ports/node-store.ts'
import type {Random} from '../ports/random.ts'
import type {Store} from '../ports/store.ts'
import type {Wakeup} from '../ports/wakeup.ts'
import {AssertionFailed} from '../std/assert.ts'
import {Batcher} from '../std/batcher.ts'
import {Loop} from '../std/loop.ts'
import type {Service} from '../std/service.ts'
import {
  decodeAgentMessage,
  isSpoken,
  PROTOCOL,
  type HelloMessage,
  type RefusalKind,
  type ServerMessage,
} from '../wire/agent-protocol.ts'
import {AgentSession, type SessionStore} from './agent-session.ts'

/** The connection as the hub sees it. */
export interface AgentPeer {
  /** The address it comes from, and its port there. */
  readonly address: string
  readonly port: number
  send(message: ServerMessage): void
  close(): void
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
  readonly endEarlierLives: (node: {id: string; incarnation: string}) => Promise<void>
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
}

interface Beat {
  readonly nodeId: string
  readonly incarnation: string
  readonly status: MemberStatus
}

/** Heartbeats wait this long for others: an agent waits far longer for the answer. */
const BEATS_WAIT_MS = 200
const BEATS_MAX = 1_000
/** Rings are passed on together: launches come in bursts, and looking who has work is a query. */
const RINGS_WAIT_MS = 20
const SWEEP_MS = 1_000

/** One connection, admitted or not. */
class Connected {
  readonly peer: AgentPeer
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
  readonly #beats: Batcher<Beat, PromiseSettledResult<'ok' | 'fenced' | 'unknown'>>
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
      // Asked for in one turn, they are committed together.
      flush: (beats) => Promise.allSettled(beats.map((beat) => store.beat(beat))),
    })
    this.#sweep = new Loop({clock, step: () => this.#sweepSilent(), failed: failed('agent_sweep')})
    this.#rings = new Loop({clock, step: () => this.#passRings(), failed: failed('agent_ring')})
  }

  start(): void {
    const {wakeup, clock} = this.#options
    const pass = (bell: 'run' | 'cancel') => () => {
      if (this.#connected.size === 0) return
      if (this.#rung.size === 0) clock.after(RINGS_WAIT_MS, () => this.#rings.ring())
      this.#rung.add(bell)
    }
    this.#deaf = [wakeup.listen('run', pass('run')), wakeup.listen('cancel', pass('cancel'))]
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
      this.#close(connected)
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
        return this.#refuse(connected, 'malformed', 'The agent sent what this server cannot read.')
      const message = `this server, of protocol ${PROTOCOL}, does not know that question`
      return session.send({kind: 'failed', id: decoded.id, failure: 'unsupported', message})
    }
    const {message} = decoded
    if (message.kind === 'hello') {
      if (session === null) return await this.#greet(connected, message)
      return this.#refuse(connected, 'malformed', 'The agent introduced itself twice.')
    }
    if (session === null)
      return this.#refuse(connected, 'malformed', 'The agent did not introduce itself.')
    await session.answer(message)
  }

  async #greet(connected: Connected, hello: HelloMessage): Promise<void> {
    const {clusterId, nodeName, events} = this.#options
    const refusal = this.#refusalOf(hello)
    if (refusal !== null) return this.#refuse(connected, refusal.code, refusal.message)
    const {node, status, held, claiming} = hello
    const session = this.#sessionOf(connected, hello)
    try {
      const admitted = await this.#admit(connected, hello)
      if (admitted !== null) return this.#refuse(connected, admitted.code, admitted.message)
      if (connected.isOver) return
      this.#closeEarlier(node)
      connected.session = session
      connected.peer.send({kind: 'welcome', protocol: PROTOCOL, clusterId, server: nodeName})
      events.emit('member_changed', {node: node.name, status})
      // What is ended of it, the agent hears with its first heartbeat, which follows at once.
      await session.compare({held, claiming})
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      events.emit('step_failed', {step: 'agent_hello', message: String(error)})
      const message = `${nodeName} cannot reach its store at the moment`
      if (connected.session === null) this.#refuse(connected, 'unavailable', message)
    }
  }

  #refusalOf({protocol, clusterId}: HelloMessage): {code: RefusalKind; message: string} | null {
    const {nodeName} = this.#options
    if (!isSpoken(protocol)) {
      const spoken = `This agent speaks version ${protocol} of the agents' protocol`
      const message = `${spoken}, ${nodeName} version ${PROTOCOL}; update the older of them.`
      return {code: 'protocol', message}
    }
    if (clusterId !== null && clusterId !== this.#options.clusterId)
      return {code: 'cluster', message: `${nodeName} belongs to another cluster than this agent.`}
    return this.#stopped ? {code: 'unavailable', message: `${nodeName} is about to end`} : null
  }

  /** `null` = it is a member now. */
  async #admit(
    connected: Connected,
    hello: HelloMessage,
  ): Promise<{code: RefusalKind; message: string} | null> {
    const {node, status, joined} = hello
    // A life that another has replaced must be told so, and not replace it in turn.
    const known = joined ? await this.#beat({...lifeOf(hello), status}) : 'unknown'
    if (known === 'ok') return null
    if (known === 'fenced') return fenced(node.name)
    const answer = await this.#join(connected, hello)
    if (answer !== null) return answer
    if (status !== 'alive') await this.#beat({...lifeOf(hello), status})
    return null
  }

  async #join(
    {peer}: Connected,
    hello: HelloMessage,
  ): Promise<{code: RefusalKind; message: string} | null> {
    const {store, freshMs} = this.#options
    const {node} = hello
    const members = await store.members()
    if (members.some(({id, server}) => server && id === node.id))
      return {
        code: 'malformed',
        message: 'A server has that identity; an agent has its own --data.',
      }
    const answer = await store.join({member: memberOf(hello, peer)}, freshMs)
    if (answer.kind === 'joined') return null
    const message = `Another node is called ${node.name} and is alive; give this one another --name.`
    return {code: 'name_taken', message}
  }

  #sessionOf(connected: Connected, hello: HelloMessage): AgentSession {
    const {store, clock, random, events, announce, endEarlierLives} = this.#options
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
          await this.#join(connected, {...hello, status})
          return (await this.#beat({...lifeOf(hello), status})) === 'ok' ? 'ok' : 'fenced'
        },
        endEarlierLives: () => endEarlierLives({id, incarnation}),
      },
      hello.held,
    )
  }

  async #beat(beat: Beat): Promise<'ok' | 'fenced' | 'unknown'> {
    const result = await this.#beats.add(beat)
    if (result.status === 'rejected') throw result.reason
    return result.value
  }

  /** A connection that the same node had before is over; an earlier life of it learns why. */
  #closeEarlier(node: {readonly id: string; readonly incarnation: string}): void {
    for (const other of this.#connected) {
      if (other.session?.node.id !== node.id) continue
      if (other.session.node.incarnation === node.incarnation) this.#close(other)
      else this.#refuse(other, 'fenced', fenced(other.session.node.name).message)
    }
  }

  #refuse(connected: Connected, code: RefusalKind, message: string): void {
    connected.peer.send({kind: 'refused', code, message})
    this.#close(connected)
  }

  #close(connected: Connected): void {
    connected.isOver = true
    this.#connected.delete(connected)
    connected.peer.close()
  }

  async #sweepSilent(): Promise<number> {
    const {clock, silentMs} = this.#options
    const now = clock.monotonicMs()
    for (const connected of this.#connected)
      if (now - connected.heardAt > silentMs) this.#close(connected)
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

function lifeOf({node}: HelloMessage): {nodeId: string; incarnation: string} {
  return {nodeId: node.id, incarnation: node.incarnation}
}

function fenced(name: string): {code: RefusalKind; message: string} {
  return {
    code: 'fenced',
    message: `Another process has joined as ${name} with the same data directory; this one ends.`,
  }
}

/** The agent's own tags, and over them the ones every node has. */
function memberOf({node}: HelloMessage, {address, port}: AgentPeer): JoinRequest['member'] {
  const {id, incarnation, name, version, slots} = node
  const system = {
    rpc_addr: `${address.includes(':') ? `[${address}]` : address}:${port}`,
    server: 'false',
    version,
    role: 'belfry',
    region: 'global',
    dc: 'dc1',
    node: name,
  }
  const tags = {...node.tags, ...system}
  const place = {address, port, server: false, runs: true}
  return {...place, id, incarnation, name, tags, version, slots}
}
