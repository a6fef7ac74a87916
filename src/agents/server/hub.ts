/**
 * Hub of the agents that are connected to this server: admits them, batches their heartbeats, notifies those
 * that have work, and closes silent connections. To which server an agent is connected does not matter:
 * everything that must not be lost is in the store.
 */
import {AssertionFailed} from '../../lib/assert.ts'
import {BatchQueue} from '../../lib/batch-queue.ts'
import {Loop, type Service} from '../../lib/loop.ts'
import type {Step} from '../../core/steps.ts'
import type {Events} from '../../ports/events.ts'
import type {FinishOutcome} from '../../core/end-requests.ts'
import type {BeatReply, Heartbeat, PreviousIncarnation} from '../../ports/node-store.ts'
import type {Clock, Random, Wakeup} from '../../ports/runtime.ts'
import type {Store} from '../../ports/store.ts'
import {decodeAgentMessage} from '../codec.ts'
import {
  type AgentTopic,
  type HelloMessage,
  PROTOCOL,
  type RefusalKind,
  type ServerMessage,
} from '../protocol.ts'
import {
  Admission,
  type AdmissionOptions,
  incarnationOf,
  otherProtocol,
  type Origin,
  type Refusal,
  replacedRefusal,
} from './admission.ts'
import {AgentBudget, type BudgetLimits} from './budget.ts'
import {AgentSession, claimsMax, type SessionStore} from './session.ts'

/** The remote end of a connection, for the hub. */
export interface AgentPeer extends Origin {
  send(message: ServerMessage): void
  /** `why` is for operators, on the other side too. */
  close(why: string): void
}

export interface AgentHubOptions {
  readonly store: SessionStore & Pick<Store, 'beat' | 'candidates'> & AdmissionOptions['store']
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
  /** Node name of this server. */
  readonly nodeName: string
  readonly clusterId: string
  /** The token of the configuration has this digest. */
  readonly isConfigured: (digest: string) => boolean
  /** `failedAfterMs`: a connection without a message for this long is closed. */
  readonly limits: BudgetLimits & AdmissionOptions['limits']
  /** Resolves with the number of released claims. */
  readonly endPreviousIncarnations: (
    node: {readonly nodeId: string; readonly incarnation: string},
    previous: readonly PreviousIncarnation[],
  ) => Promise<number>
  /** An agent may not join with its token, or as the node that it says it is. */
  readonly onRefused: (refused: RefusedAgent) => void
  readonly announce: (outcomes: readonly FinishOutcome[]) => void
}

export interface RefusedAgent extends Pick<Origin, 'address' | 'caller'> {
  readonly node: string
  /** Sentence for operators. */
  readonly why: string
}

/** Refusals that are no question of access: another server, another version or another time would do. */
const NOT_ACCESS: readonly RefusalKind[] = ['protocol', 'cluster', 'unavailable', 'fenced']

/**
 * Heartbeats wait this long for others, which bounds the commits to 5/s for any number of agents. The write
 * queue of the store does not wait: it would commit nearly every heartbeat alone. An agent waits far longer
 * for the reply.
 */
const HEARTBEAT_WAIT_MS = 200
const HEARTBEATS_MAX = 1_000
/** Wait for other notifications: launches come in bursts, and finding who has work is a query. */
const NOTIFY_WAIT_MS = 20
const SWEEP_MS = 1_000
/** A join is several writes, and reads all claims of the node: ten a second of one agent. */
const HELLO_ITEMS = 200

/** Connection of an agent, admitted or not. Only the hub changes its fields. */
export interface AgentConnection {
  readonly peer: AgentPeer
  hasSentHello: boolean
  /** `null` until it is admitted. */
  session: AgentSession | null
  /** Monotonic. */
  lastMessageAt: number
  isClosed: boolean
  /** Handles one text of the agent; resolves when it is done. Rejects for broken invariants. */
  readonly receive: (text: string) => Promise<void>
  readonly closed: () => void
}

export class AgentHub implements Service {
  readonly #options: AgentHubOptions
  readonly #connections = new Set<AgentConnection>()
  readonly #admission: Admission
  readonly #budget: AgentBudget
  readonly #heartbeats: BatchQueue<Heartbeat, PromiseSettledResult<BeatReply>>
  readonly #sweep: Loop
  readonly #notify: Loop
  readonly #queuedTopics = new Set<AgentTopic>()
  #unsubscribes: (() => void)[] = []
  #isStopped = false

