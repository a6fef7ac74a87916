/**
 * Agents and servers in one process: the real link and hub, connected by function calls, on a virtual clock.
 * A server can be silent, disconnected from its store, frozen or gone.
 */
import {encodeFinish} from '../../src/agents/codec.ts'
import {AgentLink} from '../../src/agents/client/link.ts'
import type {AgentSocket, Dial, SocketHandlers} from '../../src/agents/client/socket.ts'
import {LocalClaims, RemoteNodeStore} from '../../src/agents/client/store.ts'
import {type AgentConnection, AgentHub} from '../../src/agents/server/hub.ts'
import {announceFinished} from '../../src/node/finisher.ts'
import {recoverNode} from '../../src/node/recover.ts'
import {checkedLimits} from '../../src/config/limits.ts'
import type {Principal} from '../../src/core/access/authorization.ts'
import {LOCAL} from '../../src/identity/token-cache.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import type {Store} from '../../src/ports/store.ts'
import {faultyStore} from '../support/faulty-store.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import type {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import type {VirtualClock} from '../support/virtual-clock.ts'
import {beatAs, claimAs} from '../support/single-calls.ts'

export interface Surroundings {
  readonly clock: VirtualClock
  readonly random: SeededRandom
  readonly store: Store
}

interface Wire {
  readonly handlers: SocketHandlers
  connection: AgentConnection | null
  closed: boolean
}

export class TestServer {
  readonly wakeup = new TestWakeup()
  readonly events = new RecordedEvents()
  readonly hub: AgentHub
  /** Neither sends nor receives, as with a cut cable. */
  isSilent = false
  /** Replies, and cannot reach the store. */
  isDisconnected = false
  /** Handles nothing until `wake`, then everything, like a process after SIGSTOP and SIGCONT. */
  isFrozen = false
  readonly #delayed: (() => void)[] = []
  /** Refuses connections, like a process that has ended. */
  isGone = false
  /** HTTP status with which it refuses connections; `null` = it accepts them. */
  refusesWith: number | null = null
  readonly wires = new Set<Wire>()
  /** The token of the next connection. */
  caller: Principal = LOCAL
  /** Every text that agents sent. */
  received: string[] = []

  constructor({clock, random, store}: Surroundings, clusterId: string, nodeName = 'server') {
    const {wakeup, events} = this
    const reached = faultyStore(store, {
      fault: () => (this.isDisconnected ? 'unavailable' : 'none'),
    })
    this.hub = new AgentHub({
      store: reached,
      clock,
      random,
      wakeup,
      events,
      nodeName,
      clusterId,
      isConfigured: () => false,
      onRefused: () => undefined,
      limits: checkedLimits(),
      endPreviousIncarnations: (node, earlier) =>
        recoverNode({store: reached, random, wakeup, events}, node, earlier),
      announce: (outcomes) => announceFinished(outcomes, {wakeup, events}),
    })
    this.hub.start()
  }

  wake(): void {
    this.isFrozen = false
    for (const handle of this.#delayed.splice(0)) handle()
  }

  /** The process ends: its connections break. */
  die(): void {
    this.isGone = true
    for (const wire of this.wires) this.#close(wire, 'gone')
  }

  dialled(clock: VirtualClock, handlers: SocketHandlers): AgentSocket {
    const wire: Wire = {handlers, connection: null, closed: false}
    const later = (work: () => void) => void clock.after(1, () => wire.closed || work())
    if (this.isGone) later(() => this.#close(wire, 'refused'))
    else if (this.refusesWith !== null) later(() => this.#close(wire, 'no', this.refusesWith))
    else if (!this.isSilent) later(() => this.#open(wire, later))
    return {
      bufferedBytes: 0,
      send: (text) =>
        later(() => {
          if (this.isSilent) return
          this.received.push(text)
          const handle = () => void wire.connection?.receive(text)
          if (this.isFrozen) this.#delayed.push(handle)
          else handle()
        }),
      // Messages that arrived before are handled first.
      terminate: () => {
        if (this.isFrozen) this.#delayed.push(() => this.#close(wire, 'terminated'))
        else this.#close(wire, 'terminated')
      },
    }
  }

  #open(wire: Wire, later: (work: () => void) => void): void {
    this.wires.add(wire)
    wire.connection = this.hub.connect({
      address: '192.0.2.7',
      port: 40_000,
      caller: this.caller,
      send: (message) =>
        later(() => this.isSilent || wire.handlers.onMessage(JSON.stringify(message))),
      close: () => later(() => this.#close(wire, 'closed')),
    })
    wire.handlers.onOpen()
  }

  #close(wire: Wire, reason: string, status: number | null = null): void {
    if (wire.closed) return
    wire.closed = true
    this.wires.delete(wire)
    wire.connection?.closed()
    wire.handlers.onClose({reason, status})
  }
}

export interface AgentSettings {
  readonly name: string
  readonly id: string
  readonly incarnation: string
  readonly clusterId: string | null
  readonly slots: number
}

const FIRST = 'first-incarnation'

/** Incarnation of an agent: its link and its remote store. */
export class TestAgent {
  readonly claims = new LocalClaims()
  readonly link: AgentLink
  readonly store: RemoteNodeStore
  readonly notified: string[] = []
  readonly joins: string[] = []
  readonly reports: string[] = []
  readonly refusals: string[] = []
  cluster: string | null = null
  issued = 0

  constructor(
    {clock, random}: Surroundings,
    servers: Readonly<Record<string, TestServer>>,
    settings: Partial<AgentSettings> = {},
  ) {
    const {name = 'agent-a', clusterId = null, slots = 4} = settings
    const {id = `id-of-${name}-agent`, incarnation = FIRST} = settings
    const dial: Dial = (url, handlers) => servers[url]!.dialled(clock, handlers)
    this.link = new AgentLink({
      dial,
      urls: Object.keys(servers),
      clock,
      random,
      describe: () => ({
        node: {id, incarnation, name, tags: {place: 'far'}, slots, version: '1.0.0'},
        status: 'alive',
        ended: incarnation === FIRST ? [] : [FIRST],
        ownToken: null,
        ...this.claims.encoded(),
      }),
      clusterId,
      saveClusterId: async (cluster) => void (this.cluster = cluster),
      onIssued: async () => void (this.issued += 1),
      limits: checkedLimits(),
      onNotify: (topic) => this.notified.push(topic),
      onJoined: (url) => this.joins.push(url),
      onDisconnected: (sentence) => this.reports.push(sentence),
      onRefused: (sentence, kind) => this.refusals.push(`${kind}: ${sentence}`),
    })
    this.store = new RemoteNodeStore(this.link, this.claims, () => this.notified.push('revoked'))
    this.link.start()
  }

  claim(token: string, room = 4) {
    return claimAs(this.store, {nodeId: 'whatever', incarnation: 'whatever', token, room})
  }

  finish(item: FinishItem) {
    return this.store.finish([encodeFinish(item)])
  }

  beat() {
    return beatAs(this.store, {nodeId: 'whatever', incarnation: 'whatever', status: 'alive'})
  }
}