  constructor(options: AgentHubOptions) {
    this.#options = options
    this.#budget = new AgentBudget(options.clock, options.limits)
    const {clock, events, store} = options
    const failed = (step: Step) => (error: unknown) =>
      events.emit('step_failed', {step, message: String(error)})
    this.#heartbeats = new BatchQueue({
      clock,
      waitMs: HEARTBEAT_WAIT_MS,
      itemsMax: HEARTBEATS_MAX,
      // Calls of one turn are one commit. Separate calls: one that fails does not fail the others.
      flush: (heartbeats) => {
        const replies = heartbeats.map((each) => store.beat([each]).then(([reply]) => reply!))
        return Promise.allSettled(replies)
      },
    })
    this.#admission = new Admission({...options, beat: (heartbeat) => this.#beat(heartbeat)})
    this.#sweep = new Loop({clock, step: () => this.#closeSilent(), failed: failed('agent_sweep')})
    this.#notify = new Loop({
      clock,
      step: () => this.#notifyAgents(),
      failed: failed('agent_notify'),
    })
  }

  start(): void {
    const {wakeup, clock} = this.#options
    const forward = (topic: AgentTopic) => () => {
      if (this.#connections.size === 0) return
      if (this.#queuedTopics.size === 0) clock.after(NOTIFY_WAIT_MS, () => this.#notify.wake())
      this.#queuedTopics.add(topic)
    }
    this.#unsubscribes = (['run', 'cancel'] as const).map((topic) =>
      wakeup.subscribe(topic, forward(topic)),
    )
    this.#sweep.start()
    this.#notify.start()
  }

  /** Sends every agent to another server. Idempotent. */
  async stop(): Promise<void> {
    this.#isStopped = true
    for (const unsubscribe of this.#unsubscribes.splice(0)) unsubscribe()
    await Promise.all([this.#sweep.stop(), this.#notify.stop()])
    for (const connection of this.#connections) {
      connection.peer.send({kind: 'shutdown'})
      this.#close(connection, `${this.#options.nodeName} shuts down`)
    }
  }

  /** Number of admitted agents on this server. */
  get agentCount(): number {
    let count = 0
    for (const {session} of this.#connections) if (session !== null) count += 1
    return count
  }

  /** A connection whose HTTP request was authorized. */
  connect(peer: AgentPeer): AgentConnection {
    const connection: AgentConnection = {
      peer,
      hasSentHello: false,
      session: null,
      lastMessageAt: this.#options.clock.monotonicMs(),
      isClosed: false,
      receive: (text) => this.#onMessage(connection, text),
      closed: () => {
        connection.isClosed = true
        this.#connections.delete(connection)
      },
    }
    this.#connections.add(connection)
    return connection
  }

  async #onMessage(connection: AgentConnection, text: string): Promise<void> {
    if (connection.isClosed) return
    connection.lastMessageAt = this.#options.clock.monotonicMs()
    const decoded = decodeAgentMessage(text)
    const {session} = connection
    if (!decoded.ok) {
      if (decoded.why === 'protocol')
        return this.#refuse(connection, otherProtocol(decoded.protocol, this.#options.nodeName))
      if (decoded.why === 'malformed' || decoded.id === null || session === null)
        return this.#refuse(connection, malformed('the message cannot be read'))
      const message = `this server, of protocol ${PROTOCOL}, does not support that request`
      return session.send({kind: 'failed', id: decoded.id, failure: 'unsupported', message})
    }
    const {message} = decoded
    if (message.kind === 'hello') {
      if (connection.hasSentHello)
        return this.#refuse(connection, malformed('the agent introduced itself twice'))
      connection.hasSentHello = true
      return await this.#onHello(connection, message)
    }
    if (session === null)
      return this.#refuse(connection, malformed('the agent did not introduce itself'))
    await session.handle(message)
  }

  async #onHello(connection: AgentConnection, hello: HelloMessage): Promise<void> {
    const {clusterId, nodeName, events} = this.#options
    if (this.#isStopped) return this.#refuse(connection, unavailable(`${nodeName} shuts down`))
    const {node, status, activeClaims} = hello
    if (activeClaims.length > claimsMax(node.slots))
      return this.#refuse(
        connection,
        malformed('the agent reports more executions than its slots allow'),
      )
    await this.#budget.take(holderOf(connection, hello), HELLO_ITEMS)
    if (connection.isClosed) return
    const session = this.#sessionOf(connection, hello)
    try {
      if (connection.peer.caller.kind === 'join') return await this.#issue(connection, hello)
      const refusal = await this.#admission.admit(hello, connection.peer)
      if (refusal !== null) return this.#refuseAccess(connection, node.name, refusal)
      await session.loadActiveClaims()
      if (connection.isClosed) return
      this.#closePrevious(node)
      connection.session = session
      connection.peer.send({
        kind: 'welcome',
        protocol: PROTOCOL,
        clusterId,
        server: nodeName,
      })
      events.emit('member_changed', {node: node.name, status})
    } catch (error) {
      if (error instanceof AssertionFailed) throw error
      events.emit('step_failed', {step: 'agent_hello', message: String(error)})
      if (connection.session === null)
        this.#refuse(connection, unavailable(`${nodeName} cannot reach its store`))
    }
  }

  async #issue(connection: AgentConnection, hello: HelloMessage): Promise<void> {
    const refusal = await this.#admission.issue(hello, connection.peer)
    if (refusal !== null) return this.#refuseAccess(connection, hello.node.name, refusal)
    connection.peer.send({kind: 'issued'})
    this.#close(connection, 'the agent has its own token')
  }

  #sessionOf(connection: AgentConnection, hello: HelloMessage): AgentSession {
    const {store, clock, random, events, announce, endPreviousIncarnations} = this.#options
    const {id, incarnation, name, slots} = hello.node
    const holder = holderOf(connection, hello)
    return new AgentSession(
      {
        store,
        clock,
        random,
        events,
        announce,
        node: {id, incarnation, name, slots},
        violated: (why) => this.#refuse(connection, malformed(why)),
        send: (message) => {
          if (!connection.isClosed) connection.peer.send(message)
        },
        mayHandle: async (kind, items) => {
          const isClosed = () => connection.isClosed
          if (kind !== 'verify') return await this.#budget.take(holder, items).then(() => true)
          await this.#budget.takeVerify(holder, items, isClosed)
          return !isClosed()
        },
        beat: (status) => this.#beat({...incarnationOf(hello), status}),
        rejoin: async (status) => {
          const refusal = await this.#admission.join(hello, connection.peer)
          if (refusal?.code === 'name_taken') return 'taken'
          const reply = await this.#beat({...incarnationOf(hello), status})
          return reply === 'unknown' ? 'fenced' : reply
        },
        endPreviousIncarnations: (previous) =>
          endPreviousIncarnations({nodeId: id, incarnation}, previous),
      },
      hello.activeClaims,
    )
  }

  async #beat(heartbeat: Heartbeat): Promise<BeatReply> {
    const result = await this.#heartbeats.add(heartbeat)
    if (result.status === 'rejected') throw result.reason
    return result.value
  }

  /** Closes an older connection of the same node. A previous incarnation receives the reason. */
  #closePrevious(node: {readonly id: string; readonly incarnation: string}): void {
    for (const other of this.#connections) {
      if (other.session?.node.id !== node.id) continue
      if (other.session.node.incarnation === node.incarnation)
        this.#close(other, 'this agent has connected again')
      else this.#refuse(other, replacedRefusal('fenced', other.session.node.name))
    }
  }

  #refuseAccess(connection: AgentConnection, node: string, refusal: Refusal): void {
    const {address, caller} = connection.peer
    if (caller.agent !== undefined && !NOT_ACCESS.includes(refusal.code))
      this.#options.onRefused({address, caller, node, why: refusal.message})
    this.#refuse(connection, refusal)
  }

  #refuse(connection: AgentConnection, {code, message}: Refusal): void {
    connection.peer.send({kind: 'refused', code, message})
    this.#close(connection, message)
  }

  #close(connection: AgentConnection, why: string): void {
    connection.closed()
    connection.peer.close(why)
  }

  async #closeSilent(): Promise<number> {
    const {clock, limits} = this.#options
    const silentMs = limits.failedAfterMs
    const now = clock.monotonicMs()
    for (const connection of this.#connections)
      if (now - connection.lastMessageAt > silentMs)
        this.#close(connection, `no message of this agent for ${silentMs / 1_000} s`)
    return SWEEP_MS
  }

  /** A lost notification is harmless: every agent also polls. */
  async #notifyAgents(): Promise<number> {
    const topics = new Set(this.#queuedTopics)
    this.#queuedTopics.clear()
    const sessions = [...this.#connections].flatMap(({session}) => session ?? [])
    if (sessions.length === 0) return Infinity
    if (topics.has('cancel'))
      for (const session of sessions)
        if (session.runningCount > 0) session.send({kind: 'notify', topic: 'cancel'})
    if (topics.has('run')) {
      const candidates = await this.#options.store.candidates()
      const loads = new Map(candidates.map(({id, load}) => [id, load]))
      for (const session of sessions)
        if ((loads.get(session.node.id) ?? 0) > session.runningCount)
          session.send({kind: 'notify', topic: 'run'})
    }
    return Infinity
  }
}

/** Holder of a budget: a token, or each agent if the token may connect several. */
function holderOf({peer: {caller}}: AgentConnection, {node}: HelloMessage): string {
  return caller.kind === 'agent' ? caller.accessor : `${caller.accessor} ${node.id}`
}

function malformed(why: string): Refusal {
  return {code: 'malformed', message: `The connection must follow the agent protocol: ${why}.`}
}

function unavailable(message: string): Refusal {
  return {code: 'unavailable', message}
}
